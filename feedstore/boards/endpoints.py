"""The endpoints of boards: one table, from which the routes and the OpenAPI document are made."""

from typing import Any, Final, NamedTuple

from msgspec import UnsetType

from feedstore.boards import wire
from feedstore.boards.port import BoardCrowdedError, ReorderRefusedError
from feedstore.boards.service import BoardService
from feedstore.boards.wire import BoardPage, BoardPinLine, BoardQuery, OrderReset, PlaceBody, PlacedLine
from feedstore.http import problems
from feedstore.http.endpoint import Asked, Endpoint
from feedstore.http.problems import Kind, ProblemError
from feedstore.http.signed_cursors import SignedCursors
from feedstore.http.wire import Nothing

CROWDED: Final = Kind("board-crowded", 503, "Board is crowded", retry_after_s=1)


class BoardApi(NamedTuple):
    """The objects that the endpoints work on."""

    service: BoardService
    cursors: SignedCursors


def _pins(api: BoardApi, asked: Asked[BoardQuery, None]) -> BoardPage:
    board, query = asked.ids["board"], asked.query
    owner = f"board:{board}"
    cursor = api.cursors.opened(owner, None if isinstance(query.cursor, UnsetType) else query.cursor)
    page = api.service.page(board, query.limit, cursor, query.place())
    return BoardPage(
        str(board),
        [wire.line_of_pin(pin) for pin in page.pins],
        api.cursors.signed(owner, page.cursor),
        api.cursors.signed(owner, page.above),
    )


def _place(api: BoardApi, asked: Asked[Nothing, PlaceBody]) -> PlacedLine:
    before, after = asked.body.neighbours()
    to = None if isinstance(asked.body.to, UnsetType) else asked.body.to
    try:
        placed = api.service.reorder_board_pin(asked.ids["board"], asked.ids["pin"], before, after, to)
    except ReorderRefusedError as error:
        kind = problems.NOT_FOUND if error.reason == "pin_unknown" else problems.REFUSED
        raise ProblemError(kind, str(error), reason=error.reason, between=tuple(map(str, error.between))) from error
    except BoardCrowdedError as error:
        raise ProblemError(CROWDED, str(error)) from error
    return wire.line_of_placed(placed)


def _reset(api: BoardApi, asked: Asked[Nothing, None]) -> OrderReset:
    board = asked.ids["board"]
    return OrderReset(str(board), api.service.reset(board))


_SEQUENCE = "13411009730009223372036854775807000000"

ENDPOINTS: Final[tuple[Endpoint[BoardApi, Any, Any], ...]] = (
    Endpoint(
        "board_pins",
        "GET",
        "/v1/boards/{board}/pins",
        "read",
        "A page of a board in its own order, from any place in it. Pins that were saved a moment ago may be missing",
        _pins,
        BoardPage("9", [BoardPinLine("101", 1_341_100_973_000, _SEQUENCE, 1_341_100_974_000)], None, None),
        examples={"board": "9"},
    ),
    Endpoint(
        "place_pin",
        "POST",
        "/v1/boards/{board}/pins/{pin}/place",
        "write",
        "Move a pin of a board: below `before`, above `after`, or to the top or the bottom. It is safe to repeat",
        _place,
        PlacedLine("9", "101", _SEQUENCE, 1_341_100_974_000, changed=True, room=83),
        body_example={"before": "102", "after": "99"},
        examples={"board": "9", "pin": "101"},
        takes_key=False,
    ),
    Endpoint(
        "reset_order",
        "DELETE",
        "/v1/boards/{board}/order",
        "operate",
        "Bring a board back into the order of time. Repeat the request until `done` is true",
        _reset,
        OrderReset("9", done=True),
        examples={"board": "9"},
    ),
)
