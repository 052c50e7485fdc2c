"""The ASGI application: routes, what stands around every request, and what becomes of errors."""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from feedstore.serving.http import description, incoming, metrics, problems, site
from feedstore.serving.http.endpoints import ENDPOINTS, Api, Asked, Endpoint
from feedstore.serving.http.metrics import Metrics
from feedstore.serving.http.problems import ProblemError
from feedstore.serving.http.running import Runner
from feedstore.serving.http.tokens import Access
from feedstore.serving.http.wire import Health
from feedstore.serving.queues import QueuesUnavailableError

_log = structlog.get_logger()

READY_AGAIN_S: Final = 1.0
"""How long an answer to /readyz holds: anybody may ask, and each answer asks a cluster and the follow store."""

_NAME, _ERROR = "feed.endpoint", "feed.error"
"""Where a request's scope says which endpoint answered, and what the log should know of a failure."""

_JSON: Final = "application/json"
_ANSWER_HEADERS: Final = {"cache-control": "no-store", "content-type": _JSON}
_encode: Final = msgspec.json.Encoder().encode

_NOT_READY: Final[tuple[type[Exception], ...]] = (*problems.EXPECTED, ProblemError)

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Bounds:
    """deadline_s: how long a request may take, from its head on. body_s: how long its body may take to arrive."""

    deadline_s: float
    body_s: float


class App:
    """An ASGI application on a service.

    pages: runs what reads clusters only. calls: runs everything else. access: decides who may do what.
    """

    def __init__(self, api: Api, access: Access, pages: Runner, calls: Runner, bounds: Bounds) -> None:
        self._api = api
        self._access = access
        self._pages = pages
        self._calls = calls
        self._bounds = bounds
        self._metrics = Metrics()
        self._draining = False
        self._ready = _Ready(lambda: self._run(api.service.answers))
        routed = Starlette(
            routes=list(self._routes()),
            exception_handlers={HTTPException: _not_routed},  # type: ignore[dict-item]  # wider than this kind
        )
        routed.router.redirect_slashes = False  # a path is right or it is not
        self._app: ASGIApp = routed

    def drain(self) -> None:
        """From now on this says that it is not ready; it goes on answering. Safe from any thread."""
        self._draining = True

    def close(self) -> None:
        self._pages.close()
        self._calls.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Names the request, answers it, and notes it."""
        began_s = time.monotonic()
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = incoming.request_id(given) or secrets.token_hex(8)
        scope["state"] = {"request_id": request_id, "began_s": began_s}
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
                message["headers"].append((b"x-content-type-options", b"nosniff"))
            await send(message)

        self._metrics.began()
        try:
            await self._app(scope, receive, named)
        finally:
            endpoint, method = scope.get(_NAME, "none"), scope["method"]
            took_s = time.monotonic() - began_s
            known = method if method in {"GET", "HEAD", "POST", "DELETE"} else "other"
            self._metrics.ended(endpoint, known, status, took_s)
            error = scope.get(_ERROR)
            _log.info(
                "http.request",
                request_id=request_id,
                endpoint=endpoint,
                method=known,
                status=status,
                took_ms=round(1_000 * took_s, 2),
                **({} if error is None else {"error": error}),
            )

    # Routes
    # -----------------------------------------------------------------------------------------------------------------

    def _routes(self) -> Iterable[Route]:
        methods: dict[str, dict[str, Handler]] = defaultdict(dict)
        for endpoint in ENDPOINTS:
            methods[endpoint.path][endpoint.method] = self._answers(endpoint)
        for path, name, handler in (
            ("/healthz", "healthz", self._healthz),
            ("/readyz", "readyz", self._readyz),
            ("/metrics", "metrics", self._metrics_text),
            ("/openapi.json", "openapi", self._openapi),
        ):
            methods[path]["GET"] = _guarded(name, handler)
        for path, asset in site.assets().items():
            methods[path]["GET"] = _guarded("site", partial(_asset, asset))
        for path, by_method in methods.items():
            yield Route(path, _by_method(by_method), methods=list(by_method))

    def _answers(self, endpoint: Endpoint[Any, Any]) -> Handler:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        call = endpoint.call

        async def answer(request: Request) -> Response:
            headers = request.headers
            self._access.refuse(endpoint.scope, headers.get("authorization"), headers.get("host"))
            deadline_s = request.state.began_s + self._bounds.deadline_s
            ids = incoming.ids(request.path_params)
            query = incoming.query(request.scope["query_string"], endpoint.query)
            body = None if decoder is None else await incoming.body(request, decoder, self._bounds.body_s)
            asked: Asked[Any, Any] = Asked(ids, query, body, headers.get("idempotency-key"), deadline_s)
            runner = self._pages if endpoint.is_page(query) else self._calls
            found = await runner.run(partial(call, self._api, asked), deadline_s)
            return Response(_encode(found), headers=_ANSWER_HEADERS)

        return _guarded(endpoint.name, answer)

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        return Response(_encode(Health()), headers=_ANSWER_HEADERS)

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        if self._draining:
            raise ProblemError(problems.DRAINING, "ask another instance")
        await self._ready()
        return Response(_encode(Health()), headers=_ANSWER_HEADERS)

    async def _metrics_text(self, request: Request) -> Response:
        self._access.refuse("read", request.headers.get("authorization"), request.headers.get("host"))
        try:
            queues = await self._run(self._api.queues.state)
        except QueuesUnavailableError:
            queues = None
        text = self._metrics.text(self._api.service, queues)
        return Response(text, headers={**_ANSWER_HEADERS, "content-type": metrics.MEDIA_TYPE})

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        return Response(description.document(), headers={"content-type": _JSON})

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._calls.run(call, time.monotonic() + self._bounds.deadline_s)


class _Ready:
    """Raises what `ask` raises, which is asked at most once in `READY_AGAIN_S`, whoever wants to know."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._asked_s = float("-inf")
        self._error: Exception | None = None

    async def __call__(self) -> None:
        async with self._lock:
            if time.monotonic() - self._asked_s >= READY_AGAIN_S:
                self._error = None
                try:
                    await self._ask()
                except _NOT_READY as error:
                    self._error = error
                self._asked_s = time.monotonic()
        if self._error is not None:
            raise self._error


