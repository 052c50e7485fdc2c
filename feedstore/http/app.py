"""The ASGI application: routes, the steps around every request, and the answers for errors."""

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

from feedstore.errors import PortError
from feedstore.http import description, incoming, problems, site
from feedstore.http.endpoint import Asked, Endpoint, Part
from feedstore.http.incoming import Incoming
from feedstore.http.metrics import Metrics
from feedstore.http.problems import ProblemError
from feedstore.http.running import InThreads, Runners
from feedstore.http.tokens import SCOPES, Access
from feedstore.http.wire import Health, Token
from feedstore.metering import Counts, Definition, exposition
from feedstore.metering.meter import together

_log = structlog.get_logger()

READY_AGAIN_S: Final = 1.0
"""How long an answer to /readyz is reused: anybody may ask, and each new answer asks a cluster."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})
_JSON: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")
_KEY: Final = b"idempotency-key"
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_CLOSE: Final = (b"connection", b"close")
_fit_for_a_log: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch
_NO_WORDS: Final[Mapping[str, str]] = {}
_encode: Final = msgspec.json.Encoder().encode

T = TypeVar("T")
Header = tuple[bytes, bytes]


class Response(msgspec.Struct, frozen=True):
    """headers: in addition to those that every answer has; their names are in lower case."""

    status: int
    headers: Sequence[Header]
    content: bytes


Handler = Callable[[Incoming], Awaitable[Response]]


class _Route(NamedTuple):
    """name: in metrics and logs. again: what a caller that got no answer may do."""

    name: str
    handler: Handler
    again: str = "try again"


async def _not_found(request: Incoming) -> Response:  # noqa: ARG001 - the same for every caller
    raise ProblemError(problems.NOT_FOUND, "there is no such path: /openapi.json lists all paths")


_NONE: Final = _Route("none", _not_found)


class _Place(NamedTuple):
    """One path, or all paths of one form. matches: checks if a path is of this form. routes: by method. is_endpoint:
    whether it belongs to a part.
    """

    path: str
    is_endpoint: bool
    matches: Callable[[str], "re.Match[str] | None"]
    routes: Mapping[str, _Route]


@dataclass(frozen=True)
class Served:
    """The parts of a server.

    parts: the endpoints, and the objects that they work on. description: what they are for, in a sentence. assets:
    files for browsers, by their paths. known: the problem of each error that the endpoints raise. ready: raises one of
    these errors if nothing can be answered now. stopped: why the work is not done, as `Queues.stopped`. counts: what
    is counted in addition to the requests. definitions: of all metrics.
    """

    parts: Sequence[Part[Any]]
    description: str
    assets: Mapping[str, site.Asset]
    known: problems.Known
    ready: Callable[[], None]
    stopped: Callable[[], str | None]
    counts: Callable[[], Counts]
    definitions: Sequence[Definition]
    close: Callable[[], None] = lambda: None


class App:
    """An ASGI application.

    access: decides who may do what. within_s: how long a request may take, once all of it has arrived. clock: in s.
    """

    def __init__(
        self,
        served: Served,
        access: Access,
        runners: Runners,
        within_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._served = served
        self._known = {**problems.KNOWN, **served.known}
        self._document: bytes | None = None
        self._access = access
        self._runners = runners
        self._within_s = within_s
        self._clock = clock
        self._metrics = Metrics()
        self.refused = self._metrics.refused
        self._log = _log.bind()
        self._draining = False
        self._ready = _Ready(lambda: _run(self._runners.pages, served.ready, self._deadline_s()), clock)
        self._places = tuple(self._all_places())
        self._numbers = itertools.count()
        self._id_prefix = secrets.token_hex(6)

    def drain(self) -> None:
        """Makes /readyz report that the server is not ready; requests are still answered. Safe from any thread."""
        self._draining = True

    def route(self, path: str, method: str) -> str | None:
        """The path template of the endpoint that a request is for; None if there is no such endpoint."""
        for place in self._places:
            if place.matches(path):
                return place.path if place.is_endpoint and method in place.routes else None
        return None

    def request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The id of a request: the one that its client gave, if that is short and plain; else a new one."""
        given = headers.get(b"x-request-id")
        return given.decode() if given and _fit_for_a_log(given) else f"{self._id_prefix}{next(self._numbers):06x}"

    def close(self) -> None:
        self._served.close()
        self._runners.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Gives the request an id, answers it, and logs and counts it."""
        began_s = self._clock()
        headers = dict(scope["headers"])
        request_id = scope.get(incoming.REQUEST_ID) or self.request_id(headers)
        method, status = scope["method"], 0
        route = _NONE
        error: ProblemError | None = None
        self._metrics.began()
        try:
            try:
                path, route = self._place(scope["path"], method)
                answer = await route.handler(Incoming(scope, receive, headers, path))
            except Exception as raised:  # noqa: BLE001 - every request must be answered
                error = raised if isinstance(raised, ProblemError) else problems.of(raised, self._known, route.again)
                if error.kind is problems.INTERNAL:
                    _log.exception("http.failed", request_id=request_id, endpoint=route.name, error=str(raised))
                answer = _refusal(error, request_id)
            except asyncio.CancelledError:
                # The server ends, and waits no longer. The call continues on its thread: an action may be recorded.
                error = ProblemError(problems.DRAINING, route.again)
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
            self._metrics.ended(route.name, method, status, took_s)
            more = {} if error is None else {"error": error.for_log()}
            self._log.info(
                "http.request",
                request_id=request_id,
                endpoint=route.name,
                method=method,
                status=status,
                took_ms=round(1_000 * took_s, 2),
                **more,
            )
            # Its traceback refers to this frame: both would be kept until the garbage collector runs, which is rare.
            error = None

    # Routes
    # -----------------------------------------------------------------------------------------------------------------

    def _all_places(self) -> Iterable[_Place]:
        places: dict[str, dict[str, _Route]] = defaultdict(dict)
        for part in self._served.parts:
            for endpoint in part.endpoints:
                answers = self._answers(part.api, endpoint)
                places[endpoint.path][endpoint.method] = _Route(endpoint.name, answers, endpoint.again)
        endpoints = set(places)
        for path, name, handler in (
            ("/healthz", "healthz", self._healthz),
            ("/readyz", "readyz", self._readyz),
            ("/metrics", "metrics", self._metrics_text),
            (description.SCOPES_PATH, "token", self._token),
            ("/openapi.json", "openapi", self._openapi),
        ):
            places[path]["GET"] = _Route(name, handler)
        for path, asset in self._served.assets.items():
            places[path]["GET"] = _Route("site", _asset(asset))
        for path, routes in places.items():
            if "GET" in routes:
                routes["HEAD"] = routes["GET"]
            yield _Place(path, path in endpoints, compile_path(path)[0].fullmatch, routes)

    def _place(self, path: str, method: str) -> tuple[Mapping[str, str], _Route]:
        """The endpoint that answers a request, and the values in its path. Paths must match exactly."""
        for _, _, matches, routes in self._places:
            if found := matches(path):
                if method in routes:
                    return found.groupdict(), routes[method]
                allowed = ", ".join(sorted(routes))
                raise ProblemError(
                    problems.METHOD_NOT_ALLOWED, f"this path allows: {allowed}", headers={"allow": allowed}
                )
        return {}, _NONE

    def _answers(self, api: Any, endpoint: Endpoint[Any, Any, Any]) -> Handler:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        call, into = endpoint.call, endpoint.query
        bytes_max = endpoint.body_bytes_max

        async def answer(request: Incoming) -> Response:
            self._access.refuse(endpoint.scope, request.headers)
            words, others = _NO_WORDS, request.path
            if endpoint.words:
                words = {name: request.path[name] for name in endpoint.words}
                others = {name: text for name, text in request.path.items() if name not in words}
            ids = incoming.ids(others)
            query = incoming.query(request.scope["query_string"], into)  # type: ignore[arg-type]
            body = None if decoder is None else await incoming.body(request, decoder, bytes_max)
            key = _key(request)
            deadline_s = self._deadline_s()  # what a client takes to send its body has a limit of its own
            asked: Asked[Any, Any] = Asked(ids, query, body, key, deadline_s, words)
            runner = _runner(self._runners, endpoint, query)
            return _answer(_encode(await _run(runner, partial(call, api, asked), deadline_s)))

        return answer

    async def _healthz(self, request: Incoming) -> Response:  # noqa: ARG002 - the same for every caller
        return _answer(_encode(Health()))

    async def _readyz(self, request: Incoming) -> Response:  # noqa: ARG002 - the same for every caller
        if self._draining:
            raise ProblemError(problems.DRAINING, "try another instance")
        await self._ready()
        return _answer(_encode(Health() if self._served.stopped() is None else Health(worker="stopped")))

    async def _metrics_text(self, request: Incoming) -> Response:
        self._access.refuse("read", request.headers)
        requests = self._metrics.counts()

        def rendered() -> bytes:  # not on the loop: it takes tens of milliseconds
            return exposition.text(together([requests, self._served.counts()]), self._served.definitions)

        text = await self._runners.looks.run(rendered, self._deadline_s())
        return _answer(text, (b"content-type", exposition.MEDIA_TYPE.encode()))

    async def _token(self, request: Incoming) -> Response:
        scopes = self._access.scopes(request.headers)
        return _answer(_encode(Token([scope for scope in SCOPES if scope in scopes])))

    async def _openapi(self, request: Incoming) -> Response:  # noqa: ARG002 - the same for every caller
        if self._document is None:
            endpoints = [endpoint for part in self._served.parts for endpoint in part.endpoints]
            self._document = description.document(endpoints, self._served.description)
        return _answer(self._document)

    def _deadline_s(self) -> float:
        return self._clock() + self._within_s


class _Ready:
    """Calls `ask` at most once in `READY_AGAIN_S`, and raises what it raised last."""

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
                except (PortError, ProblemError) as error:
                    self._error = error
                self._asked_s = self._clock()
        if self._error is not None:
            raise self._error


async def _run(runner: InThreads | None, call: Callable[[], T], deadline_s: float) -> T:
    return call() if runner is None else await runner.run(call, deadline_s)


def _runner(runners: Runners, endpoint: Endpoint[Any, Any, Any], query: Any) -> InThreads | None:
    if endpoint.is_page(query):
        return runners.pages
    if endpoint.is_look:
        return runners.looks
    if endpoint.is_bounded:
        return runners.bounded
    return runners.reads if endpoint.scope == "read" or endpoint.method == "GET" else runners.actions


def _answer(content: bytes, media_type: Header = _JSON) -> Response:
    """An answer that must not be cached."""
    return Response(200, (media_type, (b"content-length", b"%d" % len(content)), _NO_STORE), content)


def _refusal(error: ProblemError, request_id: str) -> Response:
    headers, content = error.answer(request_id)
    return Response(error.kind.status, _headers(headers), content)


def _key(request: Incoming) -> str | None:
    key = request.headers.get(_KEY)
    if key is None:
        return None
    if sum(name == _KEY for name, _ in request.scope["headers"]) > 1:
        raise ProblemError(problems.INVALID_VALUE, "send one Idempotency-Key")
    return key.decode("latin-1")


def _asset(asset: site.Asset) -> Handler:
    headers = {**site.HEADERS, "content-type": asset.media_type, "etag": asset.etag}
    whole = Response(200, _headers({**headers, "content-length": str(len(asset.content))}), asset.content)
    unchanged = Response(304, _headers(headers), b"")

    async def answer(request: Incoming) -> Response:
        held = request.headers.get(b"if-none-match", b"").decode("latin-1")
        # A proxy that compresses makes the tag a weak one.
        tags = {each.strip().removeprefix("W/") for each in held.split(",")}
        return unchanged if tags & {asset.etag, "*"} else whole

    return answer


def _headers(named: Mapping[str, str]) -> Sequence[Header]:
    return [(name.encode(), value.encode()) for name, value in named.items()]
