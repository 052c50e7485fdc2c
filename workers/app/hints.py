"""Makes texts fit to be shown: commands name the home that they are for, so that they can be copied, and nothing in the
text can control a terminal.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_UNSHOWN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tabs and ends of lines, marks that change the direction of writing, and bytes of file names
that are no text."""

_Put = Callable[[str], str]
_said: _Put = str
_logged: _Put = str


def name_home(home: Path, commands: Sequence[str], *, is_named: bool) -> None:
    """From now on adds this home to every `feedctl COMMAND` in texts: without it, the command would be for another
    home.

    is_named: whether the command line named the home. If it did not, messages do not name it either: the shell that
    shows them finds the home in its directory or its environment. Logs always name it: they are read elsewhere.
    """
    global _said, _logged  # noqa: PLW0603 - one command line a process, as its streams
    # But not to "feedctl serve (pid 7)", which is a process.
    named = rf"\bfeedctl (?=(?:{'|'.join(commands)})\b(?![-\w])(?![^()\n]*\(pid))"
    _said = _put(named, home) if is_named else str
    _logged = _put(named, home.absolute())


def forget_home() -> None:
    """From now on leaves commands in texts as they are."""
    global _said, _logged  # noqa: PLW0603 - the same
    _said = _logged = str


def said(text: str) -> str:
    """A text for people, with the home in its commands."""
    return _said(text)


def logged(text: str) -> str:
    """A value of a log line, with the home as an absolute path in its commands."""
    return _logged(text)


def _put(named: str, home: Path) -> _Put:
    instead = f"feedctl --home {shlex.quote(str(home))} "
    return lambda text: re.sub(named, lambda _: instead, text)


# Texts from elsewhere: messages, files, their names, answers of servers
# --------------------------------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """Makes a text safe for a terminal: an escape sequence could change its title, overwrite lines, or type input. Such
    characters become readable escapes, as Python writes them.
    """
    return _UNSHOWN.sub(_escaped, text)


def shown_json(text: str) -> str:
    """Makes a line of JSON safe for a terminal, without a change of its meaning."""
    if text.isprintable():  # the usual case, in a third of the time: each request logs a line
        return text
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
