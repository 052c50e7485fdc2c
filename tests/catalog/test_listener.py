"""A web process that hears of updates: the records that it holds are replaced at once, and no answer claims more than
the process knows, whatever becomes of the queue.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
import structlog.testing

from feedstore.catalog.pins import key_of, update_of
from feedstore.catalog.reader import Got
from feedstore.domain import Followed, Pin, PinDeleted, PinSaved, user
from tests.catalog.reader_fakes import LIFETIMES, START_MS, Batches, ByHand, Clock, FakeReader, catalog_of
from tests.effort import part
from tests.queue.memory_queue import MemoryQueue
from workers.app.catalogs import pin_updates
from workers.catalog import listener as listening
from workers.catalog.listener import APART_MS, Listener, running
from workers.following.messages import Task, encode_action
from workers.following.topics import ACTIONS
from workers.pipeline.retry import Rest
from workers.pipeline.ticks import Settled, Tick
from workers.queue.port import Queue, QueueUnavailableError

KEY = key_of(5)
MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def every_level() -> Iterator[None]:
    """Logs every level, whatever level a command of an earlier test has set for this process."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "POLL_S", 0)


def saved(pin: int, board: int, at_ms: int) -> PinSaved:
    return PinSaved(Pin(pin, 7, board, 1_000), at_ms)


def deleted(pin: int, at_ms: int) -> PinDeleted:
    return PinDeleted(Pin(pin, 7, 70, 1_000), at_ms)


def new_listener(
    catalog: Any, connect: Callable[[], Queue], clock: Callable[[], float], clock_ms: Callable[[], int]
) -> Listener[Task]:
    rest = Rest(clock, rng=random.Random(1))
    ttl_s = LIFETIMES.ttl_ms / 1_000
    catalogs = {"pins": catalog}
    return Listener(
        "l", catalogs, lambda task: ("pins", pin_updates(task)), connect, ACTIONS, clock, clock_ms, ttl_s, rest
    )


