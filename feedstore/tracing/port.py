"""The port for traces. A *span* is one step, a *trace* the tree of steps that one request leads to.

What travels with an action is the *context* of a span: who works on the action continues its trace. Only a span
that is recorded has one, so that what is not sampled costs no bytes.

Names and attributes are those of OpenTelemetry's conventions where there are any, and `feedstore.` otherwise. None says
who or what an action is about: no ids of people, pins or boards, no texts of errors, no addresses.
"""
# ruff: noqa: ARG002 - a tracer that is off looks at nothing

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, TypeVar

Context = str
"""`traceparent` of W3C's Trace Context: version, trace, span, flags. If the trace has the id of a request, a blank and
that id follow.
"""
Key = Hashable
"""A part of a lot: an action, or a context itself."""
Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | int | float | bool

T = TypeVar("T")

NOTHING: Final[Mapping[str, Value]] = {}


class Span:
    """A step that has begun. Thread-safe. This one is not recorded: its calls do nothing."""

    is_recorded = False

    def note(self, attributes: Mapping[str, Value]) -> None: ...

    def failed(self, kind: str) -> None:
        """It failed. kind: a word of a few, such as the name of an error's class; not its text."""

    def end(self) -> None:
        """For a span of `Tracer.begun`; the others end by themselves."""


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
        """A step with which a trace may begin. It belongs to `parent`, if that is a context; else to the current span;
        else it begins a trace, which is recorded as often as the configuration says. An Exception that leaves the block
        is a failure of the step.

        parent: what a client sent; whatever is no context is ignored. request_id: 1 to 64 of A-Z a-z 0-9 . _ : - by
        which its client and the log know the request. It travels with the contexts that are made in the block.
        """
        return _NO_SPAN

    def part(
        self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        """A part of the current span, as `trace`; nothing if that is not recorded, or there is none."""
        return _NO_SPAN

    def begun(self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal") -> Span:
        """The same, ended by its caller, on any thread. It is current nowhere."""
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

        With one context, the step belongs to its trace. With several, it begins a trace of its own with a link to each,
        and in each of their traces is a span with a link to it; so for `otel.LINKS_MAX` of them, and the others are
        only passed on. Without any there is no span.
        """
        return _NO_LOT

    def onward(self) -> Mapping[Key, Context]:
        """What the messages shall carry that the messages of the current lot lead to, by its keys. Often empty."""
        return _NO_CONTEXTS

    def context(self) -> Context | None:
        """That of the current span, if it is recorded."""
        return None

    def carried(self, messages: Iterable[bytes]) -> Mapping[Key, Context]:
        """The contexts that are anywhere in some messages, each by itself, without reading these: `otel.LINKS_MAX` of
        them, and one more, at most.
        """
        return _NO_CONTEXTS

    def bound(self, call: Callable[[], T]) -> Callable[[], T]:
        """A call that can be made on another thread as part of the current span."""
        return call

    def ids(self) -> Mapping[str, str]:
        """For a line of the log: trace_id and span_id of the current span, and request_id if its trace has one. Empty
        if the span is not recorded.
        """
        return _NO_IDS

    def close(self) -> None:
        """Sends what is left, for a bounded time. Whatever ends later is dropped."""


UNTRACED: Final = Tracer()
