"""The facts that are known of a shard without waiting for it: its time, and whether it is away."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from feedstore.domain import user
from feedstore.follows import watched
from feedstore.follows.port import Backlog, ClockStepError, FollowStoreUnavailableError
from feedstore.follows.store import FollowStore

START_MS = 1_700_000_000_000
TIME_OUT_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class FarShard:
    """A shard on another machine, whose clock has a pace of its own. Calls take time: their time-out if it is away."""

    def __init__(self, clock: Clock, pace: float = 1.0, ahead_ms: int = 0) -> None:
        self.clock = clock
        self.pace = pace
        self.ahead_ms = ahead_ms
        self.takes_s = 0.001
        self.away = False
        self.relayed = False
        self.stepped = False
        self.calls = 0

    def true_ms(self) -> int:
        return START_MS + self.ahead_ms + int(self.clock.s * self.pace * 1_000)

    def now_ms(self) -> int:
        shown_ms = self._answer()
        if self.stepped:
            raise ClockStepError("its clock is ahead: set that server's clock", 400 * 86_400_000)
        return shown_ms

    def _answer(self) -> int:
        self.calls += 1
        if self.away:
            self.clock.s += TIME_OUT_S
            raise FollowStoreUnavailableError("no answer")
        self.clock.s += self.takes_s / 2
        shown = self.true_ms()
        self.clock.s += self.takes_s / 2
        return shown

    def backlog(self) -> Backlog:
        self.now_ms()
        return Backlog(1, 1, 5)

    def has_relayed(self) -> bool:
        self.now_ms()
        return self.relayed

    def active_edges_after(self, places: object, limit: int) -> list[object]:
        self._answer()
        return []


class Bench:
    """A store on shards far away. Background work is done when `look` is called."""

    def __init__(self, *shards: FarShard, clock: Clock) -> None:
        self.clock = clock
        self.shards = shards
        self.waiting: list[Callable[[], None]] = []
        self.store = FollowStore(shards, None, self.waiting.append, clock)  # type: ignore[arg-type]

    def look(self) -> None:
        """Looks take no time of the callers."""
        waiting, now_s = list(self.waiting), self.clock.s
        self.waiting.clear()
        for look in waiting:
            look()
        self.clock.s = now_s


def far_away() -> tuple[Bench, FarShard]:
    """A store of one shard."""
    clock = Clock()
    far = FarShard(clock)
    return Bench(far, clock=clock), far


@given(
    st.lists(st.tuples(st.floats(0, 3_000), st.floats(0, 5), st.booleans()), max_size=30),
    st.floats(1 - watched.DRIFT / 2, 1 + watched.DRIFT / 2),
)
def test_rule_8_the_time_of_the_store_is_between_the_bounds_however_long_a_shard_is_away(
    story: list[tuple[float, float, bool]], pace: float
):
    clock = Clock()
    near, far = FarShard(clock), FarShard(clock, pace, ahead_ms=-500)
    bench = Bench(near, far, clock=clock)
    bench.store.about_now()
    for passes_s, takes_s, away in story:
        clock.s += passes_s
        far.takes_s, far.away = takes_s, away
        bench.store.about_now()
        bench.look()
        earliest_ms, latest_ms = bench.store.about_now()
        assert earliest_ms <= min(near.true_ms(), far.true_ms()) <= latest_ms


def test_a_look_that_gets_no_thread_is_tried_again():
    clock = Clock()
    far = FarShard(clock)
    begun: list[Callable[[], None]] = []

    def refuse(look: Callable[[], None]) -> None:
        begun.append(look)
        raise RuntimeError("can't start new thread")

    store = FollowStore([far], None, refuse, clock)  # type: ignore[arg-type]
    first = store.about_now()
    clock.s += 100
    assert store.about_now().earliest_ms > first.earliest_ms
    assert len(begun) >= 2


def test_a_store_that_closes_meanwhile_is_unavailable():
    clock = Clock()
    executor = ThreadPoolExecutor(2)
    shards = FarShard(clock), FarShard(clock)
    store = FollowStore(shards, executor, lambda look: None, clock)  # type: ignore[arg-type]
    executor.shutdown()
    with pytest.raises(FollowStoreUnavailableError, match="shutdown"):
        store.now()


def test_who_asks_for_the_time_waits_for_no_shard():
    bench, far = far_away()
    bench.store.about_now()
    far.away = True
    began_s = bench.clock.s
    for _ in range(100):
        bench.store.about_now()
        bench.look()
    assert bench.clock.s == began_s


def test_a_shard_that_was_never_heard_is_left_out_and_without_any_there_is_no_time():
    clock = Clock()
    near, far = FarShard(clock), FarShard(clock, ahead_ms=-500)
    bench = Bench(near, far, clock=clock)
    near.away = far.away = True
    with pytest.raises(FollowStoreUnavailableError, match="no shard"):
        bench.store.about_now()
    near.away = False
    assert bench.store.about_now().latest_ms >= near.true_ms()
    far.away = False
    for _ in range(3):
        bench.store.about_now()
        bench.look()
        clock.s += 60
    assert bench.store.about_now().latest_ms < near.true_ms()


def test_rule_12_nobody_waits_for_the_time_out_of_a_shard_that_is_away():
    clock = Clock()
    bench = Bench(FarShard(clock), FarShard(clock), clock=clock)
    away = bench.shards[1]
    away.away = True
    for _ in range(1_000):
        with pytest.raises(FollowStoreUnavailableError):
            bench.store.backlog()
        bench.look()
    assert clock.s < (watched.AWAY_AFTER + 1) * TIME_OUT_S
    assert bench.shards[0].calls <= watched.AWAY_AFTER, "nothing is asked of the others in vain"

    away.away = False
    clock.s += TIME_OUT_S + watched.LOOK_EVERY_S
    with pytest.raises(FollowStoreUnavailableError, match=r"shard 1 is away.*no answer"):
        bench.store.backlog()
    bench.look()
    assert bench.store.backlog().actions == 2


def test_rule_12_calls_of_one_shard_go_on_while_another_is_away():
    clock = Clock()
    bench = Bench(FarShard(clock), FarShard(clock), FarShard(clock), clock=clock)
    bench.shards[0].away = True
    answered = refused = 0
    for follower in range(1, 100):
        try:
            bench.store.following_after(follower, None, 1)
        except FollowStoreUnavailableError:
            refused += 1
        else:
            answered += 1
    assert refused > 10
    assert answered > 50
    assert clock.s < (watched.AWAY_AFTER + 1) * TIME_OUT_S
    assert bench.store.newest_pins([user(1)][:0], 1) == {}


def test_what_failed_long_ago_is_called_again():
    bench, far = far_away()
    far.away = True
    for _ in range(watched.AWAY_AFTER + 1):
        with pytest.raises(FollowStoreUnavailableError):
            bench.store.backlog()
    far.away = False
    bench.clock.s += watched.FORGOTTEN_S + 1
    assert bench.store.backlog().actions == 1


def test_one_failure_among_others_keeps_nobody_away():
    bench, far = far_away()
    for _ in range(10):
        far.away = True
        with pytest.raises(FollowStoreUnavailableError):
            bench.store.backlog()
        far.away = False
        assert bench.store.backlog().actions == 1


def test_the_log_says_when_a_shard_is_away_and_when_it_is_back():
    bench, far = far_away()
    structlog.reset_defaults()  # a command that ran in this process has its own
    with capture_logs() as logs:
        far.away = True
        for _ in range(watched.AWAY_AFTER + 1):
            with pytest.raises(FollowStoreUnavailableError):
                bench.store.backlog()
        far.away = False
        bench.look()
        bench.store.backlog()
    events = [(each["event"], each["shard"], each.get("after"), each.get("failures")) for each in logs]
    assert events == [
        ("follows.shard_away", 0, None, None),
        ("answers.again", 0, "follows.shard_away", watched.AWAY_AFTER),
    ]


def test_a_shard_whose_clock_has_stepped_is_not_away():
    """Nothing is stamped by it. What needs no time can be read, and pages show the pins that it has."""
    bench, far = far_away()
    bench.store.about_now()
    bench.look()
    far.stepped = True
    for _ in range(2 * watched.AWAY_AFTER):
        with pytest.raises(ClockStepError):
            bench.store.now()
        bench.store.about_now()
        bench.look()
        bench.clock.s += watched.LOOK_EVERY_S
    assert bench.store.following(1) == []


def test_a_clock_that_jumps_ahead_is_logged(monkeypatch: pytest.MonkeyPatch):
    bench, far = far_away()
    lines: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr(watched, "_log", SimpleNamespace(error=lambda event, **values: lines.append((event, values))))

    def some_time_passes() -> None:
        for _ in range(10):
            bench.store.about_now()
            bench.look()
            bench.clock.s += 10

    some_time_passes()
    assert lines == []
    far.ahead_ms = 400 * 86_400_000
    some_time_passes()
    [(event, values)] = lines
    assert (event, values["shard"]) == ("follows.clock_jumped", 0)
    assert abs(values["ahead_ms"] - far.ahead_ms) < 1_000


def test_one_shard_that_has_relayed_is_enough_and_one_that_is_away_may_have() -> None:
    clock = Clock()
    first, second = FarShard(clock), FarShard(clock)
    store = Bench(first, second, clock=clock).store
    assert not store.has_relayed()
    first.away = True
    with pytest.raises(FollowStoreUnavailableError):
        store.has_relayed()
    second.relayed = True
    assert store.has_relayed()
