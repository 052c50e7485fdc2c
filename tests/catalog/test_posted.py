"""Updates that are posted: their messages, their updater, and web processes that hear of them."""

import random

import pytest
from structlog.testing import capture_logs

from feedstore.catalog.cache import Cache, Lifetimes
from feedstore.catalog.forms import AS_BYTES
from feedstore.catalog.port import MAX_KEYS, MAX_RECORD_BYTES, Update
from feedstore.catalog.posting import AHEAD_MAX_MS, LATE_MS
from feedstore.catalog.reader import Catalog
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.http.queues import QueuesUnavailableError
from feedstore.replicas.attempts import InPlace
from tests.catalog.memory_catalog import MemoryCatalog
from tests.catalog.reader_fakes import Clock, FakeReader
from tests.queue.memory_queue import MemoryQueue
from workers.catalog import listener as listening
from workers.catalog.listener import APART_MS, Listener
from workers.catalog.messages import BATCH_BYTES, Change, Posted, batches, decode_update, encode_update
from workers.catalog.posting import QueuePosting, publish
from workers.catalog.topics import UPDATES
from workers.catalog.updater import CLOCKS_APART_MS, PostedUpdater, posted_to, updater_group
from workers.pipeline.retry import Rest
from workers.pipeline.ticks import Tick
from workers.queue.port import MalformedError, Queue, QueueUnavailableError, reset

START = 1_700_000_000_000
KEPT = 3_600_000
GROUP = updater_group("ads", "a")


# Messages
# --------------------------------------------------------------------------------------------------------------------


def test_updates_travel_in_messages_that_are_bounded():
    rng = random.Random(1)
    updates = [
        Update(b"%d" % n, n + 1, rng.choice([None, b"", rng.randbytes(rng.choice([9, 60_000]))])) for n in range(3_000)
    ]
    found: list[Update] = []
    for posted in batches("ads", updates):
        value = encode_update(posted)
        assert len(value) <= 2 * BATCH_BYTES
        assert len(posted.updates) <= MAX_KEYS
        body = decode_update(value)
        assert isinstance(body, Posted)
        found += [Update(each.key, each.time_ms, each.record) for each in body.updates]
    assert found == updates
    assert list(batches("ads", [])) == []
    [largest] = batches("ads", [Update(b"k" * 256, 1, b"\xff" * MAX_RECORD_BYTES)])
    assert decode_update(encode_update(largest)) == largest


def test_a_tick_travels():
    tick = Tick(5, 0, 2)
    assert decode_update(encode_update(tick)) == tick


ONE = b'{"v":1,"body":{"type":"updates","catalog":"ads","updates":[["YQ==",5,"AA=="],["Yg==",6,null]]}}'


def test_a_message_of_today_is_read_for_ever():
    assert decode_update(ONE) == Posted("ads", [Change(b"a", 5, b"\0"), Change(b"b", 6, None)])
    assert encode_update(Posted("ads", [Change(b"a", 5, b"\0"), Change(b"b", 6, None)])) == ONE
    longer = ONE.replace(b"6,null]", b'6,null,"of a later version"]').replace(b'"catalog"', b'"more":1,"catalog"')
    assert decode_update(longer) == decode_update(ONE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"?", "not_json"),
        (b" " * 1_000_001, "oversized"),
        (ONE.replace(b'"v":1', b'"v":2'), "unknown_version"),
        (b'{"v":2,"body":{"type":"of a later version"}}', "unknown_version"),
        (b"[]", "malformed"),
        (ONE.replace(b"YQ==", b""), "malformed"),
        (ONE.replace(b"YQ==", b"?"), "malformed"),
        (ONE.replace(b",5,", b",0,"), "malformed"),
        (ONE.replace(b",5,", b",9223372036854775807,"), "malformed"),
        (b'{"v":1,"body":{"type":"updates","catalog":"ads","updates":[]}}', "malformed"),
    ],
)
def test_what_is_no_message_has_a_reason(value: bytes, reason: str):
    with pytest.raises(MalformedError) as refused:
        decode_update(value)
    assert refused.value.reason == reason


def test_a_queue_that_is_away_is_opened_again_until_it_answers():
    queue = MemoryQueue({UPDATES: 1}, lambda: START)
    away = [True]

    def opener() -> Queue:
        if away[0]:
            raise QueueUnavailableError("away")
        return queue

    posting = QueuePosting(opener)
    with pytest.raises(QueuesUnavailableError):
        posting.post("ads", [Update(b"a", 5, None)])
    away[0] = False
    posting.post("ads", [Update(b"a", 5, None)])
    consumer = queue.consumer(UPDATES, "test")
    [message] = consumer.poll(10, 0)
    assert decode_update(message.value) == Posted("ads", [Change(b"a", 5, None)])
    posting.close()
    with pytest.raises(QueuesUnavailableError):
        posting.post("ads", [Update(b"a", 5, None)])


