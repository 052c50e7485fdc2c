"""Where structured logs go and how they look. Event names are stable: docs/operating.md lists them."""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import structlog


def _json(event: Any, default: Callable[[Any], Any]) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=default).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(event, default=default)  # slower, and takes everything: a file's name in no encoding, for one


class _Stream:
    """stderr, after whatever is drawn on its last line was taken away."""

    def __init__(self, clear_line: Callable[[], None]) -> None:
        self._clear_line = clear_line

    def write(self, text: str) -> int:
        self._clear_line()
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def clear_line() -> None:
    """Takes away what a terminal shows on its last line, whoever drew it."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def configure(level: str, clear: Callable[[], None] = clear_line) -> None:
    """Logs to stderr: for people where that is a terminal, JSON lines elsewhere. clear: called before each line."""
    stream: Any = _Stream(clear)
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    if sys.stderr.isatty():
        processors.append(structlog.dev.ConsoleRenderer(pad_event_to=24))
    else:
        processors.append(structlog.processors.JSONRenderer(_json))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # A line and its end in one write: the processes of `feedctl work` share their stderr, and two writes
        # let another's line come between.
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