class Bench:
    """A queue with two partitions, a store that knows as much as it is told, and a process that listens.

    skew_ms: how far the clock of the process is ahead of the source's.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.skew_ms = 0
        self.queue = self.new_queue()
        self.is_away = False
        self.reader = FakeReader({KEY: update_of(saved(5, 50, START_MS)).record or b""})
        self.catalog = catalog_of(self.reader, self.clock, self.now_ms)
        self.listener = new_listener(self.catalog, self.connect, self.clock, self.now_ms)

    def new_queue(self) -> MemoryQueue:
        return MemoryQueue({ACTIONS: 2}, self.clock.now_ms)

    def now_ms(self) -> int:
        return self.clock.ms + self.skew_ms

    def connect(self) -> Queue:
        if self.is_away:
            raise QueueUnavailableError("away")
        return Lent(self.queue)

    def publish(self, action: Any, partition: int = 0) -> None:
        self.queue.publish(ACTIONS, [encode_action(Task(action))], partition)

    def tick(self, *partitions: int) -> None:
        for partition in partitions or (0, 1):
            self.queue.publish(ACTIONS, [encode_action(Tick(self.clock.ms, partition, 2))], partition)

    def hear(self) -> None:
        for _ in range(3):
            self.listener.step()

    def follow(self) -> None:
        """The listener begins, and the key is fetched once the store knows of all updates that may have been missed."""
        self.hear()
        self.pass_ms(APART_MS + 1_000)
        self.reader.known_ms = self.clock.ms
        self.got()

    def pass_ms(self, ms: int) -> None:
        """Lets time pass, with a tick every minute."""
        until_ms = self.clock.ms + ms
        while self.clock.ms < until_ms:
            self.clock.ms = min(until_ms, self.clock.ms + MINUTE_MS)
            self.tick()
            self.hear()

    def got(self) -> Got:
        return self.catalog.begin([KEY]).result()

    @property
    def is_followed(self) -> bool:
        held = self.catalog._cache.entry(KEY)
        assert held is not None
        return held.stream != 0 and held.stream == self.catalog._heard.following.stream


class Lent:
    """A queue that the bench keeps open."""

    def __init__(self, queue: MemoryQueue) -> None:
        self.tail = queue.tail
        self.partitions = queue.partitions

    def close(self) -> None: ...


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Updates that are heard
# ----------------------------------------------------------------------------------------------------------------------


def test_what_is_held_is_replaced_by_what_is_recorded_since_in_any_partition(bench: Bench):
    bench.hear()
    bench.got()
    for partition in (0, 1):
        for action in (saved(5, 51 + partition, START_MS + 10 + partition), Followed(1, user(2), 3, 4)):
            bench.publish(action, partition)
        bench.hear()
        assert bench.got().records == {KEY: update_of(saved(5, 51 + partition, 1)).record}
    bench.publish(deleted(5, START_MS + 20))
    bench.hear()
    assert bench.got().records == {KEY: update_of(deleted(5, 1)).record}
    assert bench.catalog.counts().updates == 3
    assert len(bench.reader.calls) == 1


def test_what_is_followed_stays_fresh_though_it_was_loaded_long_ago(bench: Bench):
    bench.follow()
    calls = len(bench.reader.calls)
    bench.pass_ms(LIFETIMES.followed_ttl_ms - 5 * MINUTE_MS)
    assert bench.got().behind_ms == 1
    assert len(bench.reader.calls) == calls


def test_what_is_known_waits_for_every_partition(bench: Bench):
    bench.follow()
    bench.clock.ms += 10_000
    bench.tick(0)
    bench.hear()
    assert bench.got().behind_ms == 10_000
    bench.clock.ms += 10_000
    bench.tick(1)
    bench.hear()
    assert bench.got().behind_ms == 10_001


def test_what_was_fetched_when_it_had_just_begun_is_not_followed(bench: Bench):
    """Updates that were published before it began are missing, and the store may lack them, too."""
    bench.publish(deleted(5, START_MS + 5))
    bench.clock.ms += 10
    bench.hear()
    bench.reader.known_ms = START_MS + 4
    bench.got()
    bench.pass_ms(APART_MS // 2)
    assert (bench.got().behind_ms or 0) >= APART_MS // 2


def test_the_time_is_taken_when_the_tail_has_begun(bench: Bench):
    """Updates that were published while it began may have been missed."""

    class Opening(Lent):
        def __init__(self, queue: MemoryQueue) -> None:
            super().__init__(queue)
            self.tail = self.slowly

        def slowly(self, topic: Any) -> Any:
            tail = bench.queue.tail(topic)
            bench.clock.ms += 10_000
            return tail

    listener = new_listener(bench.catalog, lambda: Opening(bench.queue), bench.clock, bench.now_ms)  # type: ignore[arg-type, return-value]
    listener.step()
    assert bench.catalog._heard._floor_ms == START_MS + 10_000 + APART_MS


def test_a_tick_speaks_of_what_precedes_it_and_of_nothing_in_the_next_poll(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listening, "BATCH", 1)
    bench.follow()
    bench.clock.ms += 1_000
    bench.publish(deleted(5, bench.clock.ms - 500), 0)
    bench.tick()
    while bench.got().records == {KEY: update_of(saved(5, 50, 1)).record}:
        assert (bench.got().behind_ms or 0) >= 500
        bench.listener.step()
    bench.hear()
    assert bench.got().behind_ms == 1


def test_an_action_that_comes_again_from_the_dead_letters_is_fetched_although_what_is_held_is_newer(bench: Bench):
    """The store, which could not enter it, says nothing of that: what it knows is later."""
    bench.follow()
    assert bench.got().records == {KEY: update_of(saved(5, 50, 1)).record}
    deletion = deleted(5, bench.reader.known_ms - 500)
    bench.reader.update(update_of(deletion))
    bench.publish(deletion, 1)
    bench.hear()
    assert bench.got().records == {KEY: update_of(deletion).record}


def test_an_action_that_the_store_has_not_entered_again_yet_is_missed_for_a_ttl_only(bench: Bench):
    bench.follow()
    deletion = deleted(5, bench.reader.known_ms - 500)
    bench.publish(deletion, 1)
    bench.hear()
    assert bench.got().records == {KEY: update_of(saved(5, 50, 1)).record}
    bench.reader.update(update_of(deletion))
    bench.pass_ms(LIFETIMES.ttl_ms)
    assert bench.got().records == {KEY: update_of(deletion).record}


# Gaps
# ----------------------------------------------------------------------------------------------------------------------


def miss(bench: Bench) -> None:
    """An update of the held record is recorded, and is not in the queue any more."""
    bench.clock.ms += 10
    bench.publish(deleted(5, bench.clock.ms))
    bench.clock.ms += 10
    bench.queue.expire(-1, {})


def test_after_messages_expired_unread_nothing_old_is_fresh(bench: Bench):
    bench.follow()
    missed_ms = bench.clock.ms
    miss(bench)
    with structlog.testing.capture_logs() as logs:
        bench.hear()
    assert logs[0]["event"] == "catalog.not_heard"
    assert (bench.catalog.heard_ms() or 0) < missed_ms
    bench.pass_ms(2 * MINUTE_MS)
    assert bench.catalog.heard_ms() == bench.clock.ms - 1
    assert not bench.is_followed
    assert bench.now_ms() - (bench.got().behind_ms or 0) <= missed_ms
    bench.pass_ms(LIFETIMES.ttl_ms)
    bench.reader.known_ms = bench.clock.ms
    bench.got()
    assert bench.is_followed, "it follows again what is fetched since"


def test_while_the_queue_is_away_it_asks_less_often_and_begins_again(bench: Bench):
    bench.is_away = True
    asked = 0
    with structlog.testing.capture_logs() as logs:
        for _ in range(2_000):
            bench.listener.step()
            bench.clock.ms += 100
            asked += 1
    assert 5 < len(logs) < 60, "200 s"
    assert {each["event"] for each in logs} == {"catalog.not_heard"}
    bench.is_away = False
    bench.clock.ms += MINUTE_MS
    bench.follow()
    assert bench.is_followed


def test_a_queue_that_was_closed_is_opened_again(bench: Bench):
    bench.follow()
    bench.queue.close()
    missed_ms = bench.clock.ms
    bench.queue = bench.new_queue()
    bench.publish(deleted(5, missed_ms + 1))
    bench.hear()
    bench.pass_ms(MINUTE_MS)
    assert not bench.is_followed
    assert bench.now_ms() - (bench.got().behind_ms or 0) <= missed_ms


def test_another_queue_in_the_place_of_a_silent_one_is_found(bench: Bench):
    bench.follow()
    silent, bench.queue = bench.queue, bench.new_queue()
    bench.clock.ms += LIFETIMES.ttl_ms
    with structlog.testing.capture_logs() as logs:
        bench.hear()
    assert "no tick in 300 s" in logs[0]["error"]
    bench.pass_ms(MINUTE_MS)
    bench.publish(saved(5, 99, bench.clock.ms))
    bench.hear()
    assert bench.got().records == {KEY: update_of(saved(5, 99, 1)).record}
    silent.close()


def test_a_message_that_cannot_be_read_is_a_gap(bench: Bench):
    bench.follow()
    missed_ms = bench.clock.ms
    bench.clock.ms += 10
    with structlog.testing.capture_logs() as logs:
        for _ in range(10):
            bench.queue.publish(ACTIONS, [b"of a later version"], 1)
            bench.hear()
    assert [each["event"] for each in logs] == ["catalog.gap"]
    bench.pass_ms(MINUTE_MS)
    assert not bench.is_followed
    assert bench.now_ms() - (bench.got().behind_ms or 0) <= missed_ms
    bench.pass_ms(LIFETIMES.ttl_ms)
    bench.reader.known_ms = bench.clock.ms
    bench.got()
    assert bench.is_followed


# Clocks
# ----------------------------------------------------------------------------------------------------------------------


def test_with_a_clock_that_is_too_far_behind_nothing_is_followed_until_it_is_set(bench: Bench):
    bench.skew_ms = -APART_MS - 5_000
    bench.follow()
    assert bench.got().behind_ms is None
    bench.pass_ms(MINUTE_MS)
    assert bench.catalog._heard.following.known_ms == 0, "ticks show it"
    bench.skew_ms = 0
    bench.pass_ms(APART_MS + MINUTE_MS)
    assert bench.catalog._heard.following.known_ms == bench.clock.ms - 1
    assert not bench.is_followed


def test_a_tick_from_before_a_clock_was_set_back_says_nothing(bench: Bench):
    bench.follow()
    far_ms = bench.clock.ms + 86_400_000
    for partition in (0, 1):
        bench.queue.publish(ACTIONS, [encode_action(Tick(far_ms, partition, 2))], partition)
    bench.pass_ms(MINUTE_MS)
    assert bench.got().behind_ms == 1


def test_a_tick_of_partitions_that_there_are_not_says_nothing(bench: Bench):
    bench.follow()
    impossible = Tick(bench.clock.ms, 2**33, 2**34)
    bench.queue.publish(ACTIONS, [encode_action(impossible)], 0)
    bench.pass_ms(MINUTE_MS)
    assert bench.got().behind_ms == 1


def test_ticks_that_say_nothing_do_not_hide_that_no_others_come(bench: Bench):
    bench.follow()
    for _ in range(2):
        bench.clock.ms += LIFETIMES.ttl_ms // 2 + 1
        bench.queue.publish(ACTIONS, [encode_action(Tick(bench.clock.ms, 2, 3))], 0)
        with structlog.testing.capture_logs() as logs:
            bench.listener.step()
    assert [line["event"] for line in logs] == ["catalog.not_heard"]


def test_if_the_queue_goes_away_when_it_is_asked_for_its_partitions_it_is_opened_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench.follow()
    with monkeypatch.context() as away:

        def partitions(_topic: Any) -> int:
            raise QueueUnavailableError("away")

        away.setattr(bench.queue, "partitions", partitions)
        bench.listener.close()
        with structlog.testing.capture_logs() as logs:
            bench.listener.step()
            bench.tick()
            bench.listener.step()
    assert [line["event"] for line in logs] == ["catalog.listening", "catalog.not_heard"]
    bench.pass_ms(MINUTE_MS)
    bench.publish(saved(5, 98, bench.clock.ms))
    bench.hear()
    assert bench.got().records == {KEY: update_of(saved(5, 98, 1)).record}


# In a thread
# ----------------------------------------------------------------------------------------------------------------------


def test_in_a_thread_it_hears_until_the_end_and_closes_its_queue(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listening, "POLL_S", 0.05)
    entered = threading.Event()

    class Told:
        def heard_from(self, after_ms: int) -> None:
            assert after_ms == bench.now_ms() + APART_MS
            bench.publish(saved(5, 51, START_MS))

        def entered(self, update: object) -> None:
            entered.set()

    queue = bench.queue
    with running(new_listener(Told(), lambda: queue, bench.clock, bench.now_ms)):
        assert entered.wait(60)
    assert queue._state.closed
    assert not [each for each in threading.enumerate() if each.name == "l"]


def test_whatever_fails_in_it_stays_in_it(bench: Bench):
    failed = threading.Event()

    def connect() -> Queue:
        failed.set()
        raise ZeroDivisionError

    with (
        structlog.testing.capture_logs() as logs,
        running(new_listener(bench.catalog, connect, bench.clock, bench.now_ms)),
    ):
        assert failed.wait(60)
        assert bench.got().records
    assert logs[0]["log_level"] == "error"


# A simulation
# ----------------------------------------------------------------------------------------------------------------------

PINS = [1, 2, 3]


class Simulation:
    """A source, a relay and tickers that are slow, a queue that forgets and goes away, a store that reads the queue in
    its own time or gets a batch, and a process that listens and fetches at any moment.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        # Often the largest skew that is allowed.
        self.skew_ms = self.rng.choice([1 - APART_MS, 1 - APART_MS, 0, APART_MS])
        self.queue = self.new_queue()
        self.is_away = False
        reads = ByHand()
        self.reader = FakeReader()
        self.catalog = catalog_of(self.reader, self.clock, self.now_ms, reads)
        self.listener = new_listener(self.catalog, self.connect, self.clock, self.now_ms)
        self.history: dict[bytes, list[tuple[int, bytes | None]]] = {key_of(pin): [(0, None)] for pin in PINS}
        self.unrelayed: list[PinSaved | PinDeleted] = []
        self.unsent: list[Tick] = []
        self.logs: list[list[Task | Tick]] = [[], []]
        self.read = [0, 0]
        self.times: dict[bytes, int] = {}
        self.settled = Settled()
        self.batches = Batches(self.rng, self.catalog, reads, self.reader, self.history, self.some)
        self.followed = 0

    def new_queue(self) -> MemoryQueue:
        return MemoryQueue({ACTIONS: 2}, self.clock.now_ms)

    def now_ms(self) -> int:
        return self.clock.ms + self.skew_ms

    def connect(self) -> Queue:
        if self.is_away:
            raise QueueUnavailableError("away")
        return Slow(self.queue, self.some)  # type: ignore[return-value]

    def run(self, steps: int) -> None:
        moves = [self.commit, self.relay, self.relay, self.tick, self.send, self.send, self.hear, self.hear]
        moves += [self.store, self.store, self.wait]
        moves += [self.batches.begin, self.batches.read_or_land, self.batches.read_or_land]
        for _ in range(steps):
            self.rng.choice(moves)()
            if self.rng.random() < 0.04:
                self.rng.choice([self.expire, self.close, self.malform, self.build, self.change_away])()

    def some(self) -> None:
        """Events that happen while another step is under way."""
        for _ in range(self.rng.randrange(12)):
            self.rng.choice([self.commit, self.relay, self.tick, self.send, self.send, self.store])()

    # The source

    def commit(self) -> None:
        self.clock.ms += 2
        pin, at_ms = self.rng.choice(PINS), self.clock.ms
        action = deleted(pin, at_ms) if self.rng.random() < 0.3 else saved(pin, at_ms, at_ms)
        update = update_of(action)
        self.history[update.key].append((update.time_ms, update.record))
        self.unrelayed.append(action)

    def relay(self) -> None:
        if self.unrelayed:
            action = self.rng.choice(self.unrelayed)
            self.publish(Task(action), self.rng.randrange(2))
            if self.rng.random() < 0.8:  # or else it comes again
                self.unrelayed.remove(action)

    def settled_ms(self) -> int:
        return min((action.committed_ms for action in self.unrelayed), default=self.clock.ms)

    def tick(self) -> None:
        for partition in (0, 1):
            self.unsent.append(Tick(self.settled_ms(), partition, 2))

    def send(self) -> None:
        """Tickers are slow, and there are several: in each partition ticks come in any order."""
        if self.unsent:
            tick = self.unsent.pop(self.rng.randrange(len(self.unsent)))
            self.publish(tick, tick.source)

    def publish(self, message: Task | Tick, partition: int) -> None:
        self.queue.publish(ACTIONS, [encode_action(message)], partition)
        self.logs[partition].append(message)

    # The store

    def store(self) -> None:
        partition = self.rng.randrange(2)
        for message in self.logs[partition][self.read[partition] :][: self.rng.randrange(5)]:
            self.read[partition] += 1
            if isinstance(message, Tick):
                self.settled.note(message)
                self.reader.known_ms = max(self.reader.known_ms, (self.settled.settled_ms() or 1) - 1)
            else:
                self.enter(*pin_updates(message))

    def enter(self, update: Any) -> None:
        if update.time_ms > self.times.get(update.key, 0):
            self.times[update.key] = update.time_ms
            self.reader.update(update)

    def build(self) -> None:
        """A batch that is read at once."""
        for key, versions in self.history.items():
            time_ms, record = versions[-1]
            if record is not None and time_ms > self.times.get(key, 0):
                self.times[key], self.reader.records[key] = time_ms, record
        self.reader.known_ms = max(self.reader.known_ms, self.settled_ms() - 1)

    # The queue

    def expire(self) -> None:
        self.queue.expire(-1, {})

    def close(self) -> None:
        self.queue.close()
        self.queue = self.new_queue()

    def malform(self) -> None:
        """An update that this process cannot read, and the store can."""
        self.commit()
        action = self.unrelayed.pop()
        partition = self.rng.randrange(2)
        self.queue.publish(ACTIONS, [b"{"], partition)
        self.logs[partition].append(Task(action))

    def change_away(self) -> None:
        self.is_away = not self.is_away

    # The process

    def hear(self) -> None:
        self.listener.step()
        self.followed += bool(self.catalog._heard.following.known_ms)

    def wait(self) -> None:
        self.clock.ms += self.rng.choice([1, 10, 1_000, 20_000, APART_MS])


