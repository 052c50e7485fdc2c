"""An application whose requests are traced. Separate from `App`, so that traces cost nothing if they are off."""

from typing import Any, Final

from starlette.types import Receive, Scope, Send

from feedstore.http.app import App
from feedstore.http.incoming import REQUEST_ID
from feedstore.tracing import Tracer, Value

_FAILED_FROM: Final = 500


class TracedApp:
    """Traces each request to an endpoint: as part of the trace in its `traceparent`, if it has one, else as a step that
    may begin a trace. Health checks, metrics and the files of the site are not traced.

    A path has ids of people, so spans have only its template, which OpenTelemetry's conventions call the route.
    """

    def __init__(self, app: App, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self.drain = app.drain
        self.refused = app.refused
        self.close = app.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        route = self._app.route(scope["path"], method)
        if route is None:
            await self._app(scope, receive, send)
            return
        request_id = self._app.request_id(dict(scope["headers"]))
        about: dict[str, Value] = {
            "http.request.method": method,
            "http.route": route,
            "url.scheme": scope["scheme"],
            "network.protocol.version": scope["http_version"],
        }
        begun = self._tracer.trace(
            f"{method} {route}", about, kind="server", parent=_parent(scope), request_id=request_id
        )
        with begun as span:

            async def told(message: Any) -> None:
                if span.is_recorded and message["type"] == "http.response.start":
                    status = message["status"]
                    span.note({"http.response.status_code": status})
                    if status >= _FAILED_FROM:
                        span.failed(str(status))
                await send(message)

            await self._app({**scope, REQUEST_ID: request_id}, receive, told)


def _parent(scope: Scope) -> str | None:
    """The `traceparent` of a request; None unless there is exactly one, as the standard demands."""
    given = [value for name, value in scope["headers"] if name == b"traceparent"]
    return given[0].decode("latin-1") if len(given) == 1 else None