# The updater
# --------------------------------------------------------------------------------------------------------------------


class Bench:
    """A queue with two partitions, a catalog in memory, and one clock for all."""

    def __init__(self) -> None:
        self.now_ms = START
        self.queue = MemoryQueue({UPDATES: 2}, lambda: self.now_ms)
        self.store = MemoryCatalog()
        self.queue.consumer(UPDATES, GROUP).close()

    def post(self, *updates: Update, catalog: str = "ads") -> None:
        self.now_ms += 1
        publish(self.queue, catalog, updates)

    def tick(self, *partitions: int) -> int:
        """Publishes ticks; returns the time that the delta then knows."""
        self.now_ms += 1
        settled_ms = self.now_ms - LATE_MS
        for partition in partitions or (0, 1):
            self.queue.publish(UPDATES, [encode_update(Tick(settled_ms, partition, 2))], partition)
        return settled_ms - 1

    def updater(self) -> PostedUpdater:
        return PostedUpdater(self.store, posted_to("ads"), self.queue, UPDATES, GROUP, lambda: self.now_ms, KEPT)

    def work(self) -> None:
        """Begins, and does all that is there, as a stage does."""
        updater = self.updater()
        updater.begin()
        consumer = self.queue.consumer(UPDATES, GROUP)
        try:
            while messages := consumer.poll(3, 0):
                bodies = [(each.partition, decode_update(each.value)) for each in messages]
                updater.enter(body for _, body in bodies if isinstance(body, Posted))
                updater.tick([each for each in bodies if isinstance(each[1], Tick)])  # type: ignore[misc]
                consumer.commit({each.partition: each.offset + 1 for each in messages})
        finally:
            consumer.close()

    def said(self, *keys: bytes) -> list[bytes | None]:
        found = self.store.fetch(keys)
        return [found.records.get(key) for key in keys]


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.store.use(made.store.load(1_000, [(b"a", b"old"), (b"b", b"old")]).id)
    return made


def test_updates_of_the_catalog_are_entered_and_no_others(bench: Bench):
    bench.post(Update(b"a", START, b"new"), Update(b"b", START, None))
    bench.post(Update(b"a", START + 1, b"other"), catalog="offers")
    known_ms = bench.tick()
    bench.work()
    assert bench.said(b"a", b"b") == [b"new", None]
    assert bench.store.fetch([b"a"]).known_ms == known_ms


def test_ticks_of_a_relay_whose_clock_is_ahead_are_logged_once_in_a_while(bench: Bench):
    """All that it sends says nothing, and the catalog gets ever further behind."""
    updater = bench.updater()
    with capture_logs() as logs:
        for _ in range(100):
            bench.now_ms += 10_000
            ahead_ms = bench.now_ms + 25_000 - LATE_MS
            updater.tick([(0, Tick(bench.now_ms - LATE_MS, 0, 2)), (1, Tick(ahead_ms, 1, 2))])
        bench.now_ms += 600_000
        updater.tick([(1, Tick(bench.now_ms + 25_000 - LATE_MS, 1, 2))])
    assert [(each["event"], each["group"], each["ahead_ms"]) for each in logs] == [
        ("catalog.tick_ahead", GROUP, 15_000)
    ] * 2


def test_a_catalog_that_was_loaded_before_keeps_its_generations(bench: Bench):
    """Its delta is new, and lacks nothing: nothing had been posted before there was a topic."""
    bench.tick()
    bench.work()
    assert bench.store.delta().floor_ms == 1
    bench.store.load(1_001, [])


def test_it_begins_again_where_its_delta_is(bench: Bench):
    bench.tick()
    bench.work()
    held = dict(bench.store._updates), bench.store._delta  # a copy of its files
    bench.now_ms += 60_000
    bench.post(Update(b"a", bench.now_ms, b"new"))
    bench.tick()
    bench.work()
    bench.store._updates, bench.store._delta = dict(held[0]), held[1]
    assert bench.said(b"a") == [b"old"]
    bench.work()
    assert bench.said(b"a") == [b"new"]
    assert bench.store.delta().floor_ms == 1


