"""Turns the configuration into a tracer."""

from feedstore.app.config import Config
from feedstore.errors import needing_extra
from feedstore.tracing import UNTRACED, Tracer


def open_tracer(config: Config, program: str) -> Tracer:
    """The tracer of a process. Closing it sends the spans that are left. program: the name in its spans.

    Raises ConfigError: the library is missing.
    """
    settings = config.traces
    if settings.endpoint is None:
        return UNTRACED
    with needing_extra("to send traces", "traces"):
        from feedstore.tracing import otel  # noqa: PLC0415 - its library is an extra
    return otel.exporting(settings.endpoint, settings.sample, program, config.queue_scheme)
