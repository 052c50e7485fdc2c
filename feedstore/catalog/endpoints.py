"""The endpoints of catalogs: one table, from which the routes and the OpenAPI document are made."""

from typing import Any, Final, NamedTuple

from msgspec import UnsetType

from feedstore.catalog import wire
from feedstore.catalog.port import CatalogRefusedError, CatalogUnavailableError, NoGenerationError, TooFarBehindError
from feedstore.catalog.posting import Posting, refuse_updated
from feedstore.catalog.service import CatalogService, Swaps, UnknownCatalogError
from feedstore.catalog.settings import PINS
from feedstore.catalog.swaps import SwapRefusedError
from feedstore.catalog.wire import (
    CatalogClusterLine,
    CatalogLine,
    Catalogs,
    GenerationLine,
    GetBody,
    KeysLine,
    PostedUpdates,
    Records,
    RollbackBody,
    SwapLine,
    Swapped,
    UpdatesBody,
    UseBody,
)
from feedstore.http import problems
from feedstore.http.endpoint import Asked, Endpoint
from feedstore.http.problems import Kind, ProblemError
from feedstore.http.queues import QueuesUnavailableError
from feedstore.http.wire import Nothing

ANSWER_BYTES_MAX: Final = 4 * 2**20
"""The most bytes of records in one answer: a thousand of the largest would be 64 MiB."""

UNAVAILABLE: Final = Kind("catalog-unavailable", 503, "Catalog is unavailable", retry_after_s=1)
NO_GENERATION: Final = Kind("no-generation", 503, "The catalog is empty", retry_after_s=5)
REFUSED: Final = Kind("catalog-refused", 400, "Request that the catalog cannot answer")
ANSWER_TOO_LARGE: Final = Kind("answer-too-large", 400, "Answer too large")
PROBLEMS: Final[problems.Known] = {
    UnknownCatalogError: problems.NOT_FOUND,
    NoGenerationError: NO_GENERATION,
    CatalogUnavailableError: UNAVAILABLE,
    CatalogRefusedError: REFUSED,
}


class CatalogApi(NamedTuple):
    """The objects that the endpoints work on. posting: None if this server reaches no queue."""

    service: CatalogService
    posting: Posting | None


def _catalogs(api: CatalogApi, asked: Asked[Nothing, None]) -> Catalogs:  # noqa: ARG001 - it has no parameters
    now_ms = api.service.clock_ms()
    return Catalogs([wire.catalog_line(each, now_ms) for each in api.service.states()], now_ms)


def _get(api: CatalogApi, asked: Asked[Nothing, GetBody]) -> Records:
    name, body = asked.words["catalog"], asked.body
    form = api.service.catalog(name).form
    given = body.packed(form)
    newest_ms = None if isinstance(body.max_behind_ms, UnsetType) else body.max_behind_ms
    try:
        got = api.service.get(name, list(given), asked.deadline_s, newest_ms)
    except NoGenerationError as error:
        raise ProblemError(NO_GENERATION, str(error)) from error
    except TooFarBehindError as error:
        detail = f"there is no answer now that is at most {newest_ms} ms behind: try again"
        raise ProblemError(UNAVAILABLE, detail) from error
    if sum(map(form.size, got.records.values())) > ANSWER_BYTES_MAX:
        raise ProblemError(
            ANSWER_TOO_LARGE, f"the records have over {ANSWER_BYTES_MAX} bytes: ask for fewer keys at once"
        )
    records: dict[str, Any] = {}
    others: dict[str, str] = {}
    missing = [given[key] for key in got.missing - got.unanswered]
    for key, record in got.records.items():
        match form.shown(record):
            case None:
                missing.append(given[key])
            case str() as base64:
                others[given[key]] = base64
            case json:
                records[given[key]] = json
    unanswered, stale = [given[key] for key in got.unanswered], [given[key] for key in got.stale]
    return Records(
        name, records, others, sorted(missing), sorted(unanswered), sorted(stale), got.behind_ms, got.generation
    )


def _post(api: CatalogApi, asked: Asked[Nothing, UpdatesBody]) -> PostedUpdates:
    name = asked.words["catalog"]
    api.service.catalog(name)
    refuse_updated(name)
    updates = asked.body.checked(api.service.clock_ms())
    if api.posting is None:
        raise QueuesUnavailableError("this server is not connected to the queue")
    try:
        api.posting.post(name, updates)
    except QueuesUnavailableError as error:
        detail = "some of the updates may have been posted. Post all of them again: this is harmless"
        raise ProblemError(problems.QUEUES_UNAVAILABLE, detail, cause=str(error)) from error
    return PostedUpdates(name, len(updates))


def _roll_back(api: CatalogApi, asked: Asked[Nothing, RollbackBody]) -> Swapped:
    name = asked.words["catalog"]
    return _swapped(name, api.service.roll_back(name, asked.body.generations, asked.deadline_s))


