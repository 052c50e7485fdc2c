"""The commands that messages and logs name: with the home that they are for, so that they can be copied."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

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
