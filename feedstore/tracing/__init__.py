"""Traces: what became of one request or one action, across threads and processes. They cost nothing if they are off.

`otel` implements the port with OpenTelemetry, which is an extra; only that module imports it. docs/traces.md describes
the traces.
"""

from feedstore.tracing.port import UNTRACED, Context, Key, Kind, Span, Tracer, Value

__all__ = ["UNTRACED", "Context", "Key", "Kind", "Span", "Tracer", "Value"]
