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
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec
import structlog

from feedstore.tracing import UNTRACED, Tracer
from workers.app import hints
from workers.app.hints import shown, shown_json

_Event = MutableMapping[str, Any]
"""The content of a line. timestamp: a datetime."""
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode
_WRITE_MAX: Final = 4_096
"""How many bytes a pipe takes whole, whatever else is written to it meanwhile, and without waiting if it can be written
(PIPE_BUF of Linux).
"""


class Stderr(Protocol):
    """Used under a lock."""

    def write(self, line: str) -> bool:
        """False if the line was dropped. One that was written in part is ended before the next one."""
        ...


class Lines:
    """Writes each event as a line to stderr, after whatever is drawn on its last line was taken away. Thread-safe.

    A line and its end are one write: processes that share a stderr would put their lines into each other's otherwise.
    Lines that stderr does not take are dropped, and the next one that it takes is preceded by one that says how many.

    What the callbacks of an event loop say in one of its turns is written together, before the next turn. Each write
    gives the interpreter away, and a server that wrote a line for each page waited for it that often.
    """

    def __init__(self, rendered: Callable[[_Event], str], clear_line: Callable[[], None], stderr: Stderr) -> None:
        self._rendered = rendered
        self._clear_line = clear_line
        self._stderr = stderr
        self.traced: Callable[[], Mapping[str, str]] | None = None
        """The ids of the trace that a line belongs to, if there is one."""
        self._dropped = 0
        self._said: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that will write what was said."""
        self._lock = threading.RLock()  # a handler of a signal may log while its thread does

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
            for lines in _writes(said):
                self._clear_line()
                # Both or neither: the short one would find room again and again, and the others none.
                before = self._rendered(_dropped(self._dropped)) + "\n" if self._dropped else ""
                taken = self._stderr.write(before + "".join(lines))
                self._dropped = 0 if taken else self._dropped + len(lines)

    # Loggers call what is named like the level.
    debug = warning = error = critical = info


def clear_line() -> None:
    """Takes away what a terminal shows on its last line."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def configure(level: str, clear: Callable[[], None] = clear_line) -> None:
    """Logs to stderr: for people where that is a terminal, JSON lines elsewhere. clear: called before each write."""
    lines = Lines(_people() if sys.stderr.isatty() else _json, clear, _opened())
    structlog.configure(
        wrapper_class=_loggers(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


def name_traces(tracer: Tracer) -> None:
    """From now on, lines that are logged in a span carry its trace_id and span_id. If traces are off, nothing is
    asked of them.
    """
    lines = structlog.get_config()["logger_factory"]()
    if tracer is not UNTRACED and isinstance(lines, Lines):
        adopt("opentelemetry")  # what it cannot send
        lines.traced = tracer.ids


def adopt(*names: str) -> None:
    """Has what libraries log under these names, from warnings on, be lines like all others: `library.logged`."""
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
    """This thread's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _writes(lines: Iterable[str]) -> Iterator[list[str]]:
    """As many lines at once as a pipe takes whole."""
    found: list[str] = []
    size = 0
    for line in lines:
        number = len(line.encode(errors="backslashreplace"))
        if found and size + number > _WRITE_MAX:
            yield found
            found, size = [], 0
        found.append(line)
        size += number
    if found:
        yield found


def _dropped(count: int) -> _Event:
    return {"event": "log.dropped", "count": count, "level": "warning", "timestamp": datetime.now(UTC)}


def _loggers(least: int) -> type[structlog.BoundLoggerBase]:
    """The class of all loggers. Those that structlog makes walk through a chain of processors, which costs a line two
    to three times what it costs in one step. least: the lowest level that is logged.
    """

    def at(level: str, *, traceback: bool = False) -> Callable[..., None]:
        def log(self: structlog.BoundLoggerBase, event: str, **values: object) -> None:
            line: _Event = {"event": event, **self._context, **values, "level": level, "timestamp": datetime.now(UTC)}
            if traceback:
                line = structlog.processors.format_exc_info(self, level, {**line, "exc_info": True})
            getattr(self._logger, level)(line)

        return log

    def nothing(self: structlog.BoundLoggerBase, event: str, **values: object) -> None:
        """Below the level."""

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
        # Slower, and takes everything: a file's name in no encoding, for one.
        return json.dumps({**event, "timestamp": _iso(event)}, default=repr)


def _people() -> Callable[[_Event], str]:
    renderer = structlog.dev.ConsoleRenderer(pad_event_to=24)

    def rendered(event: _Event) -> str:
        # The renderer adds colours of its own; what an event says must not.
        line = {key: shown(value if isinstance(value, str) else repr(value)) for key, value in event.items()}
        return str(renderer(None, event["level"], {**line, "timestamp": _iso(event)}))

    return rendered


def _iso(event: _Event) -> str:
    at: datetime = event["timestamp"]
    return at.isoformat().replace("+00:00", "Z")


# stderr: a reader that is stuck must not hold what logs
# --------------------------------------------------------------------------------------------------------------------


class Plain:
    """Waits: files and terminals take everything at once, or are looked at by the one who stopped them."""

    def write(self, line: str) -> bool:
        sys.stderr.write(line)
        sys.stderr.flush()
        return True


class Unwaiting:
    """send: writes some of what it is given, at once, and says how many bytes; raises OSError if none."""

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
            pass  # it is full, or its reader has gone, and both are no reason to end what logs
        return data


def _opened() -> Stderr:
    """This process's stderr. It is not made non-blocking itself: other processes write to it too."""
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
        # The same pipe, opened again: this one may be non-blocking.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # It belongs to another user, as in a container.
        return Unwaiting(lambda data: _written_if_ready(descriptor, data))
    return Unwaiting(lambda data: os.write(own, data))


def _sent(descriptor: int, data: bytes) -> int:
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptor)
    try:
        return borrowed.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    finally:
        borrowed.detach()


def _written_if_ready(descriptor: int, data: bytes) -> int:
    """It waits nevertheless if another process takes the last room in between."""
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    if not ready.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[:_WRITE_MAX])
