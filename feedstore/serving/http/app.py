"""The ASGI application: routes, what stands around every request, and what becomes of errors."""

import asyncio
import itertools
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from feedstore.serving.http import description, incoming, metrics, problems, site
from feedstore.serving.http.endpoints import ENDPOINTS, Api, Asked, Endpoint
from feedstore.serving.http.metrics import Metrics
from feedstore.serving.http.problems import ProblemError
from feedstore.serving.http.running import Runner
from feedstore.serving.http.tokens import SCOPES, Access
from feedstore.serving.http.wire import Health, Token
from feedstore.serving.queues import QueuesUnavailableError

_log = structlog.get_logger()

READY_AGAIN_S: Final = 1.0
"""How long an answer to /readyz holds: anybody may ask, and each answer asks a cluster and the follow store."""

_NAME, _BEGAN, _HEADERS = "feed.endpoint", "feed.began", "feed.headers"
"""Where a request's scope says which endpoint answers, when it began, and its headers by name, the last of each."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})
_NO_STORE: Final = (b"cache-control", b"no-store")
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_NONE: Final[Mapping[str, str]] = {}
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
        self._log = _log.bind()
        self._draining = False
        self._ready = _Ready(lambda: self._run(api.service.answers))
        # A path is right or it is not: none is mended.
        self._router = Router(list(self._routes()), redirect_slashes=False)
        self._ids = (f"{number:06x}" for number in itertools.count())
        self._id_prefix = secrets.token_hex(6)

    def drain(self) -> None:
        """From now on this says that it is not ready; it goes on answering. Safe from any thread."""
        self._draining = True

    def close(self) -> None:
        self._pages.close()
        self._calls.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Names the request, answers it, and notes it."""
        began_s = scope[_BEGAN] = time.monotonic()
        headers = scope[_HEADERS] = dict(scope["headers"])
        request_id = incoming.request_id(headers.get(b"x-request-id", b"")) or self._id_prefix + next(self._ids)
        scope["app"] = self  # so that the router raises where it finds nothing
        status = 0
        error: ProblemError | None = None

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += ((b"x-request-id", request_id.encode()), _NOSNIFF)
            await send(message)

        self._metrics.began()
        try:
            try:
                await self._router(scope, receive, named)
            except Exception as raised:  # noqa: BLE001 - nothing that a caller sends may go unanswered
                error = _problem(raised)
                if error.kind is problems.INTERNAL:
                    _log.exception("http.failed", request_id=request_id, endpoint=scope.get(_NAME), error=str(raised))
                await _Answer(error.document(request_id), problems.MEDIA_TYPE, error.kind.status, error.headers)(
                    scope, receive, named
                )
        finally:
            took_s = time.monotonic() - began_s
            endpoint, method = scope.get(_NAME, "none"), scope["method"]
            if method not in _METHODS:
                method = "other"
            self._metrics.ended(endpoint, method, status, took_s)
            more = {} if error is None else {"error": error.for_log()}
            self._log.info(
                "http.request",
                request_id=request_id,
                endpoint=endpoint,
                method=method,
                status=status,
                took_ms=round(1_000 * took_s, 2),
                **more,
            )

    # Routes
    # -----------------------------------------------------------------------------------------------------------------

    def _routes(self) -> Iterable[Route]:
        methods: dict[str, dict[str, ASGIApp]] = defaultdict(dict)
        for endpoint in ENDPOINTS:
            methods[endpoint.path][endpoint.method] = self._answers(endpoint)
        for path, name, handler in (
            ("/healthz", "healthz", self._healthz),
            ("/readyz", "readyz", self._readyz),
            ("/metrics", "metrics", self._metrics_text),
            (description.SCOPES_PATH, "token", self._token),
            ("/openapi.json", "openapi", self._openapi),
        ):
            methods[path]["GET"] = _Named(name, handler)
        for path, asset in site.assets().items():
            methods[path]["GET"] = _Named("site", partial(_asset, asset))
        for path, by_method in methods.items():
            yield Route(path, _ByMethod(by_method), methods=list(by_method))

    def _answers(self, endpoint: Endpoint[Any, Any]) -> ASGIApp:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        call = endpoint.call

        async def answer(request: Request) -> Response:
            headers = request.scope[_HEADERS]
            self._access.refuse(endpoint.scope, headers.get(b"authorization"), headers.get(b"host"))
            deadline_s = request.scope[_BEGAN] + self._bounds.deadline_s
            ids = incoming.ids(request.path_params)
            query = incoming.query(request.scope["query_string"], endpoint.query)
            body = None if decoder is None else await incoming.body(request, decoder, self._bounds.body_s)
            asked: Asked[Any, Any] = Asked(ids, query, body, _text(headers.get(b"idempotency-key")), deadline_s)
            runner = self._pages if endpoint.is_page(query) else self._calls
            found = await runner.run(partial(call, self._api, asked), deadline_s)
            return _Answer(_encode(found))

        return _Named(endpoint.name, answer)

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        return _Answer(_encode(Health()))

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        if self._draining:
            raise ProblemError(problems.DRAINING, "ask another instance")
        await self._ready()
        return _Answer(_encode(Health()))

    async def _metrics_text(self, request: Request) -> Response:
        headers = request.scope[_HEADERS]
        self._access.refuse("read", headers.get(b"authorization"), headers.get(b"host"))
        try:
            queues = await self._run(self._api.queues.state)
        except QueuesUnavailableError:
            queues = None
        text = self._metrics.text(self._api.service, queues)
        return _Answer(text, metrics.MEDIA_TYPE)

    async def _token(self, request: Request) -> Response:
        headers = request.scope[_HEADERS]
        scopes = self._access.scopes(headers.get(b"authorization"), headers.get(b"host"))
        return _Answer(_encode(Token([scope for scope in SCOPES if scope in scopes])))

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - whoever asks
        return _Answer(description.document())

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


class _Named:
    """One endpoint as an ASGI application. name: what it is called in metrics and logs."""

    def __init__(self, name: str, handler: Handler) -> None:
        self._name = name
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_NAME] = self._name
        answer = await self._handler(Request(scope, receive))
        await answer(scope, receive, send)


class _ByMethod:
    """The endpoints of one path. The router lets no other methods through than theirs, and HEAD where there is GET."""

    def __init__(self, endpoints: Mapping[str, ASGIApp]) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints[scope["method"]](scope, receive, send)


class _Answer(Response):
    """An answer that nobody keeps. Made once a request, so without looking for headers that may be there."""

    def __init__(
        self, content: bytes, media_type: str = "application/json", status: int = 200, more: Mapping[str, str] = _NONE
    ) -> None:
        self.status_code = status
        self.body = content
        self.background = None
        self.raw_headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(content)),
            _NO_STORE,
            *((name.lower().encode(), value.encode()) for name, value in more.items()),
        ]


def _problem(error: Exception) -> ProblemError:
    """What the caller is told."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, problems.EXPECTED):
        return problems.of(error)
    if isinstance(error, HTTPException) and error.status_code == problems.METHOD_NOT_ALLOWED.status:
        return ProblemError(problems.METHOD_NOT_ALLOWED, "", headers=error.headers)
    if isinstance(error, HTTPException):
        return ProblemError(problems.NOT_FOUND, "see /openapi.json")
    return ProblemError(problems.INTERNAL, "it is in the server's log, by its request_id")


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


async def _asset(asset: site.Asset, request: Request) -> Response:
    headers = {**site.HEADERS, "content-type": asset.media_type, "etag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers)
