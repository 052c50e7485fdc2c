"""A receiver of OTLP over HTTP: it keeps what it gets, or it hangs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """address: for feed.toml. asked: how many requests have come."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers = threading.Event()
        self._answers.set()
        self._got: list[tuple[str, Span]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.asked += 1
                receiver._answers.wait()
                receiver._take(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def hang(self) -> None:
        """From now on it takes requests, and answers none."""
        self._answers.clear()

    def answer(self) -> None:
        """From now on it answers, what it has taken too."""
        self._answers.set()

    def spans(self) -> list[tuple[str, Span]]:
        """Each with the service that it is from."""
        return list(self._got)

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self._got += [(named["service.name"], span) for span in scope.spans]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver._server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answer()
        receiver._server.shutdown()
        receiver._server.server_close()
        thread.join()
