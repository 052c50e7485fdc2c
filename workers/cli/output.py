"""What people and machines see: data on stdout; progress, logs and errors on stderr."""

import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
import msgspec

_REDRAW_S = 0.1
_LINE_S = 10.0
"""How often progress is shown: on a terminal one line is drawn again, elsewhere lines are added."""


class Progress:
    """One line on stderr that says how far something is."""

    _drawn: "Progress | None" = None

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic, *, redraw_s: float = _REDRAW_S) -> None:
        """redraw_s: how often a terminal's line is drawn again, at most; more rarely where what it says is costly."""
        self._what = what
        self._clock = clock
        self._every_s = redraw_s if sys.stderr.isatty() else _LINE_S
        self._shown_s = clock()
        self._started_s = self._shown_s

    def elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def due(self) -> bool:
        """Whether it is time to show something again: ask before working out what."""
        return self._clock() - self._shown_s >= self._every_s

    def show(self, text: str, share: float | None = None) -> None:
        """share: how much is done, 0..1, where that is known."""
        self._shown_s = self._clock()
        if not sys.stderr.isatty():
            percent = "" if share is None else f" {share:4.0%}"
            click.echo(f"{self._what}:{percent} {text}", err=True)
            return
        bar = "" if share is None else f" [{'#' * round(30 * share):<30}] {share:4.0%}"
        width = shutil.get_terminal_size().columns
        sys.stderr.write("\r\033[K" + f"{self._what}{bar} {text}"[: width - 1])
        sys.stderr.flush()
        Progress._drawn = self

    def clear(self) -> None:
        """Takes the line away, before anything else is written."""
        if Progress._drawn is self:
            Progress.clear_any()

    @classmethod
    def clear_any(cls) -> None:
        if cls._drawn is not None:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            cls._drawn = None


def note(text: str) -> None:
    """A line for people, on stderr."""
    Progress.clear_any()
    click.echo(text, err=True)


def emit_json(value: object) -> None:
    """One line of JSON on stdout."""
    click.echo(msgspec.json.encode(value).decode())


def when(ms: int) -> str:
    """A time for people, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def ago(ms: int) -> str:
    """A span of time for people."""
    seconds = ms / 1_000
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