def _use(api: CatalogApi, asked: Asked[Nothing, UseBody]) -> Swapped:
    name = asked.words["catalog"]
    return _swapped(name, api.service.use(name, asked.body.generations, asked.deadline_s))


def _swapped(name: str, swaps: Swaps) -> Swapped:
    """The answer after a swap. Raises ProblemError if a cluster failed, which says what became of each cluster.
    Operators may read how a cluster failed.
    """
    if not swaps.failed:
        lines = [SwapLine(each, now, before, now != before) for each, (now, before) in swaps.done.items()]
        return Swapped(name, lines)
    said = [f"{cluster}: {error}" for cluster, error in swaps.failed.items()]
    said += [f"{cluster}: {swap.generation} is in use" for cluster, swap in swaps.done.items()]
    detail = "; ".join(said)
    errors = swaps.failed.values()
    # A refusal comes first, as repeating the same request would not help.
    for error in errors:
        if isinstance(error, SwapRefusedError):
            raise ProblemError(problems.REFUSED, detail, reason=error.reason) from error
        if isinstance(error, CatalogRefusedError):
            raise ProblemError(REFUSED, detail) from error
    if any(isinstance(error, NoGenerationError) for error in errors):
        raise ProblemError(NO_GENERATION, detail)
    raise ProblemError(UNAVAILABLE, f"{detail}. Repeat the request: this is harmless")


_CATALOG = {"catalog": PINS}
_OLD, _NEW = "1341100970000-5f1e2d3c4b5a6978", "1341122570000-0f1e2d3c4b5a6978"

ENDPOINTS: Final[tuple[Endpoint[CatalogApi, Any, Any], ...]] = (
    Endpoint(
        "catalogs",
        "GET",
        "/v1/catalogs",
        "read",
        "The catalogs: for each cluster, their generations and how far behind they are; and what this server has read",
        _catalogs,
        Catalogs(
            [
                CatalogLine(
                    PINS,
                    [
                        CatalogClusterLine(
                            "a",
                            [
                                GenerationLine(_OLD, 1_341_100_970_000, 50_000, 1_450_000, current=False, used=True),
                                GenerationLine(_NEW, 1_341_122_570_000, 50_100, 1_453_000, current=True, used=True),
                            ],
                            1_341_100_970_000,
                            1_341_122_873_000,
                            700,
                            120,
                            1_341_122_873_500,
                        )
                    ],
                    KeysLine(9_390, 0, 560, 40, 10, 10),
                    0.939,
                    0.001,
                    2_097_152,
                )
            ],
            1_341_122_873_700,
        ),
        is_bounded=True,
    ),
    Endpoint(
        "catalog_get",
        "POST",
        "/v1/catalogs/{catalog}/get",
        "read",
        "The records of up to 1000 keys. In the catalog `pins`, a key is the id of a pin",
        _get,
        Records(
            PINS,
            {"101": {"owner": "2", "board": "9", "created_ms": 1_341_100_973_000}},
            {},
            ["102"],
            [],
            [],
            700,
            _NEW,
        ),
        body_example={"keys": ["101", "102"]},
        words=_CATALOG,
        is_bounded=True,
        body_bytes_max=wire.BODY_BYTES_MAX,
    ),
    Endpoint(
        "catalog_updates",
        "POST",
        "/v1/catalogs/{catalog}/updates",
        "write",
        "Post up to 1000 updates of a catalog that is loaded from files. They are durable when the answer comes. It is"
        " safe to repeat",
        _post,
        PostedUpdates("ads", 2),
        body_example={
            "updates": [
                {"key": "campaign-7", "time_ms": 1_341_122_873_000, "record": {"bid": 5}},
                {"key": "campaign-8", "time_ms": 1_341_122_873_000, "deleted": True},
            ]
        },
        words={"catalog": "ads"},
        takes_key=False,
        body_bytes_max=wire.UPDATES_BYTES_MAX,
    ),
    Endpoint(
        "catalog_rollback",
        "POST",
        "/v1/catalogs/{catalog}/rollback",
        "operate",
        "Use the generation that was in use before the wrong one. All updates since then stay in force. It is safe to"
        " repeat",
        _roll_back,
        Swapped(PINS, [SwapLine("a", _OLD, _NEW, changed=True)]),
        body_example={"from": {"a": _NEW}},
        words=_CATALOG,
        is_bounded=True,
    ),
    Endpoint(
        "catalog_use",
        "POST",
        "/v1/catalogs/{catalog}/use",
        "operate",
        "Use a certain generation, a newer or an older one. It is safe to repeat",
        _use,
        Swapped(PINS, [SwapLine("a", _NEW, _OLD, changed=True)]),
        body_example={"to": {"a": _NEW}},
        words=_CATALOG,
        is_bounded=True,
    ),
)
