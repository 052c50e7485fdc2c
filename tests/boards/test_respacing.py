"""Room that a drop asked for, through the outbox, the queue and the expander."""

import random
from typing import Any

import pytest

from feedstore.boards import SPACING, Boards, Move, Respaced
from feedstore.domain import Pin, PinSaved, RespaceAsked, SavePin
from feedstore.following import Limits
from feedstore.follows.arranging import Arranged, BoardRows, LineKey
from feedstore.follows.port import Request, TransactionTooLongError, actions_in
from feedstore.follows.store import FollowStore
from feedstore.metering import Counting
from tests.simulation.bag import Bag
from tests.simulation.memory_shard import MemoryShard
from workers.boards import Respacing, respacing
from workers.boards.respacing import CALL_S, REQUEST_S, TRANSACTIONS
from workers.boards.walks import FRUITLESS
from workers.following import Expander
from workers.following.expander import sender_of
from workers.following.messages import Task, decode_actions, encode_action, wrap_action

NOW = 1_700_000_000_000
LIMITS = Limits(10, 5, action_age_ms=10_000, delivery_age_ms=5_000, purge_window_ms=21_000)


class Clock:
    ms = NOW

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def follows(clock: Clock) -> FollowStore:
    store = FollowStore([MemoryShard(clock) for _ in range(3)])
    pins = [Pin(pin, 7, 9, NOW - 10 + pin) for pin in range(1, 7)]
    store.record([Request(SavePin(pin)) for pin in pins])
    store.index(pins=[PinSaved(pin, NOW) for pin in pins])
    store.mark_relayed(store.unrelayed(100))
    return store


def ask(boards: Boards, follows: FollowStore) -> bytes:
    """Drops below the second pin until room is asked for. Returns what the outbox holds."""
    while not (rows := follows.unrelayed(10)):
        order = [pin.pin for pin in boards.page(9, 10, None).pins]
        boards.reorder(Move(9, order[-1], before=order[1]))
    return rows[0].body


@pytest.mark.parametrize("years", [0, 5])
def test_the_expander_makes_room_however_late(follows: FollowStore, clock: Clock, years: int) -> None:
    boards = Boards(follows)
    message = wrap_action(ask(boards, follows))
    order = [pin.pin for pin in boards.page(9, 10, None).pins]
    (task,) = decode_actions(message)
    assert isinstance(task, Task)
    assert isinstance(task.action, RespaceAsked)
    clock.ms += years * 365 * 86_400_000
    queue = Bag(random.Random(0), 1, 1, ["a"])
    expander = Expander(follows, queue, LIMITS, Respacing(boards, lambda: 0.0).respace)
    for _ in range(2):
        expander.expand([task, task])
    findings = boards.check(9, None)
    assert findings.narrow == []
    assert [pin.pin for pin in boards.page(9, 10, None).pins] == order
    assert len(follows.unrelayed(10)) == 1, "it is not dated again"


def test_a_request_takes_its_turn_by_its_board_and_needs_the_board_s_shard(follows: FollowStore) -> None:
    asked = RespaceAsked(9, 5, NOW)
    assert sender_of(Task(asked)) == -9
    assert 1 <= len(follows.shards_of(asked)) <= 2
    assert follows.redate(asked) is None
    assert decode_actions(encode_action(Task(asked))) == (Task(asked),)


