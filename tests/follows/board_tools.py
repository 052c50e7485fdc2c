"""Helpers that tests of boards share: pins on a board, the pins of a page, and how many rows a database has written."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from follow_places import NOW

from feedstore.boards import SPACING, BoardPage, BoardPin, Boards, Place, RoomSpread, room
from feedstore.domain import DeletePin, Pin, PinDeleted, PinSaved, RespaceAsked, SavePin
from feedstore.follows.mysql import MySQLShard
from feedstore.follows.port import ActionRefusedError, Request, actions_in
from feedstore.follows.sqlite import SQLiteShard
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import MemoryDatabase

BOARD = 9
OWNER = 7


def save(store: FollowStore, pins: Iterable[tuple[int, int]], *, board: int = BOARD, indexed: bool = True) -> None:
    """Saves pins as (pin, created_ms). indexed: and does what their handler does."""
    answers = store.record([Request(SavePin(Pin(pin, OWNER, board, created_ms))) for pin, created_ms in pins])
    saved = [answer for answer in answers if isinstance(answer, PinSaved)]
    assert len(saved) == len(answers), answers
    if indexed:
        store.index(pins=saved)


def delete(store: FollowStore, pin: int, *, indexed: bool = True) -> PinDeleted:
    (answer,) = store.record([Request(DeletePin(pin))])
    assert isinstance(answer, PinDeleted), answer
    assert not isinstance(answer, ActionRefusedError)
    if indexed:
        store.index(deletions=[answer])
    return answer


def a_board(store: FollowStore, pins: int = 6, *, apart_ms: int = 1) -> Boards:
    """A board whose pins are, from the top, `pins`, ..., 2, 1."""
    save(store, [(pin, NOW - 1_000_000 + pin * apart_ms) for pin in range(1, pins + 1)])
    return Boards(store)


def pages(boards: Boards, limit: int = 500, board: int = BOARD) -> list[BoardPin]:
    """A walk to the end of a board."""
    shown: list[BoardPin] = []
    after: Place | None = None
    while True:
        page = boards.page(board, limit, after)
        assert len(page.pins) <= limit
        shown += page.pins
        after = page.after
        if after is None:
            return shown


def shown(boards: Boards, limit: int = 500, board: int = BOARD) -> list[int]:
    return [pin.pin for pin in pages(boards, limit, board)]


def narrowest(boards: Boards) -> int:
    """The room of the narrowest gap of a board."""
    return min(room(upper.sequence - lower.sequence) for upper, lower in pairwise(pages(boards)))


def shown_upwards(boards: Boards, limit: int) -> list[int]:
    """A walk from the bottom of a board to its top, as it is from the top down."""
    shown: list[int] = []
    above: Place | None = Place(SPACING.bottom, (), "up")
    while above is not None:
        page = boards.page(BOARD, limit, above)
        assert len(page.pins) <= limit
        shown = numbers(page) + shown
        above = page.above
    return shown


def numbers(page: BoardPage) -> list[int]:
    return [pin.pin for pin in page.pins]


def asked(store: FollowStore) -> list[RespaceAsked]:
    """The requests for re-spacing that wait in the outbox."""
    actions = actions_in(store.unrelayed(100_000))
    return [action for action in actions if isinstance(action, RespaceAsked)]


def relay(store: FollowStore) -> None:
    store.mark_relayed(store.unrelayed(100_000))


def respace(boards: Boards, request: RespaceAsked, rows: int = 512, *, forgetful: bool = False) -> int:
    """Re-spaces until it is done. Returns how many rows that wrote. forgetful: each step plans again."""
    written = 0
    going: RoomSpread | None = None
    for _ in range(10_000):
        step = boards.respace(request, rows, None if forgetful else going)
        assert step.rows <= rows
        going, written = step.going, written + step.rows
        if step.done:
            return written
    raise AssertionError("it does not end")


def rows_written(store: FollowStore, work: Callable[[], object]) -> int:
    """How many rows the databases wrote during the work, by their own count."""
    shards: Sequence[object] = store._shards
    before = sum(map(_rows, shards))
    work()
    return sum(map(_rows, shards)) - before


def _rows(shard: object) -> int:
    if isinstance(shard, SQLiteShard):
        database = shard._database
        if isinstance(database, MemoryDatabase):
            return database._connection.total_changes
        with database.write() as connection:
            return connection.total_changes
    assert isinstance(shard, MySQLShard)
    # Of the whole server: the shards of the tests share it.
    counts: Sequence[tuple[str, str]] = shard._rows("SHOW GLOBAL STATUS LIKE 'Innodb\\_rows\\_%'")
    # MariaDB has no such counters. In MySQL, asking counts as a write of the others.
    counts = [each for each in counts if not each[0].endswith("read")] or shard._rows(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete')"
    )
    number, count = shard._rows("SELECT shard, shards FROM shard_state")[0]
    return sum(int(value) for _, value in counts) if number == count - 1 else 0
