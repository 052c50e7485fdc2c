"""Traces with OpenTelemetry. The only module that imports it."""

import itertools
import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Final, TypeVar

import structlog
from opentelemetry import context as contexts_api
from opentelemetry import trace as api
from opentelemetry.context import Context as Ambient
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from feedstore.tracing.port import NOTHING, UNRECORDED, Context, Key, Kind, Span, Tracer, Value

_log = structlog.get_logger()

LINKS_MAX: Final = 64
"""The most links of a lot's span, and the most traces that get a span for the lot."""
QUEUE_MAX: Final = 4_096
"""The most spans that wait to be sent, some 3 KB each. If there are more, the oldest are dropped."""
EXPORT_S: Final = 5.0
"""How long a receiver may take to answer."""
EVERY_S: Final = 2.0
"""How often spans are sent."""
CLOSE_S: Final = 3.0
"""How long a process waits at its end until its last spans are sent."""

_HEADER: Final = "traceparent"
_CONTEXTS: Final = re.compile(rb'"(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?: [A-Za-z0-9._:-]{1,64})?)"')
_REQUEST_ID: Final = "feedstore.request_id"
_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_NO_CONTEXTS: Final[Mapping[Key, Context]] = MappingProxyType({})
_onward: ContextVar[Mapping[Key, Context]] = ContextVar("feedstore.onward", default=_NO_CONTEXTS)
_request_id: ContextVar[str] = ContextVar("feedstore.request_id", default="")
_unchosen: ContextVar[bool] = ContextVar("feedstore.unchosen", default=False)
_propagator: Final = TraceContextTextMapPropagator()

T = TypeVar("T")


def provider(program: str) -> TracerProvider:
    """Makes a provider of spans that does not send them yet. program: the service name in the spans."""
    resource = Resource.create(
        {
            "service.name": f"feedstore-{program}",
            "service.version": version("feedstore"),
            "service.instance.id": f"{os.uname().nodename}:{os.getpid()}",
        }
    )
    limits = SpanLimits(max_links=LINKS_MAX, max_span_attributes=32, max_events=8, max_span_attribute_length=200)
    # `OpenTelemetry.trace` has already decided which traces are recorded.
    return TracerProvider(sampler=ParentBased(ALWAYS_ON), resource=resource, span_limits=limits, shutdown_on_exit=False)


def exporting(endpoint: str, sample: float, program: str, queue: str) -> "OpenTelemetry":
    """A tracer that sends to an endpoint, from its own thread. The other arguments are those of `provider` and
    `OpenTelemetry`.
    """
    made = provider(program)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S)
    made.add_span_processor(
        BatchSpanProcessor(
            exporter, max_queue_size=QUEUE_MAX, schedule_delay_millis=1_000 * EVERY_S, max_export_batch_size=512
        )
    )
    return OpenTelemetry(made, sample, queue)


class _Unchosen:
    """A step that is not recorded, nor is any part of it."""

    __slots__ = ("_token",)

    def __enter__(self) -> Span:
        self._token = _unchosen.set(True)
        return UNRECORDED

    def __exit__(self, *error: object) -> None:
        _unchosen.reset(self._token)


class _Recorded(Span):
    """A span that is recorded."""

    is_recorded = True

    def __init__(self, span: api.Span) -> None:
        self.span = span

    def note(self, attributes: Mapping[str, Value]) -> None:
        self.span.set_attributes(attributes)

    def failed(self, kind: str) -> None:
        self.span.set_attribute("error.type", kind)
        self.span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        self.span.end()


def _of(span: api.Span) -> Span:
    return _Recorded(span) if span.is_recording() else UNRECORDED