def test_a_delta_that_was_lost_is_filled_from_all_that_is_kept(bench: Bench):
    bench.post(Update(b"a", START, b"new"))
    bench.now_ms += KEPT // 2
    bench.tick()
    bench.work()
    bench.store._updates, bench.store._delta = {}, MemoryCatalog().delta()
    bench.store._noted.clear()
    bench.work()
    assert bench.said(b"a") == [b"new"]
    assert bench.store.delta().floor_ms == 1


def test_what_the_queue_keeps_no_more_is_a_gap(bench: Bench):
    bench.tick()
    bench.work()
    bench.post(Update(b"a", START, b"gone"))
    bench.now_ms += KEPT + CLOCKS_APART_MS
    bench.queue.expire(KEPT, {})
    bench.post(Update(b"b", bench.now_ms, b"new"))
    bench.tick()
    bench.work()
    assert bench.said(b"a", b"b") == [b"old", b"new"]
    assert bench.store.delta().floor_ms > START + KEPT
    assert bench.store.fetch([b"a"]).known_ms == 1_000, "no answer claims to have what was lost"


def test_a_topic_that_was_made_again_is_a_gap(bench: Bench):
    """The positions of its groups went with it, and so did what they had not read."""
    bench.tick()
    bench.work()
    bench.post(Update(b"a", bench.now_ms, b"gone"))
    bench.queue = MemoryQueue({UPDATES: 2}, lambda: bench.now_ms)
    bench.post(Update(b"b", bench.now_ms, b"new"))
    bench.tick()
    bench.work()
    assert bench.said(b"a", b"b") == [b"old", b"new"]
    assert bench.store.fetch([b"a"]).known_ms == 1_000, "no answer claims to have what was lost"
    floor_ms = bench.store.delta().floor_ms
    assert floor_ms > bench.now_ms
    bench.work()
    assert bench.store.delta().floor_ms == floor_ms, "it is noted once"


@pytest.mark.parametrize("partition", [0, 1])
def test_a_group_that_was_forgotten_reads_all_that_is_kept_and_nothing_is_a_gap(bench: Bench, partition: int):
    """As if somebody deleted the group: the topic still has all that the delta lacks."""
    bench.tick()
    bench.now_ms += LATE_MS + CLOCKS_APART_MS + 1
    bench.tick()
    bench.work()
    publish(bench.queue, "ads", [Update(b"a", bench.now_ms, b"new")])
    bench.tick(partition)
    bench.queue.forget(UPDATES, GROUP)
    bench.work()
    assert bench.said(b"a") == [b"new"]
    assert bench.store.delta().floor_ms == 1


def test_a_new_delta_whose_updater_is_killed_before_it_reads_lacks_nothing(bench: Bench):
    """The group has no position yet, and nothing was lost."""
    bench.queue = MemoryQueue({UPDATES: 2}, lambda: bench.now_ms)
    bench.updater().begin()
    bench.post(Update(b"a", START, b"new"))
    bench.tick()
    bench.work()
    assert bench.said(b"a") == [b"new"]
    assert bench.store.delta().floor_ms == 1


def test_a_new_delta_on_an_old_topic_lacks_what_has_expired(bench: Bench):
    """As the delta of a cluster that was added. It reads the kept updates, so a batch of an hour ago may be loaded."""
    bench.post(Update(b"a", START, b"gone"))
    bench.tick()
    bench.now_ms += 2 * KEPT
    bench.queue.expire(KEPT, {})
    reset(bench.queue, UPDATES, GROUP)
    bench.tick()
    bench.work()
    floor_ms = bench.store.delta().floor_ms
    assert START + AHEAD_MAX_MS < floor_ms <= bench.now_ms - KEPT + AHEAD_MAX_MS


# Web processes
# --------------------------------------------------------------------------------------------------------------------

LIFETIMES = Lifetimes(ttl_ms=300_000, followed_ttl_ms=3_600_000)


def new_listener(catalog: Catalog[bytes], queue: Queue, clock: Clock, silent_s: float) -> Listener[Posted]:
    rest = Rest(clock, rng=random.Random(1))
    return Listener(
        "l",
        {"ads": catalog},
        lambda posted: (posted.catalog, posted.said()),
        lambda: queue,
        UPDATES,
        clock,
        clock.now_ms,
        silent_s,
        rest,
    )