class Endless:
    """Boards on which every request needs more transactions."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.steps = 0
        self.asked: list[tuple[int, int]] = []
        self.now_s = 0.0
        self._step_s = step_s

    def respace(self, _asked: RespaceAsked, rows: int, _going: object) -> Respaced:
        self.steps += 1
        self.now_s += self._step_s
        return Respaced(done=False, rows=rows, window=10**6, going=None)

    def ask_respace(self, board: int, pin: int) -> None:
        self.asked.append((board, pin))


class SlowOnABoard(MemoryShard):
    """A shard on which one board has a hole that takes too long to look at."""

    slow = 0

    def arrange(self, board: int, *args: Any, **kwargs: Any) -> Any:
        if board == self.slow:
            raise TransactionTooLongError("a transaction took 10.0 s and was aborted")
        return super().arrange(board, *args, **kwargs)


class Counted(Boards):
    """Boards that count the transactions of re-spacing."""

    steps = 0

    def respace(self, *args: Any) -> Respaced:
        self.steps += 1
        return super().respace(*args)


def test_what_takes_long_is_asked_for_again_so_that_others_go_first() -> None:
    boards = Endless()
    meter = Counting(lambda: 0.0)
    requests = [RespaceAsked(9, 5, 1), RespaceAsked(9, 5, 2), RespaceAsked(9, 6, 2)]
    Respacing(boards, lambda: 0.0, 100, meter).respace(requests)  # type: ignore[arg-type]
    assert boards.steps == 2 * TRANSACTIONS
    assert boards.asked == [(9, 5), (9, 6)]
    counts = meter.counts()
    assert [(each.name, each.value) for each in counts.counters] == [
        ("feed_board_respaced_rows_total", 2 * TRANSACTIONS * 100)
    ]
    [windows] = counts.spreads
    assert (windows.name, windows.sum, windows.counts[-1]) == ("feed_board_respace_window", 2 * 10**6, 2)


@pytest.mark.parametrize("step_s", [0.125, 5.0])
def test_others_wait_for_re_spacing_for_a_few_seconds_at_most(step_s: float) -> None:
    """However many boards need room, and however long a transaction takes."""
    boards = Endless(step_s)
    Respacing(boards, lambda: boards.now_s).respace([RespaceAsked(board, 5, 1) for board in range(1, 9)])  # type: ignore[arg-type]
    assert boards.now_s <= max(CALL_S + REQUEST_S, 2 * step_s) + step_s
    assert boards.asked == [(board, 5) for board in range(1, 9)]


def test_a_request_whose_plans_write_nothing_is_dropped_soon(follows: FollowStore) -> None:
    """Three placed pins with one number are not possible, unless the store was damaged."""
    top = SPACING.virtual(NOW, 1)
    states = follows.pins([1, 2, 3])
    placed = [SPACING.row(pin, top, state.pin.created_ms, NOW) for pin, state in states.items()]

    def place(_now: int, rows: BoardRows) -> tuple[Arranged, None]:
        rows.pins([LineKey(row.created_ms, row.pin) for row in placed])
        return Arranged(placed=placed), None

    follows.arrange(9, list(states.values()), place)
    boards = Counted(follows)
    for _ in range(3):  # what a request has written at first is asked for again
        Respacing(boards, lambda: 0.0).respace([RespaceAsked(9, 2, NOW)])
    before = boards.steps
    Respacing(boards, lambda: 0.0).respace([RespaceAsked(9, 2, NOW)])
    assert 0 < boards.steps - before <= FRUITLESS


def test_a_request_whose_transaction_lasts_too_long_keeps_nothing_else_back(clock: Clock) -> None:
    """It would be tried again without end: the expander would take its shard for away, and pass on no tick."""
    shard = SlowOnABoard(clock)
    follows = FollowStore([shard])
    boards = Boards(follows)
    for board in (8, 9):
        pins = [Pin(10 * board + pin, 7, board, NOW - 10 + pin) for pin in range(6)]
        follows.record([Request(SavePin(pin)) for pin in pins])
        follows.index(pins=[PinSaved(pin, NOW) for pin in pins])
        while not boards.check(board, None).narrow:
            order = [pin.pin for pin in boards.page(board, 10, None).pins]
            boards.reorder(Move(board, order[-1], before=order[1]))
    waiting = follows.unrelayed(100)
    asked = [action for action in actions_in(waiting) if isinstance(action, RespaceAsked)]
    assert {each.board for each in asked} == {8, 9}
    shard.slow = 8

    respacing = Respacing(boards, lambda: 0.0)
    Expander(follows, Bag(random.Random(0), 1, 1, ["a"]), LIMITS, respacing.respace).expand(list(map(Task, asked)))
    assert boards.check(8, None).narrow
    assert boards.check(9, None).narrow == []
    assert follows.unrelayed(100) == waiting, "it is not asked for again"


@pytest.mark.parametrize("transactions", [1, 3, TRANSACTIONS])
def test_rule_11_what_is_answered_for_outlives_the_machine(
    follows: FollowStore, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    """Transactions of re-spacing leave the sync to the last one; a request that is done, or was asked for again, had
    one after each of them.
    """
    boards = Boards(follows)
    ask(boards, follows)
    (asked,) = actions_in(follows.unrelayed(10))
    assert isinstance(asked, RespaceAsked)
    events: list[str] = []
    arrange, sync = follows.arrange, follows.sync_arranged

    def arranging(*args: Any, synced: bool = True) -> Any:
        events.append("synced" if synced else "unsynced")
        return arrange(*args, synced=synced)

    def syncing(board: int) -> None:
        events.append("synced")
        sync(board)

    monkeypatch.setattr(follows, "arrange", arranging)
    monkeypatch.setattr(follows, "sync_arranged", syncing)
    monkeypatch.setattr(respacing, "TRANSACTIONS", transactions)
    monkeypatch.setattr(respacing, "ROWS_AGAIN", 1)
    Respacing(boards, lambda: 0.0, 1).respace([asked])
    assert "unsynced" in events
    assert events[-1] == "synced"


def test_a_run_of_thousands_of_one_millisecond_is_spread_in_small_transactions(clock: Clock) -> None:
    """The window reaches the end of the run. The job loses its plan now and then, and pins are dropped meanwhile."""
    store = FollowStore([MemoryShard(clock)])
    pins = [Pin(pin, 7, 9, NOW - 10) for pin in range(1, 601)]
    store.record([Request(SavePin(pin)) for pin in pins])
    store.index(pins=[PinSaved(pin, NOW) for pin in pins])
    store.mark_relayed(store.unrelayed(1_000))
    boards = Boards(store)
    order = list(range(1, 601))
    for _ in range(4):
        pin = order.pop(500)
        boards.reorder(Move(9, pin, before=300))
        order.insert(300, pin)
    (asked,) = actions_in(store.unrelayed(10))
    assert isinstance(asked, RespaceAsked)
    going, steps, done = None, 0, False
    while not done:
        step = boards.respace(asked, 64, going)
        going, done, steps = step.going, step.done, steps + 1
        if steps % 3 == 0:
            going = None
            if steps % 2 == 0:
                moved = order.pop(10)
                boards.reorder(Move(9, moved, before=order[400]))
                order.insert(401, moved)
        assert steps < 200
    assert [pin.pin for pin in boards.page(9, 500, None).pins] == order[:500]
    assert steps > 600 // 2 // 64
    assert boards.reorder(Move(9, 600, before=300)).changed
