"""An application whose requests are traced. Apart from `App`, so that they cost nothing if traces are off."""

from typing import Any, Final

from starlette.types import Receive, Scope, Send

from feedstore.http.app import App
from feedstore.http.incoming import REQUEST_ID
from feedstore.tracing import Tracer, Value

_FAILED_FROM: Final = 500


class TracedApp:
    """Each request to an endpoint is a step with which a trace may begin: in that of its `traceparent`, if it has one.
    What is for machines (health, metrics) and the files of the site are not traced.

    A path names people, so spans have only its route, as OpenTelemetry's conventions call it.
    """

    def __init__(self, app: App, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self.drain = app.drain
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
    """None unless there is exactly one: as the standard has it."""
    given = [value for name, value in scope["headers"] if name == b"traceparent"]
    return given[0].decode("latin-1") if len(given) == 1 else None