class Heard:
    """A store that knows as much as it is told, and a process that listens to a queue with two partitions."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = MemoryQueue({UPDATES: 2}, self.clock.now_ms)
        self.reader = FakeReader({b"a": b"old", b"b": b"old"})
        self.catalog = Catalog(
            self.reader,
            InPlace(),
            Cache(1 << 20, LIFETIMES, lambda: 0.0, AS_BYTES),
            60.0,
            self.clock,
            self.clock.now_ms,
        )
        self.listener = new_listener(self.catalog, self.queue, self.clock, LIFETIMES.ttl_ms / 1_000)
        self.listener.step()
        self.clock.ms += APART_MS + LATE_MS + 1_000
        self.tick()
        self.reader.known_ms = self.clock.ms - LATE_MS - 1

    def hear(self, partition: int, *updates: Update) -> None:
        messages = [encode_update(each) for each in batches("ads", updates)]
        self.queue.publish(UPDATES, messages, partition)
        self.listen()

    def tick(self, *partitions: int) -> None:
        for partition in partitions or (0, 1):
            tick = Tick(self.clock.ms - LATE_MS, partition, 2)
            self.queue.publish(UPDATES, [encode_update(tick)], partition)
        self.listen()

    def listen(self) -> None:
        for _ in range(3):
            self.listener.step()

    def got(self, *keys: bytes) -> list[bytes | None]:
        found = self.catalog.begin(keys).result().records
        return [found.get(key) for key in keys]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    monkeypatch.setattr(listening, "POLL_S", 0)
    return Heard()


def test_what_was_posted_replaces_what_is_held_and_is_followed(heard: Heard):
    assert heard.got(b"a", b"b") == [b"old", b"old"]
    heard.hear(0, Update(b"a", heard.clock.ms - LATE_MS, b"new"))
    heard.hear(1, Update(b"b", heard.clock.ms, None))
    assert heard.got(b"a", b"b") == [b"new", None]
    heard.clock.ms += LIFETIMES.ttl_ms - 1_000
    heard.tick()
    heard.clock.ms += 2_000
    fetched = len(heard.reader.calls)
    assert heard.got(b"a") == [b"new"]
    assert len(heard.reader.calls) == fetched, "it is held for longer than its ttl"


def test_a_late_update_is_fetched_although_what_is_held_claims_to_be_newer(heard: Heard):
    assert heard.got(b"a") == [b"old"]
    late = Update(b"a", heard.clock.ms - LATE_MS - 1, b"late")
    heard.reader.records[b"a"] = b"late"
    heard.hear(0, late)
    assert heard.got(b"a") == [b"late"]


def test_a_late_deletion_at_the_very_time_up_to_which_an_answer_is_complete_is_fetched(heard: Heard):
    """The answer and the deletion have the same version, and the deletion wins."""
    assert heard.got(b"a") == [b"old"]
    late = Update(b"a", heard.reader.known_ms, None)
    del heard.reader.records[b"a"]
    heard.hear(0, late)
    assert heard.got(b"a") == [None]
    fetched = len(heard.reader.calls)
    heard.hear(0, late)
    assert heard.got(b"a") == [None]
    assert len(heard.reader.calls) == fetched, "what is held is that deletion"


def test_a_late_update_that_is_held_already_is_not_fetched(heard: Heard):
    heard.got(b"a")
    early = Update(b"a", heard.reader.known_ms + 1, b"new")
    heard.hear(0, early)
    heard.clock.ms += 60_000
    heard.tick()
    fetched = len(heard.reader.calls)
    heard.hear(0, early)
    assert heard.got(b"a") == [b"new"]
    assert len(heard.reader.calls) == fetched


def test_a_tick_from_before_a_clock_was_set_back_makes_no_update_late(heard: Heard):
    heard.got(b"a")
    far = Tick(heard.clock.ms + 86_400_000, 0, 2)
    heard.queue.publish(UPDATES, [encode_update(far)], 0)
    heard.hear(0, Update(b"a", heard.clock.ms, b"new"))
    heard.hear(0, Update(b"a", heard.clock.ms - 1, b"before"))
    fetched = len(heard.reader.calls)
    assert heard.got(b"a") == [b"new"]
    assert len(heard.reader.calls) == fetched


def test_a_store_that_lacks_a_late_update_is_believed_for_a_ttl_only(heard: Heard):
    heard.got(b"a")
    heard.hear(0, Update(b"a", heard.clock.ms - LATE_MS - 1, b"late"))
    assert heard.got(b"a") == [b"old"], "the store has not entered it yet"
    heard.reader.records[b"a"] = b"late"
    for _ in range(2):
        heard.clock.ms += LIFETIMES.ttl_ms // 2 + 1
        heard.tick()
    assert heard.got(b"a") == [b"late"]


def test_an_update_that_is_late_for_another_partition_is_not(heard: Heard):
    """A store that has read as far as that tick may have read no more of this partition."""
    heard.got(b"a")
    heard.clock.ms += 60_000
    heard.tick(1)
    heard.hear(0, Update(b"a", heard.clock.ms - LATE_MS - 30_000, b"in time"))
    fetched = len(heard.reader.calls)
    assert heard.got(b"a") == [b"in time"]
    assert len(heard.reader.calls) == fetched


def test_what_was_posted_to_others_is_passed_over(heard: Heard):
    heard.got(b"a")
    heard.queue.publish(UPDATES, [encode_update(Posted("offers", [Change(b"a", heard.clock.ms, b"other")]))])
    heard.listen()
    assert heard.got(b"a") == [b"old"]


KEYS = (b"a", b"b", b"c")
LAG_MS = 40_000


class World:
    """A store that a real updater fills, some messages at a time, and a process that reads it and listens. Some posts
    are late.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = Clock()
        self.clock.ms = START
        self.queue = MemoryQueue({UPDATES: 2}, self.clock.now_ms)
        self.store = MemoryCatalog()
        self.store.use(self.store.load(1, [(key, b"0") for key in KEYS]).id)
        self.updater = PostedUpdater(self.store, posted_to("ads"), self.queue, UPDATES, GROUP, self.clock.now_ms, 10**9)
        self.updater.begin()
        self.consumer = self.queue.consumer(UPDATES, GROUP)
        lifetimes = LIFETIMES._replace(negative_ttl_ms=1)
        self.catalog = Catalog(
            CatalogReplicas([CatalogSource("a", self.store, InPlace())], 60.0, self.clock),
            InPlace(),
            Cache(1 << 20, lifetimes, rng.random, AS_BYTES),
            60.0,
            self.clock,
            self.clock.now_ms,
        )
        self.listener = new_listener(self.catalog, self.queue, self.clock, 10**6)
        self.listener.step()
        self.heard_ms = self.filled_ms = self.clock.ms
        self.posted: list[tuple[Update, int, bool]] = []
        """Each update, when the store and the process will certainly have met it, and whether it is in time."""

    def post(self) -> None:
        late = self.rng.random() < 0.2
        ago_ms = self.rng.randrange(LATE_MS + 1, 100_000) if late else self.rng.randrange(-20_000, LATE_MS // 2)
        update = Update(self.rng.choice(KEYS), self.clock.ms - ago_ms, b"%d" % (len(self.posted) + 1))
        publish(self.queue, "ads", [update])
        self.posted.append((update, self.clock.ms + 2 * LAG_MS, not late))

    def tick(self) -> None:
        for partition in range(2):
            tick = Tick(self.clock.ms - LATE_MS, partition, 2)
            self.queue.publish(UPDATES, [encode_update(tick)], partition)

    def fill(self, limit: int) -> None:
        bodies = [(each.partition, decode_update(each.value)) for each in self.consumer.poll(limit, 0)]
        self.updater.enter(body for _, body in bodies if isinstance(body, Posted))
        self.updater.tick([(partition, body) for partition, body in bodies if isinstance(body, Tick)])

    def listen(self) -> None:
        for _ in range(3):
            self.listener.step()
        self.heard_ms = self.clock.ms

    def store_some(self) -> None:
        self.fill(self.rng.randrange(1, 8))

    def read(self) -> None:
        """The answer for a key lacks no update that was in time and is older than the answer says that it knows, and no
        update at all that was there a `ttl` ago.
        """
        key = self.rng.choice(KEYS)
        got = self.catalog.begin([key]).result()
        assert got.behind_ms is not None
        known_ms = self.clock.ms - got.behind_ms
        times = {each.record: each.time_ms for each, _, _ in self.posted} | {b"0": 0}
        said_ms = times[got.records[key]]
        for update, there_ms, in_time in self.posted:
            if update.key != key or update.time_ms <= said_ms:
                continue
            assert not (in_time and update.time_ms <= known_ms), (update, said_ms, known_ms)
            assert self.clock.ms <= there_ms + LIFETIMES.ttl_ms, (update, said_ms, known_ms)

    def step(self) -> None:
        self.clock.ms += self.rng.choice([1, 500, 3_000, 20_000])
        for action in self.rng.sample([self.post, self.tick, self.listen, self.store_some, self.read, self.read], 4):
            action()
        if self.clock.ms - self.heard_ms > LAG_MS:
            self.listen()
        if self.clock.ms - self.filled_ms > LAG_MS:
            self.fill(10_000)
            self.filled_ms = self.clock.ms


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_has_what_it_claims_to_have(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listening, "POLL_S", 0)
    world = World(random.Random(seed))
    for _ in range(400):
        world.step()