class OpenTelemetry(Tracer):
    """provider: makes the spans, and is shut down with this. sample: the share of requests that are recorded. queue:
    the `messaging.system` of the queue that carries the messages. draw: returns a random number from 0 to 1.
    """

    def __init__(
        self,
        provider: TracerProvider,
        sample: float,
        queue: str,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._provider = provider
        self._sample = sample
        self._draw = draw
        self._tracer = provider.get_tracer("feedstore")
        self._queue = queue

    def trace(
        self,
        name: str,
        attributes: Mapping[str, Value] = NOTHING,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        request_id: str | None = None,
    ) -> AbstractContextManager[Span]:
        ambient = None if parent is None else _read(parent)
        if not self._is_chosen(ambient):
            # The library would still make a span, which takes ten times as long.
            return _Unchosen()
        if request_id is None:
            return self._current(self._started(name, attributes, kind, ambient))
        span = self._started(name, {**attributes, _REQUEST_ID: request_id}, kind, ambient)
        return self._current(span, request_id)

    def _is_chosen(self, ambient: Ambient | None) -> bool:
        """Whether a step is recorded: as its parent is, or else as the current span is. If there is neither, a random
        draw decides, for the step and all its parts.
        """
        context = api.get_current_span(ambient).get_span_context()
        if context.is_valid:
            return context.trace_flags.sampled
        return not _unchosen.get() and self._draw() < self._sample

    @contextmanager
    def part(self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal") -> Iterator[Span]:
        if not api.get_current_span().is_recording():
            yield UNRECORDED
            return
        with self._current(self._started(name, attributes, kind)) as span:
            yield span

    def begun(self, name: str, attributes: Mapping[str, Value] = NOTHING, *, kind: Kind = "internal") -> Span:
        return _of(self._started(name, attributes, kind)) if api.get_current_span().is_recording() else UNRECORDED

    @contextmanager
    def lot(
        self,
        name: str,
        contexts: Mapping[Key, Context],
        messages: int,
        attributes: Mapping[str, Value] = NOTHING,
        *,
        kind: Kind = "consumer",
    ) -> Iterator[None]:
        origins = _origins(contexts.values())
        if not origins:
            yield
            return
        more = {**attributes, "messaging.system": self._queue, "messaging.batch.message_count": messages}
        each: dict[Context, api.Span] = {}
        request_id = ""
        if len(origins) == 1:
            [(context, origin)] = origins.items()
            request_id = _request_id_of(context)
            whole = each[context] = self._started(name, more | _about(context), kind, origin)
        else:
            links = [_link(origin) for origin in origins.values()]
            whole = self._tracer.start_span(name, Ambient(), _KINDS[kind], more, links)
            back = Link(whole.get_span_context())
            for context, origin in origins.items():
                about = more | _about(context)
                each[context] = self._tracer.start_span(name, origin, _KINDS[kind], about, [back])
        mine = {context: _written(span, _request_id_of(context)) for context, span in each.items()}
        token = _onward.set({key: mine.get(context, context) for key, context in contexts.items()})
        try:
            with self._current(whole, request_id):
                yield
        except Exception as error:
            for span in each.values():
                _of(span).failed(type(error).__name__)
            raise
        finally:
            _onward.reset(token)
            for span in each.values():
                if span is not whole:
                    span.end()

    def onward(self) -> Mapping[Key, Context]:
        return _onward.get()

    def context(self) -> Context | None:
        span = api.get_current_span()
        return _written(span, _request_id.get()) if span.get_span_context().trace_flags.sampled else None

    def carried(self, messages: Iterable[bytes]) -> Mapping[Key, Context]:
        found = itertools.chain.from_iterable(map(_CONTEXTS.finditer, messages))
        distinct: dict[Key, Context] = {}
        for match in found:
            context = match[1].decode()
            distinct[context] = context
            if len(distinct) > LINKS_MAX:
                break
        return distinct

    def bound(self, call: Callable[[], T]) -> Callable[[], T]:
        return partial(copy_context().run, call)

    def ids(self) -> Mapping[str, str]:
        context = api.get_current_span().get_span_context()
        if not context.trace_flags.sampled:
            return {}
        ids = {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
        request_id = _request_id.get()
        return {**ids, "request_id": request_id} if request_id else ids

    def close(self) -> None:
        # In a daemon thread, so that the process can end: if a receiver hangs, the library could wait longer than this.
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(CLOSE_S)
        if ending.is_alive():
            _log.warning("traces.not_sent", waited_s=CLOSE_S)

    def _started(
        self, name: str, attributes: Mapping[str, Value], kind: Kind, parent: Ambient | None = None
    ) -> api.Span:
        return self._tracer.start_span(name, parent, _KINDS[kind], attributes)

    @contextmanager
    def _current(self, span: api.Span, request_id: str | None = None) -> Iterator[Span]:
        """Makes a span the current one. request_id: of the request in the block; None leaves it unchanged."""
        token = contexts_api.attach(api.set_span_in_context(span))
        before = None if request_id is None else _request_id.set(request_id)
        taken = _of(span)
        try:
            yield taken
        except Exception as error:
            taken.failed(type(error).__name__)
            raise
        finally:
            contexts_api.detach(token)
            if before is not None:
                _request_id.reset(before)
            span.end()


def _origins(contexts: Iterable[Context]) -> dict[Context, Ambient]:
    """The distinct contexts, decoded, up to as many as a lot may link to. A text that is no context is left out."""
    found: dict[Context, Ambient] = {}
    for context in contexts:
        if context not in found:
            ambient = _read(context)
            if ambient is not None and api.get_current_span(ambient).get_span_context().trace_flags.sampled:
                found[context] = ambient
            if len(found) == LINKS_MAX:
                break
    return found


def _read(context: str) -> Ambient | None:
    """Decodes a context; None if the text is not one, and then the current span counts."""
    found = _propagator.extract({_HEADER: context.partition(" ")[0]}, Ambient())
    return found if api.get_current_span(found).get_span_context().is_valid else None


def _written(span: api.Span, request_id: str) -> Context:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, api.set_span_in_context(span, Ambient()))
    return f"{carrier[_HEADER]} {request_id}" if request_id else carrier[_HEADER]


def _request_id_of(context: Context) -> str:
    """The request id in a context; empty if it has none."""
    return context.partition(" ")[2]


def _about(context: Context) -> dict[str, Value]:
    request_id = _request_id_of(context)
    return {_REQUEST_ID: request_id} if request_id else {}


def _link(origin: Ambient) -> Link:
    return Link(api.get_current_span(origin).get_span_context())