class Slow:
    """A queue whose tails take a while to open. meanwhile: called before and after that."""

    def __init__(self, queue: MemoryQueue, meanwhile: Callable[[], None]) -> None:
        self._queue = queue
        self.partitions = queue.partitions
        self._meanwhile = meanwhile

    def tail(self, topic: Any) -> Any:
        self._meanwhile()
        tail = self._queue.tail(topic)
        self._meanwhile()
        return tail

    def close(self) -> None: ...


def simulate(seeds: range) -> None:

    followed = 0
    for seed in seeds:
        simulation = Simulation(seed)
        with structlog.testing.capture_logs():
            simulation.run(400)
        assert simulation.batches.answers > 20
        followed += simulation.followed
    assert followed > 10 * len(seeds)


def test_whatever_becomes_of_the_queue_no_answer_says_that_it_is_newer_than_it_is():
    simulate(range(40))


@pytest.mark.long
def test_the_same_for_longer():
    simulate(range(1_000, 1_000 + part(1_500)))


# Without a guard
# ----------------------------------------------------------------------------------------------------------------------


def found() -> None:
    with pytest.raises(AssertionError):
        simulate(range(400))


def test_a_time_that_may_be_before_what_was_missed_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listening, "APART_MS", 0)
    found()


def test_a_gap_that_is_passed_over_is_found(monkeypatch: pytest.MonkeyPatch):
    begin = Listener._begin

    def begins_once(self: Listener[Any]) -> None:
        if not self._began_s:
            begin(self)

    monkeypatch.setattr(Listener, "_begin", begins_once)
    found()


def test_what_one_partition_says_of_all_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Settled, "settled_ms", lambda self: max(self._by_source.values(), default=None))
    found()
