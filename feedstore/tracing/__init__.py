"""Traces: what became of one request or one action, across threads and processes. Off, it costs nothing.

`otel` implements the port with OpenTelemetry, which is an extra; nothing else imports that. docs/traces.md says what
there is to see.
"""

from feedstore.tracing.port import UNTRACED, Context, Key, Kind, Span, Tracer, Value

__all__ = ["UNTRACED", "Context", "Key", "Kind", "Span", "Tracer", "Value"]
