"""The port for traces. A *span* is one step; a *trace* is the tree of steps that one request leads to.

The *context* of a span travels with an action, so that each stage that works on the action continues its trace. Only a
span that is recorded has a context: actions that are not sampled carry no extra bytes.

Names and attributes are those of OpenTelemetry's conventions where there are any, and `feedstore.` otherwise. They
never tell who or what an action is about: no ids of people, pins or boards, no texts of errors, no addresses.
"""
# ruff: noqa: ARG002 - a tracer that is off looks at nothing

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, TypeVar

Context = str
"""`traceparent` of W3C's Trace Context: version, trace, span, flags. If the trace has a request id, a blank and that id
follow.
"""
Key = Hashable
"""What a context of a lot is filed under: an action, or the context itself."""
Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | int | float | bool

T = TypeVar("T")

NOTHING: Final[Mapping[str, Value]] = {}


class Span:
    """A step that has begun. Thread-safe. This one is not recorded: its calls do nothing."""

    is_recorded = False

    def note(self, attributes: Mapping[str, Value]) -> None: ...

    def failed(self, kind: str) -> None:
        """Marks the step as failed. kind: one of a few words, such as the name of an error's class; not its text."""

    def end(self) -> None:
        """Ends a span of `Tracer.begun`; all others end by themselves."""


UNRECORDED: Final = Span()
_NO_SPAN: Final[AbstractContextManager[Span]] = nullcontext(UNRECORDED)
_NO_LOT: Final[AbstractContextManager[None]] = nullcontext()
_NO_CONTEXTS: Final[Mapping[Key, Context]] = {}
_NO_IDS: Final[Mapping[str, str]] = {}


class Tracer:
    """The port, and a tracer for traces that are off. Thread-safe. The *current* span is that of the block in which a
    thread, or a task of asyncio, is.

    No call waits for anything or raises errors of its own. What cannot be sent is dropped.
    """

    def trace(
        self,
        name: str,
        attributes: Mapping[str, Value] = NOTHING,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        request_id: str | None = None,
    ) -> AbstractContextManager[Span]:
        """A step that may begin a trace. If `parent` is a context, the step belongs to it; else to the current span, if
        there is one. Otherwise it begins a trace, which is recorded as often as the configuration says. An Exception
        that leaves the block marks the step as failed.

        parent: what a client sent; ignored if it is no context. request_id: the request's id for its client and the
        log, 1 to 64 of A-Z a-z 0-9 . _ : -. It travels with the contexts that are made in the block.
        """
        return _NO_SPAN

    def part(
        self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        """A step of the current span. Does nothing if there is no current span, or it is not recorded."""
        return _NO_SPAN

    def begun(self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal") -> Span:
        """A step of the current span, like `part`, that its caller ends, on any thread. It is never the
        current span.
        """
        return UNRECORDED

    def lot(
        self,
        name: str,
        contexts: Mapping[Key, Context],
        messages: int,
        attributes: Mapping[str, Value] = NOTHING,
        *,
        kind: Kind = "consumer",
    ) -> AbstractContextManager[None]:
        """One step for many messages. contexts: of those that carry one. messages: how many there are.

        With one context, the step belongs to its trace. With several, it begins a new trace with a link to each, and
        each of their traces gets a span with a link to it. This is done for `otel.LINKS_MAX` of them; the others are
        only passed on. Without contexts there is no span.
        """
        return _NO_LOT

    def onward(self) -> Mapping[Key, Context]:
        """The trace contexts for messages that the current lot produces, by the keys of the lot. Often empty."""
        return _NO_CONTEXTS

    def context(self) -> Context | None:
        """The context of the current span, if it is recorded."""
        return None

    def carried(self, messages: Iterable[bytes]) -> Mapping[Key, Context]:
        """The contexts that occur anywhere in some messages, each as its own key; the messages are searched, not
        decoded. At most `otel.LINKS_MAX` and one more.
        """
        return _NO_CONTEXTS

    def bound(self, call: Callable[[], T]) -> Callable[[], T]:
        """A call that can be made on another thread as part of the current span."""
        return call

    def ids(self) -> Mapping[str, str]:
        """The ids for a line of the log: trace_id and span_id of the current span, and request_id if its trace has one.
        Empty if the span is not recorded.
        """
        return _NO_IDS

    def close(self) -> None:
        """Sends the spans that are left, for a bounded time. Spans that end later are dropped."""


UNTRACED: Final = Tracer()
