"""Where structured logs go and how they look. Event names are stable: docs/operating.md lists them."""

import asyncio
import json
import logging
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TextIO

import msgspec
import structlog

from feedstore.portions import portions
from feedstore.tracing import UNTRACED, Tracer
from workers.app import hints
from workers.app.hints import shown, shown_json

_Event = MutableMapping[str, Any]
"""The content of a log line. timestamp: a datetime."""
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode
_WRITE_MAX: Final = 4_096
"""A pipe takes this many bytes as a whole, and without waiting if it is ready (PIPE_BUF of Linux)."""


class Stderr(Protocol):
    """Where lines are written. Used under a lock."""

    def write(self, line: str) -> bool:
        """Writes a line; False if it was dropped. If only a part was written, it is ended before the next one."""


class Lines:
    """Writes each event as a line to stderr, after it has cleared what is drawn on the terminal's last line.
    Thread-safe.

    A line and its end are one write: otherwise processes that share a stderr would mix their lines. Lines that stderr
    does not take are dropped; before the next line that it takes, another one says how many.

    The lines that callbacks of an event loop log in one turn are written together, before the next turn: each write
    gives the interpreter to other threads, and a server with one write for each page waited as often to get it back.
    """

    def __init__(self, rendered: Callable[[_Event], str], clear_line: Callable[[], None], stderr: Stderr) -> None:
        self._rendered = rendered
        self._clear_line = clear_line
        self._stderr = stderr
        self.traced: Callable[[], Mapping[str, str]] | None = None
        """Returns the ids of the trace that a line belongs to, if there is one."""
        self._dropped = 0
        self._said: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that will write the lines that wait."""
        self._lock = threading.RLock()  # a signal's handler may log while its thread is logging

    def info(self, event: _Event) -> None:
        if self.traced is not None:
            event = {**event, **self.traced()}
        try:
            line = self._rendered(event)
            if "feedctl " in line:  # few do
                named = {key: hints.logged(value) if isinstance(value, str) else value for key, value in event.items()}
                line = self._rendered(named)
        except Exception as error:  # noqa: BLE001 - the content of an event must not fail the caller that logs it
            line = json.dumps(
                {"event": str(event["event"]), "level": event["level"], "unwritable": type(error).__name__}
            )
        with self._lock:
            self._said.append(line + "\n")
            loop = _running_loop()
            if loop is None:
                self._write()
            elif loop is not self._loop:
                self._loop = loop
                loop.call_soon(self._write)

    def _write(self) -> None:
        with self._lock:
            said, self._said, self._loop = self._said, [], None
            for lines in portions(said, lambda line: len(line.encode(errors="backslashreplace")), _WRITE_MAX):
                self._clear_line()
                # Both lines or neither: otherwise the short one would find room again and again, and the others none.
                before = self._rendered(_dropped(self._dropped)) + "\n" if self._dropped else ""
                taken = self._stderr.write(before + "".join(lines))
                self._dropped = 0 if taken else self._dropped + len(lines)

    # Loggers call the method that is named like the level.
    debug = warning = error = critical = info


def clear_line() -> None:
    """Clears what is drawn on a terminal's last line."""
    if is_screen(sys.stderr):
        sys.stderr.write("\r\033[K")


