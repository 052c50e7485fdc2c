"""Where structured logs go and how they look. Event names are stable: docs/operating.md lists them."""

import atexit
import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final

import msgspec
import structlog

TOGETHER_S: Final = 0.1
"""How long a line waits for others at most, so that a burst of them is made and written at once."""
WAITING_MAX: Final = 1_024
"""So many lines wait at most."""
WRITE_CHARS_MAX: Final = 4_096
"""As much as a pipe takes in one piece (PIPE_BUF; lines that wait are ASCII as a rule)."""

_Event = MutableMapping[str, Any]
"""What a line says. timestamp: a datetime."""
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode

Later = Callable[[float, Callable[[], None]], None]


class _Later:
    """Calls in so many seconds, one after the other, on a thread that it starts when it is first needed."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[float, Callable[[], None]]] = SimpleQueue()
        self._is_running = False

    def __call__(self, after_s: float, call: Callable[[], None]) -> None:
        if not self._is_running:
            try:
                threading.Thread(target=self._run, name="log", daemon=True).start()
            except RuntimeError:  # the machine has no thread left, or the process is about to end
                call()
                return
            self._is_running = True
        self._calls.put((after_s, call))

    def _run(self) -> None:
        while True:
            after_s, call = self._calls.get()
            time.sleep(after_s)
            with contextlib.suppress(OSError, ValueError):  # stderr is full or closed: there is nobody to tell
                call()


class Lines:
    """Writes events as lines to stderr, after whatever is drawn on its last line was taken away. Thread-safe.

    A warning or an error is written at once, and so is any event that comes alone. Where events follow on each other
    within `TOGETHER_S` they wait that long for more, and their lines are made and written together: one by one they
    cost a server that logs each request several times as much. Every write is of whole lines and small enough for a
    pipe to take it in one piece: processes that share a stderr would put their lines into each other's otherwise.

    What waits is written by `flush`. A process that is killed loses it. What an event holds must not change meanwhile.
    """

    def __init__(
        self,
        rendered: Callable[[_Event], str],
        clear_line: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        later: Later | None = None,
    ) -> None:
        self._rendered = rendered
        self._clear_line = clear_line
        self._clock = clock
        self._later = later or _Later()
        # A handler of a signal may log while its thread does. Who only adds an event waits for no write.
        self._lock, self._writing = threading.RLock(), threading.RLock()
        self._waiting: list[_Event] = []
        self._is_due = False
        self._written_s = float("-inf")

    def info(self, event: _Event) -> None:
        with self._lock:
            self._waiting.append(event)
            if self._is_due and len(self._waiting) < WAITING_MAX:
                return
            waits = not self._is_due and self._clock() - self._written_s < TOGETHER_S
            if waits:
                self._is_due = True
        if waits:
            self._later(TOGETHER_S, self._flush_late)
        else:
            self.flush()

    def error(self, event: _Event) -> None:
        with self._lock:
            self._waiting.append(event)
        self.flush()

    # Loggers call what is named like the level.
    debug = info
    warning = critical = error

    def flush(self) -> None:
        with self._writing:
            with self._lock:
                events, self._waiting = self._waiting, []
                if not events:
                    return
                self._written_s = self._clock()
            piece = ""
            for event in events:
                line = self._rendered(event) + "\n"
                if piece and len(piece) + len(line) > WRITE_CHARS_MAX:
                    self._write(piece)
                    piece = ""
                piece += line
            self._write(piece)

    def _flush_late(self) -> None:
        with self._lock:
            self._is_due = False
        self.flush()

    def _write(self, text: str) -> None:
        self._clear_line()
        sys.stderr.write(text)
        sys.stderr.flush()


def clear_line() -> None:
    """Takes away what a terminal shows on its last line, whoever drew it."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def configure(level: str, clear: Callable[[], None] = clear_line) -> Lines:
    """Logs to stderr: for people where that is a terminal, JSON lines elsewhere. clear: called before each write."""
    lines = Lines(_people() if sys.stderr.isatty() else _json, clear)
    atexit.register(lines.flush)
    structlog.configure(
        wrapper_class=_loggers(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    return lines


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
        return _encode(event).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):
        # Slower, and takes everything: a file's name in no encoding, for one.
        return json.dumps({**event, "timestamp": _iso(event)}, default=repr)


def _people() -> Callable[[_Event], str]:
    renderer = structlog.dev.ConsoleRenderer(pad_event_to=24)
    return lambda event: str(renderer(None, event["level"], {**event, "timestamp": _iso(event)}))


def _iso(event: _Event) -> str:
    at: datetime = event["timestamp"]
    return at.isoformat().replace("+00:00", "Z")
