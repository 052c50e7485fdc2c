"""The ASGI application: routes, what stands around every request, and what becomes of errors."""

import asyncio
import itertools
import re
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from feedstore.serving.http import description, incoming, metrics, problems, site
from feedstore.serving.http.endpoints import ENDPOINTS, Api, Asked, Endpoint
from feedstore.serving.http.incoming import Incoming
from feedstore.serving.http.metrics import Metrics
from feedstore.serving.http.problems import ProblemError
from feedstore.serving.http.running import Runner
from feedstore.serving.http.tokens import SCOPES, Access
from feedstore.serving.http.wire import Health, Token
from feedstore.serving.queues import QueuesUnavailableError

_log = structlog.get_logger()

READY_AGAIN_S: Final = 1.0
"""How long an answer to /readyz holds: anybody may ask, and each answer asks a cluster."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})
_JSON: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_CLOSE: Final = (b"connection", b"close")
_encode: Final = msgspec.json.Encoder().encode

_NOT_READY: Final[tuple[type[Exception], ...]] = (*problems.EXPECTED, ProblemError)

T = TypeVar("T")
Header = tuple[bytes, bytes]


class Answer(msgspec.Struct, frozen=True):
    """headers: all but those that every answer has. Their names are in lower case."""

    status: int
    headers: Sequence[Header]
    content: bytes


Handler = Callable[[Incoming], Awaitable[Answer]]


class _Place(NamedTuple):
    """One path. matches: whether another one is such a path. handlers: by method, with the names that metrics and logs
    call them by.
    """

    matches: Callable[[str], "re.Match[str] | None"]
    handlers: Mapping[str, tuple[str, Handler]]


@dataclass(frozen=True)
class Bounds:
    """deadline_s: how long a request may take, from its head on."""

    deadline_s: float


class App:
    """An ASGI application on a service.

    pages: runs what reads clusters only. calls: runs everything else. access: decides who may do what. clock: the
    service's own, in s.
    """

    def __init__(
        self,
        api: Api,
        access: Access,
        pages: Runner,
        calls: Runner,
        bounds: Bounds,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._access = access
        self._pages = pages
        self._calls = calls
        self._bounds = bounds
        self._clock = clock
        self._metrics = Metrics()
        self._log = _log.bind()
        self._draining = False
        self._ready = _Ready(lambda: self._run(api.service.answers), clock)
        self._places = tuple(self._all_places())
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
        began_s = self._clock()
        headers = dict(scope["headers"])
        request_id = incoming.request_id(headers.get(b"x-request-id", b"")) or self._id_prefix + next(self._ids)
        method, endpoint, status = scope["method"], "none", 0
        error: ProblemError | None = None
        self._metrics.began()
        try:
            try:
                path, (endpoint, handler) = self._place(scope["path"], method)
                answer = await handler(Incoming(scope, receive, headers, path, began_s))
            except Exception as raised:  # noqa: BLE001 - nothing that a caller sends may go unanswered
                error = _problem(raised)
                if error.kind is problems.INTERNAL:
                    _log.exception("http.failed", request_id=request_id, endpoint=endpoint, error=str(raised))
                answer = _refusal(error, request_id)
            status = answer.status
            named = [*answer.headers, (b"x-request-id", request_id.encode()), _NOSNIFF]
            if self._draining:
                named.append(_CLOSE)
            await send({"type": "http.response.start", "status": status, "headers": named})
            await send({"type": "http.response.body", "body": answer.content})
        finally:
            took_s = self._clock() - began_s
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
            # Its traceback holds this frame: until the collector comes, which is rarely, all of it would be kept.
            error = None

    # Routes
    # -----------------------------------------------------------------------------------------------------------------

    def _all_places(self) -> Iterable[_Place]:
        places: dict[str, dict[str, tuple[str, Handler]]] = defaultdict(dict)
        for endpoint in ENDPOINTS:
            places[endpoint.path][endpoint.method] = endpoint.name, self._answers(endpoint)
        for path, name, handler in (
            ("/healthz", "healthz", self._healthz),
            ("/readyz", "readyz", self._readyz),
            ("/metrics", "metrics", self._metrics_text),
            (description.SCOPES_PATH, "token", self._token),
            ("/openapi.json", "openapi", self._openapi),
        ):
            places[path]["GET"] = name, handler
        for path, asset in site.assets().items():
            places[path]["GET"] = "site", _asset(asset)
        for path, handlers in places.items():
            if "GET" in handlers:
                handlers["HEAD"] = handlers["GET"]
            yield _Place(compile_path(path)[0].fullmatch, handlers)

    def _place(self, path: str, method: str) -> tuple[Mapping[str, str], tuple[str, Handler]]:
        """Who answers a request, and what its path says. A path is right or it is not: none is mended."""
        for matches, handlers in self._places:
            if found := matches(path):
                if method in handlers:
                    return found.groupdict(), handlers[method]
                raise ProblemError(problems.METHOD_NOT_ALLOWED, "", headers={"allow": ", ".join(sorted(handlers))})
        raise ProblemError(problems.NOT_FOUND, "see /openapi.json")

    def _answers(self, endpoint: Endpoint[Any, Any]) -> Handler:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        call = endpoint.call

        async def answer(request: Incoming) -> Answer:
            headers = request.headers
            self._access.refuse(endpoint.scope, headers.get(b"authorization"), headers.get(b"host"))
            deadline_s = request.began_s + self._bounds.deadline_s
            ids = incoming.ids(request.path)
            query = incoming.query(request.scope["query_string"], endpoint.query)  # type: ignore[arg-type]
            body = None if decoder is None else await incoming.body(request, decoder)
            asked: Asked[Any, Any] = Asked(ids, query, body, _text(headers.get(b"idempotency-key")), deadline_s)
            runner = self._pages if endpoint.is_page(query) else self._calls
            return _answer(_encode(await runner.run(partial(call, self._api, asked), deadline_s)))

        return answer

    async def _healthz(self, request: Incoming) -> Answer:  # noqa: ARG002 - whoever asks
        return _answer(_encode(Health()))

    async def _readyz(self, request: Incoming) -> Answer:  # noqa: ARG002 - whoever asks
        if self._draining:
            raise ProblemError(problems.DRAINING, "ask another instance")
        await self._ready()
        return _answer(_encode(Health() if self._api.queues.stopped() is None else Health(worker="stopped")))

    async def _metrics_text(self, request: Incoming) -> Answer:
        headers = request.headers
        self._access.refuse("read", headers.get(b"authorization"), headers.get(b"host"))
        try:
            queues = await self._run(self._api.queues.state)
        except QueuesUnavailableError:
            queues = None
        text = self._metrics.text(self._api.service, queues, self._api.queues.stopped())
        return _answer(text, (b"content-type", metrics.MEDIA_TYPE.encode()))

    async def _token(self, request: Incoming) -> Answer:
        headers = request.headers
        scopes = self._access.scopes(headers.get(b"authorization"), headers.get(b"host"))
        return _answer(_encode(Token([scope for scope in SCOPES if scope in scopes])))

    async def _openapi(self, request: Incoming) -> Answer:  # noqa: ARG002 - whoever asks
        return _answer(description.document())

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._calls.run(call, self._clock() + self._bounds.deadline_s)


class _Ready:
    """Raises what `ask` raises, which is asked at most once in `READY_AGAIN_S`, whoever wants to know."""

    def __init__(self, ask: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_s = float("-inf")
        self._error: Exception | None = None

    async def __call__(self) -> None:
        async with self._lock:
            if self._clock() - self._asked_s >= READY_AGAIN_S:
                self._error = None
                try:
                    await self._ask()
                except _NOT_READY as error:
                    self._error = error
                self._asked_s = self._clock()
        if self._error is not None:
            raise self._error


def _answer(content: bytes, media_type: Header = _JSON) -> Answer:
    """An answer that nobody keeps."""
    return Answer(200, (media_type, (b"content-length", b"%d" % len(content)), _NO_STORE), content)


def _refusal(error: ProblemError, request_id: str) -> Answer:
    content = error.document(request_id)
    headers = {
        "content-type": problems.MEDIA_TYPE,
        "content-length": str(len(content)),
        "cache-control": "no-store",
        **error.headers,
    }
    return Answer(error.kind.status, _headers(headers), content)


def _problem(error: Exception) -> ProblemError:
    """What the caller is told."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, problems.EXPECTED):
        return problems.of(error)
    return ProblemError(problems.INTERNAL, "it is in the server's log, by its request_id")


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


def _asset(asset: site.Asset) -> Handler:
    headers = {**site.HEADERS, "content-type": asset.media_type, "etag": asset.etag}
    whole = Answer(200, _headers({**headers, "content-length": str(len(asset.content))}), asset.content)
    unchanged = Answer(304, _headers(headers), b"")

    async def answer(request: Incoming) -> Answer:
        return unchanged if request.headers.get(b"if-none-match") == asset.etag.encode() else whole

    return answer


def _headers(named: Mapping[str, str]) -> Sequence[Header]:
    return [(name.encode(), value.encode()) for name, value in named.items()]