def is_screen(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can draw a line again. A dumb one, such as a shell in an editor, cannot."""
    return stream.isatty() and not _is_dumb()


def has_colours() -> bool:
    """Whether a terminal takes colours, and its user wants them (https://no-color.org)."""
    return not _is_dumb() and not os.environ.get("NO_COLOR")


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def configure(level: str, clear: Callable[[], None] = clear_line) -> None:
    """Logs to stderr: for people if that is a terminal, otherwise JSON lines. clear: is called before each write."""
    lines = Lines(_people() if sys.stderr.isatty() else _json, clear, _opened())
    structlog.configure(
        wrapper_class=_loggers(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


def name_traces(tracer: Tracer) -> None:
    """From now on, lines that are logged in a span carry its trace_id and span_id. Costs nothing if traces are off."""
    lines = structlog.get_config()["logger_factory"]()
    if tracer is not UNTRACED and isinstance(lines, Lines):
        adopt("opentelemetry")  # it logs what it cannot send
        lines.traced = tracer.ids


def adopt(*names: str) -> None:
    """From now on, warnings and errors that libraries log under these names become lines `library.logged`."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [_Adopted(logging.WARNING)]
        logger.propagate = False


class _Adopted(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        values = {"library": record.name, "message": record.getMessage()}
        if record.exc_info is not None:
            with_text = structlog.processors.format_exc_info(self, "", {"exc_info": record.exc_info})
            values["exception"] = with_text["exception"]
        log = structlog.get_logger()
        (log.error if record.levelno >= logging.ERROR else log.warning)("library.logged", **values)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _dropped(count: int) -> _Event:
    return {"event": "log.dropped", "count": count, "level": "warning", "timestamp": datetime.now(UTC)}


def _loggers(least: int) -> type[structlog.BoundLoggerBase]:
    """The class of all loggers. Loggers of structlog walk through a chain of processors, which makes a line two to
    three times as costly as one step. least: the lowest level that is logged.
    """

    def at(level: str, *, traceback: bool = False) -> Callable[..., None]:
        def log(self: structlog.BoundLoggerBase, event: str, **values: object) -> None:
            line: _Event = {"event": event, **self._context, **values, "level": level, "timestamp": datetime.now(UTC)}
            if traceback:
                line = structlog.processors.format_exc_info(self, level, {**line, "exc_info": True})
            getattr(self._logger, level)(line)

        return log

    def nothing(self: structlog.BoundLoggerBase, event: str, **values: object) -> None:
        """For events below the level: does nothing."""

    methods = {level: at(level) for level in ("debug", "info", "warning", "error", "critical")}
    for level in methods:
        if logging.getLevelNamesMapping()[level.upper()] < least:
            methods[level] = nothing
    methods["exception"] = nothing if least > logging.ERROR else at("error", traceback=True)
    return type("Logger", (structlog.BoundLoggerBase,), methods)


def _json(event: _Event) -> str:
    try:
        return shown_json(_encode(event).decode())
    except (UnicodeEncodeError, OverflowError, TypeError):
        # Slower, but it takes everything, such as a file name in no encoding.
        return json.dumps({**event, "timestamp": _iso(event)}, default=repr)


def _people() -> Callable[[_Event], str]:
    renderer = structlog.dev.ConsoleRenderer(pad_event_to=24, colors=has_colours())

    def rendered(event: _Event) -> str:
        # Only the renderer may add colours, not the content of an event.
        line = {key: shown(value if isinstance(value, str) else repr(value)) for key, value in event.items()}
        return str(renderer(None, event["level"], {**line, "timestamp": _iso(event)}))

    return rendered


def _iso(event: _Event) -> str:
    at: datetime = event["timestamp"]
    return at.isoformat().replace("+00:00", "Z")


# stderr: a stuck reader must not hold up the threads that log
# --------------------------------------------------------------------------------------------------------------------


class Plain:
    """A stderr that waits: files take everything at once, and so do terminals, unless their user has stopped them."""

    def write(self, line: str) -> bool:
        sys.stderr.write(line)
        sys.stderr.flush()
        return True


class Unwaiting:
    """A stderr that never waits. send: writes some bytes at once, and returns how many; raises OSError if none."""

    def __init__(self, send: Callable[[bytes], int]) -> None:
        self._send = send
        self._rest = b""

    def write(self, line: str) -> bool:
        self._rest = self._left_of(self._rest)
        if self._rest:
            return False
        whole = line.encode(errors="backslashreplace")
        left = self._left_of(whole)
        if len(left) == len(whole):
            return False
        self._rest = left
        return True

    def _left_of(self, data: bytes) -> bytes:
        try:
            while data:
                data = data[self._send(data) :]
        except OSError:
            pass  # it is full, or its reader has gone: neither may end the thread that logs
        return data


def _opened() -> Stderr:
    """This process's stderr. The descriptor itself is not made non-blocking: other processes write to it too."""
    try:
        descriptor = sys.stderr.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return Plain()  # a test's, or closed
    if stat.S_ISSOCK(mode):
        return Unwaiting(lambda data: _sent(descriptor, data))
    if not stat.S_ISFIFO(mode):
        return Plain()
    try:
        # The same pipe, opened again: this descriptor may be non-blocking.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # The pipe belongs to another user, as in a container.
        return Unwaiting(lambda data: _written_if_ready(descriptor, data))
    return Unwaiting(lambda data: os.write(own, data))


def _sent(descriptor: int, data: bytes) -> int:
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptor)
    try:
        return borrowed.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    finally:
        borrowed.detach()


def _written_if_ready(descriptor: int, data: bytes) -> int:
    """Writes if the descriptor is ready. It still waits if another process takes the last room in between."""
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    if not ready.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[:_WRITE_MAX])
