"""Texts as people are shown them: the commands in them with the home that they are for, so that they can be copied, and
nothing in them that a terminal would execute.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_UNSHOWN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for the tab and the end of a line, marks that turn the direction of writing, and bytes of a
file's name that are no text."""

_Put = Callable[[str], str]
_said: _Put = str
_logged: _Put = str


def name_home(home: Path, commands: Sequence[str], *, is_named: bool) -> None:
    """From now on, every `feedctl COMMAND` is for this home: without it, the command would be for another one.

    is_named: whether the command line named the home. If it did not, messages do not name it either: the shell that
    shows them finds the home in its directory or its environment. Logs always name it: they are read elsewhere.
    """
    global _said, _logged  # noqa: PLW0603 - one command line a process, as its streams
    # Not "feedctl serve (pid 7)", which is a process.
    named = rf"\bfeedctl (?=(?:{'|'.join(commands)})\b(?![-\w])(?![^()\n]*\(pid))"
    _said = _put(named, home) if is_named else str
    _logged = _put(named, home.absolute())


def forget_home() -> None:
    """From now on, commands stay as they are."""
    global _said, _logged  # noqa: PLW0603 - the same
    _said = _logged = str


def said(text: str) -> str:
    """What people are told, with the home in its commands."""
    return _said(text)


def logged(text: str) -> str:
    """A value of a line of a log, with the home in its commands, from the root on."""
    return _logged(text)


def _put(named: str, home: Path) -> _Put:
    instead = f"feedctl --home {shlex.quote(str(home))} "
    return lambda text: re.sub(named, lambda _: instead, text)


# Text from elsewhere: messages, files, their names, answers of servers
# --------------------------------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """The text as a terminal may be sent it: an escape sequence could retitle it, overwrite lines, or type. Such
    characters become escapes that can be read: of Python's kind.
    """
    return _UNSHOWN.sub(_escaped, text)


def shown_json(text: str) -> str:
    """The same for one line of JSON, which means the same afterwards."""
    if text.isprintable():  # as a rule, and each request logs a line: this takes a third of the time
        return text
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
