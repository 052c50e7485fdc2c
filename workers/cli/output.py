"""Output for people and machines: data on stdout; progress, logs and errors on stderr.

Every command writes through here: text from elsewhere is escaped, and an output that is closed or full raises an error
with a name.
"""

import contextlib
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import Self

import click
import msgspec

from workers.app import hints
from workers.app.hints import shown, shown_json
from workers.app.logs import has_colours, is_screen

_REDRAW_S = 0.1
_LINE_S = 10.0
"""How often progress is shown. On a terminal one line is drawn again; elsewhere lines are added."""
_SILENT_S = 2.0
"""If a command says nothing for this long, a line says that it still runs."""
_LOOK_S = 0.5

_lock = threading.RLock()
"""Held while something is written, so that a line of progress never goes into another line."""


class OutputError(Exception):
    """Stdout takes no more; the message says why."""


class OutputClosedError(OutputError):
    """The reader of stdout has closed it: `feedctl export | head -1`."""


def styled(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """A text for `say`, `heading` or `draw`, as it looks on a terminal with colours."""
    return click.style(text, fg=colour, bold=bold) if has_colours() else text


class ProgressLine:
    """One line on stderr that shows progress. On a terminal it stays until anything else is written."""

    _drawn: "ProgressLine | None" = None

    def __init__(self, what: str, *, redraw_s: float = _REDRAW_S) -> None:
        """redraw_s: the least time before a terminal's line is drawn again; longer if its content is costly."""
        self._what = what
        self._every_s = redraw_s if is_screen(sys.stderr) else _LINE_S
        self._shown_s = time.monotonic()
        self._started_s = self._shown_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def due(self) -> bool:
        """Whether it is time to show something again. Ask before the content is worked out."""
        return time.monotonic() - self._shown_s >= self._every_s

    def show(self, text: str, share: float | None = None) -> None:
        """Shows a text. share: how much is done, 0..1, if that is known."""
        with _lock:
            self._shown_s = time.monotonic()
            if not is_screen(sys.stderr):
                percent = "" if share is None else f" {share:4.0%}"
                note(f"{self._what}:{percent} {text}")
                return
            width = shutil.get_terminal_size().columns
            wide = min(30, width // 4)
            bar = "" if share is None else f" [{'#' * round(wide * share):<{wide}}] {share:4.0%}"
            _draw("\r\033[K" + shown(f"{self._what}{bar} {text}")[: width - 1])
            ProgressLine._drawn = self

    def count(self, done: int, one: str) -> None:
        """Shows how many are done, if it is time. one: what is counted."""
        if self.due():
            self.show(plural(done, one))

    @classmethod
    def clear(cls) -> None:
        """Clears the line that is drawn, whichever object drew it."""
        with _lock:
            if cls._drawn is not None:
                _draw("\r\033[K")
                cls._drawn = None


class Heartbeat:
    """Says how long a command has been running, while the command itself says nothing."""

    _beating: "Heartbeat | None" = None

    def __init__(self, what: str) -> None:
        self._progress = ProgressLine(what)
        self._ended = threading.Event()
        self.heard_s = time.monotonic()

    def __enter__(self) -> Self:
        Heartbeat._beating = self
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        with _lock:
            self._ended.set()
            ProgressLine.clear()
            Heartbeat._beating = None

    @classmethod
    def end_any(cls) -> None:
        """Ends the heartbeat of a command that from now on runs until it is told to end."""
        if cls._beating is not None:
            cls._beating.end()

    @classmethod
    def note_said(cls) -> None:
        """Notes that the command itself has said something."""
        if cls._beating is not None:
            cls._beating.heard_s = time.monotonic()

    def _beat(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with _lock:
                heard_s = self.heard_s
                if not self._ended.is_set() and time.monotonic() - heard_s >= _SILENT_S and self._progress.due():
                    self._progress.show(f"{self._progress.elapsed_s():.0f} s")
                    self.heard_s = heard_s  # its own line does not count


def heartbeat() -> None:
    """Begins the heartbeat of the running command. It ends with the command, after all that it has opened is closed."""
    context = click.get_current_context()
    context.with_resource(Heartbeat(context.info_name or ""))


def _draw(text: str) -> None:
    Heartbeat.note_said()
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def note(text: str) -> None:
    """Writes a line for people on stderr. If stderr does not take it, it is lost: no command fails for that."""
    with _lock:
        ProgressLine.clear()
        Heartbeat.note_said()
        with contextlib.suppress(OSError):
            click.echo(shown(hints.said(text)), err=True)


def say(text: str, mark: str = "") -> None:
    """Writes a line of data for people on stdout. mark: our own text before the line, `styled`. Raises OutputError."""
    with written():
        click.echo(mark + shown(hints.said(text)))


def heading(text: str) -> None:
    """Writes a heading for people on stdout: bold on a terminal, after an empty line. Raises OutputError."""
    with written():
        click.echo("\n" + styled(shown(text), bold=True))


def can_draw() -> bool:
    """Whether stdout is a terminal on which `draw` works."""
    return is_screen(sys.stdout)


def draw(lines: Sequence[str]) -> None:
    """Draws a terminal again with these lines, as many as it has room for. A line that begins with ! is red, and
    continues below if it is too long; others are cut off. Raises OutputError.
    """
    size = shutil.get_terminal_size()
    width = max(20, size.columns - 1)
    fitting = [part for line in lines for part in _fitted(shown(hints.said(line)), width)][: size.lines - 1]
    drawn = [styled(line, "red", bold=True) if line.startswith("!") else line for line in fitting]
    with written():
        click.echo("\033[H" + "".join(f"{line}\033[K\n" for line in drawn) + "\033[J", nl=False)
        sys.stdout.flush()


def _fitted(line: str, width: int) -> list[str]:
    if not line.startswith("!"):
        return [line[:width]]
    return textwrap.wrap(line, width, subsequent_indent="!   ", break_on_hyphens=False)


def answer(value: object, text: str, *, as_json: bool, tell: Callable[[str], None] = say) -> None:
    """Writes an answer on stdout: `value` as JSON for programs, or else `text` for people. tell: `note` writes the text
    on stderr instead. Raises OutputError.
    """
    if as_json:
        emit_json(value)
    else:
        tell(text)


def emit_json(value: object) -> None:
    """Writes one line of JSON on stdout. Raises OutputError."""
    emit_lines(shown_json(msgspec.json.encode(value).decode()).encode() + b"\n")


def emit_lines(lines: bytes) -> None:
    """Writes whole lines on stdout, as they are. Raises OutputError."""
    with written():
        click.echo(lines, nl=False)


def flush() -> None:
    """Writes what stdout still buffers. If it raises OutputError, stdout takes nothing more."""
    try:
        with written():
            sys.stdout.flush()
    except OutputError:
        # Otherwise the interpreter, which flushes again when it ends, would show a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise


def fill_streams() -> None:
    """Opens standard streams that are closed: the next file would get the number of such a stream, and with it what is
    printed. From now on, stdout shows a character that its encoding lacks as an escape, as stderr does.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Turns errors of stdout into OutputError, for code that writes to it."""
    try:
        with _lock:
            ProgressLine.clear()
            Heartbeat.note_said()
            yield
    except BrokenPipeError as error:
        raise OutputClosedError("the output was closed") from error
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror or error}") from error


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


def counted(count: int | None) -> str:
    """A count, with separators; "unknown" if it is None."""
    return "unknown" if count is None else f"{count:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
