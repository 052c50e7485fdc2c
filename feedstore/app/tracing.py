"""Turns the configuration into a tracer."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from feedstore.app.config import Config
from feedstore.errors import MissingExtraError
from feedstore.tracing import UNTRACED, Tracer


@contextmanager
def tracing(config: Config, program: str) -> Iterator[Tracer]:
    """The tracer of a process, which sends what is left at the end. program: whose spans these are.

    Raises ConfigError: the library is missing.
    """
    with closing(open_tracer(config, program)) as tracer:
        yield tracer


def open_tracer(config: Config, program: str) -> Tracer:
    """The same, which its caller closes."""
    settings = config.traces
    if settings.endpoint is None:
        return UNTRACED
    try:
        from feedstore.tracing import otel  # noqa: PLC0415 - its library is an extra
    except ImportError as error:
        raise MissingExtraError("to send traces", "traces", error) from error
    return otel.exporting(settings.endpoint, settings.sample, program, config.queue_scheme)
