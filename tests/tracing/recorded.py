"""Spans as tests see them: kept in memory, and a home whose worker and server run in this process."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from feedstore.app import config as configuration
from feedstore.app import http as http_wiring
from feedstore.app.config import Config
from feedstore.app.services import services_on
from feedstore.http import listening
from feedstore.tracing import Tracer, otel
from tests.http.http_servers import Client, FakeQueues, client_of
from tests.replicas import fakes
from workers.app import until, wiring
from workers.app.metrics import ALL
from workers.following.ports import Ports


class Spans:
    """What a tracer has recorded. tracer: its."""

    def __init__(self, sample: float = 1.0) -> None:
        self._kept = InMemorySpanExporter()
        made = otel.provider("test")
        made.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer: Tracer = otel.OpenTelemetry(made, sample, "embedded")

    def all(self) -> list[ReadableSpan]:
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one of this name, once it has ended: that of a request ends when its client has the answer."""
        fakes.until(lambda: bool(self.named(name)), f"the end of the span {name}")
        [span] = self.named(name)
        return span

    def clear(self) -> None:
        self._kept.clear()

    def tree(self, root: ReadableSpan) -> list[str]:
        """The names of a trace's spans under one of them, each line two blanks deeper than its parent's, children by
        name.
        """
        children = [each for each in self.all() if each.parent is not None and each.parent.span_id == id_of(root)]
        lines = [f"  {line}" for child in sorted(children, key=label) for line in self.tree(child)]
        return [label(root), *lines]


def label(span: ReadableSpan) -> str:
    cluster = span.attributes.get("feedstore.cluster")
    return span.name if cluster is None else f"{span.name} [{cluster}]"


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    return span.context.trace_id


def linked(span: ReadableSpan) -> set[int]:
    """The spans that a span links to."""
    return {link.context.span_id for link in span.links}


@dataclass
class Home:
    """A home in files. The server does not work by itself: `work` does, until everything has landed."""

    config: Config
    ports: Ports
    client: Client

    def work(self) -> None:
        landed = until.Idle(self.ports, self.config, lambda: self.ports.replicas)
        wiring.worker(self.ports, self.config).run(landed)


@contextmanager
def home_of(path: Path, tracer: Tracer, text: str = configuration.DEFAULT) -> Iterator[Home]:
    path.mkdir(exist_ok=True)
    config = configuration.parse(path, text, {})
    wiring.create(config)
    with ExitStack() as stack:
        ports = stack.enter_context(closing(wiring.open_ports(config, "write", alone=True, tracer=tracer)))
        services = stack.enter_context(services_on(config, ports.follows, ports.replicas.values(), ports.clock, tracer))
        app = http_wiring.open_app(
            config, {}, services, FakeQueues(), owns_clusters=True, definitions=ALL, tracer=tracer
        )
        listener = listening.listen("127.0.0.1", 0)
        server = stack.enter_context(closing(http_wiring.server(config, app, listener, tracer)))
        server.start()
        yield Home(config, ports, stack.enter_context(client_of(server.address)))


def names(spans: Sequence[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]