def _guarded(name: str, handler: Handler) -> Handler:
    """Answers with a problem where `handler` raises."""

    async def guarded(request: Request) -> Response:
        request.scope[_NAME] = name
        try:
            return await handler(request)
        except ProblemError as error:
            return _refusal(request, error)
        except problems.EXPECTED as error:
            return _refusal(request, problems.of(error))
        except Exception as error:  # noqa: BLE001 - nothing that a caller sends may end a connection unanswered
            _log.exception("http.failed", request_id=request.state.request_id, endpoint=name, error=str(error))
            return _refusal(request, ProblemError(problems.INTERNAL, "it is in the server's log, by its request_id"))

    return guarded


def _refusal(request: Request, error: ProblemError) -> Response:
    kind = error.kind.name if not error.cause else f"{error.kind.name}: {error.cause}"
    request.scope[_ERROR] = kind
    document = error.document(request.state.request_id)
    headers = {"cache-control": "no-store", "content-type": problems.MEDIA_TYPE, **error.headers}
    return Response(document, error.kind.status, headers=headers)


async def _not_routed(request: Request, error: HTTPException) -> Response:
    if error.status_code == problems.METHOD_NOT_ALLOWED.status:
        return _refusal(request, ProblemError(problems.METHOD_NOT_ALLOWED, "", headers=error.headers))
    return _refusal(request, ProblemError(problems.NOT_FOUND, "see /openapi.json"))


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    if len(handlers) == 1:
        return next(iter(handlers.values()))

    async def chosen(request: Request) -> Response:
        return await handlers[request.method](request)

    return chosen


async def _asset(asset: site.Asset, request: Request) -> Response:
    headers = {**site.HEADERS, "content-type": asset.media_type, "etag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers)
