"""Rule 12 in time: one region of sixteen is away, and each attempt that meets it takes its time to fail."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from feedstore.domain import Pin, PinSaved, Unfollowed, board
from feedstore.following import row_key
from tests.effort import FULL
from tests.following.parking_bench import START_MS, Bench
from workers.following.messages import Block, Delivery, Purge, Stray, encode_delivery
from workers.following.packs import packed
from workers.following.slots import FOLLOW_STORE, NOTES, DeliverySlots
from workers.following.topics import DELIVERIES
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.stage import STEP_S
from workers.queue.port import Consumer, Message

pytestmark = pytest.mark.long
COMPARED = pytest.mark.xdist_group("without_the_fault")
"""Tests that share what a writer does without a fault: in one process, which finds that out once."""

SECONDS = 900 if FULL else 300
BATCH = 10
MESSAGE_S = 0.2
ATTEMPTS_S = (0.0, 0.003, 0.02, 0.5, 5.0, 30.0) if FULL else (0.003, 0.5, 30.0)


def away(row: bytes) -> bool:
    """One region of sixteen."""
    return row[0] >> 4 == 5


@dataclass
class Consuming:
    """A consumer that notes when each message was polled, and makes a message for every one that is asked for."""

    bench: Bench
    consumer: Consumer
    rows: int
    together: int | None = None
    polled: int = 0

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        messages = [self.delivery() for _ in range(limit)]
        if self.together is not None:
            limit //= self.together
            starts = range(0, len(messages), self.together)
            packs = [pack for start in starts for pack in packed(messages[start : start + self.together])]
            self.bench.queue.publish(DELIVERIES, [encode_delivery(pack) for pack in packs])
        else:
            self.bench.queue.publish(DELIVERIES, [encode_delivery(each) for each in messages])
        return self.consumer.poll(limit, timeout_s)

    def message(self) -> bytes:
        return encode_delivery(self.delivery())

    def delivery(self) -> Delivery:
        self.polled += 1
        pin = self.polled
        users = range(pin * self.rows, (pin + 1) * self.rows)
        committed_ms = START_MS - 1_000_000
        block = Block([(user, committed_ms) for user in users], [(pin, 1_000)])
        action = PinSaved(Pin(pin, 5_000, 6_000, 1_000), committed_ms)
        return Delivery(action, self.bench.wall_ms(), [block])

    def commit(self, positions: Mapping[int, int]) -> None:
        self.consumer.commit(positions)

    def held(self) -> frozenset[int]:
        return self.consumer.held()

    def keep_alive(self) -> None:
        self.consumer.keep_alive()

    def close(self) -> None:
        self.consumer.close()


def settled_s(fail_s: float) -> float:
    """Once an outage is so old, retries rest for as long as they ever do: seven times as long as an attempt takes."""
    return 8 * fail_s


@dataclass
class Run:
    """What a writer came to in SECONDS, with as many messages as it takes. good_cells: of its last SECONDS."""

    good_cells: int
    steps_s: list[float] = field(default_factory=list)
    parked: int = 0
    stuck: list[float] = field(default_factory=list)


def run(rows: int, fail_s: float | None, together: int | None = None) -> Run:
    """rows: of a delivery. fail_s: how long an attempt takes that meets the region; None: nothing is away. together: so
    many deliveries in a pack.
    """
    bench = Bench(room=400, batch=BATCH)
    bench.feeds.cell_s = MESSAGE_S / rows
    if fail_s is not None:
        bench.feeds.away, bench.feeds.fail_s = away, fail_s
    consuming = Consuming(bench, bench.writer._consumer, rows, together)
    bench.writer._consumer = consuming
    found = Run(0)
    first: dict[int, float] = {}
    from_s = settled_s(fail_s or 0.0)
    before: int | None = None
    while bench.now_s < from_s + SECONDS:
        if before is None and bench.now_s >= from_s:
            before = good_cells(bench)
        began_s = bench.now_s
        bench.writer.step()
        found.steps_s.append(bench.now_s - began_s)
        outages = bench.writer._outages
        waiting = {item.number for outage in outages for item in outage.items}
        first = {number: first.get(number, bench.now_s) for number in waiting}
        found.stuck += [bench.now_s - since_s for since_s in first.values() if bench.now_s - since_s > 60]
        if bench.now_s == began_s:
            bench.now_s += 0.02
    assert before is not None
    found.good_cells = good_cells(bench) - before
    found.parked = bench.published()
    return found


def good_cells(bench: Bench) -> int:
    return sum(len(columns) for row, columns in bench.feeds.scan() if not away(row))


@pytest.fixture(scope="module")
def without_the_fault() -> dict[int, Run]:
    return {rows: run(rows, None) for rows in (1, 32)}


@COMPARED
@pytest.mark.parametrize(
    ("rows", "together"), [(1, None), (32, None), (1, 10)], ids=["small messages", "large messages", "packs"]
)
@pytest.mark.parametrize("fail_s", ATTEMPTS_S)
def test_rule_12_good_rows_are_written_at_their_rate_whatever_time_a_region_takes_to_fail(
    fail_s: float, rows: int, together: int | None, without_the_fault: dict[int, Run]
) -> None:
    found = run(rows, fail_s, together)

    assert found.good_cells >= 0.8 * without_the_fault[rows].good_cells
    assert found.parked > SECONDS / 9
    assert not found.stuck, "it is parked within a minute"
    assert max(found.steps_s) <= STEP_S + fail_s + BATCH * MESSAGE_S + 1e-6


@pytest.mark.parametrize("fail_s", [0.02, 5.0])
@pytest.mark.parametrize("per_s", [0.5, 50 if FULL else 5], ids=["light traffic", "heavy traffic"])
def test_rule_12_a_writer_notices_that_a_region_is_back_while_messages_arrive(fail_s: float, per_s: float) -> None:
    bench = Bench(room=400, batch=BATCH)
    bench.feeds.cell_s, bench.feeds.fail_s, bench.feeds.away = 0.001, fail_s, away
    consuming = Consuming(bench, bench.writer._consumer, 1)
    published = 0

    def arrive(until_s: float) -> None:
        nonlocal published
        while bench.now_s < until_s:
            if (due := int(bench.now_s * per_s)) > published:
                bench.queue.publish(DELIVERIES, [consuming.message() for _ in range(due - published)])
                published = due
            bench.writer.step()
            bench.now_s += 0.05

    arrive(300)
    assert bench.published() > 0
    bench.feeds.away = lambda row: False
    arrive(300 + 300)
    parked = bench.published()
    arrive(300 + 400)
    assert bench.published() == parked, "nothing more is parked"
    assert not any(outage.items for outage in bench.writer._outages)


def test_a_delivery_needs_the_rows_that_it_writes_and_what_follows_from_it() -> None:
    slots = DeliverySlots("a", lambda: 5)
    action, row = Unfollowed(1, board(7), 3, 4), row_key(2)
    purge = Delivery(action, 5, purge=Purge(1, 1, complete=False))
    strays = Delivery(action, 5, strays=[Stray(row, 4, [bytes(16)])])
    assert slots.needed(purge) == {row_key(1)[0], NOTES, FOLLOW_STORE}
    assert slots.needed(strays) == {row[0]}
    assert slots.needed(replace(strays, cluster="b")) == frozenset()
    late = replace(strays, read_ms=4)
    assert slots.needed(late) == {NOTES}, "it is sent back"
    assert slots.divided(late, frozenset({NOTES})) is None


def test_rule_12_purges_of_other_rows_land_while_a_region_is_away() -> None:
    bench = Bench(room=2_000, batch=50)
    bench.feeds.away = away
    users = range(1, 401)
    for user in users:
        action = Unfollowed(user, board(7), START_MS - 1_000, START_MS - 1_000)
        block = Block([(user, START_MS - 1_000)], [(1, 1_000)])
        delivery = Delivery(action, bench.wall_ms(), markers=[block], purge=Purge(1, 1, complete=True))
        bench.queue.publish(DELIVERIES, [encode_delivery(delivery)])
    healthy = {user for user in users if not away(row_key(user))}

    def refilled() -> set[int]:
        return {refill.user for refill in bench.follows.refills()}

    bench.run(lambda: refilled() >= healthy, seconds=30)


@COMPARED
@pytest.mark.parametrize("fail_s", [0.02, 30.0])
def test_rule_12_ticks_that_cannot_be_noted_cost_other_messages_an_eighth_of_the_time(
    fail_s: float, without_the_fault: dict[int, Run]
) -> None:
    bench = Bench(room=400, batch=BATCH)
    bench.feeds.cell_s = MESSAGE_S
    bench.notes.fail_s = fail_s
    bench.writer._consumer = Consuming(bench, bench.writer._consumer, 1)
    bench.step(checked=False)  # it has read when the cluster was made
    bench.notes.away = lambda row: True
    from_s = settled_s(fail_s)
    before: int | None = None
    ticked_s = 0.0
    while bench.now_s < from_s + SECONDS:
        if before is None and bench.now_s >= from_s:
            before = good_cells(bench)
        if bench.now_s - ticked_s > 10:
            bench.tick()
            ticked_s = bench.now_s
        bench.writer.step()
    assert before is not None
    assert good_cells(bench) - before >= 0.8 * without_the_fault[1].good_cells


@pytest.mark.parametrize("outage_s", [20.0, 60.0, 600.0])
def test_rule_12_a_cluster_that_is_back_is_told_so_within_an_attempt_and_a_wait(outage_s: float) -> None:
    """As when its gateway finds no region: what fails takes 30 s to fail, notes and ticks as well as cells."""
    bench = Bench(room=400, batch=BATCH)
    fail_s = 30.0
    for rows in (bench.feeds, bench.notes):
        rows.fail_s = fail_s
    bench.publish([1])
    bench.run(lambda: not bench.missing())
    for rows in (bench.feeds, bench.notes):
        rows.away = lambda row: bench.now_s < back_s
    back_s = bench.now_s + outage_s
    bench.tick()
    bench.run(lambda: bench.now_s >= back_s)

    bench.publish([2])
    tick_ms = bench.tick()
    bench.run(lambda: bench.all_landed(tick_ms), seconds=fail_s + RetryPolicy().longest_s)


@pytest.mark.parametrize("outage_s", [70.0, 130.0, 160.0])
def test_rule_12_each_outage_of_a_cluster_under_load_is_over_at_once(outage_s: float) -> None:
    """The third as well as the first one: with lots that need every part of it, and hours in between."""
    bench = Bench(room=400, batch=4 * BATCH)
    bench.feeds.fail_s = bench.notes.fail_s = fail_s = 30.0
    pins = itertools.count(1)

    def arrive() -> None:
        bench.publish(list(itertools.islice(pins, 2 * BATCH)))

    for _ in range(3):
        bench.now_s += 3_600
        arrive()
        bench.run(lambda: not bench.missing())
        back_s = bench.now_s + outage_s
        bench.feeds.away = bench.notes.away = lambda row, back_s=back_s: bench.now_s < back_s
        while bench.now_s < back_s:
            arrive()
            bench.step(checked=False)
        before = len(bench.landed())
        bench.run(lambda before=before: len(bench.landed()) > before, seconds=fail_s + RetryPolicy().longest_s)


@pytest.mark.parametrize("outage_s", [100.0, 200.0])
def test_rule_12_a_short_outage_of_a_region_is_noticed_to_be_over_soon(outage_s: float) -> None:
    """While others are written: it is tried again once it has been away for as long again, at the latest."""
    bench = Bench(room=400, batch=BATCH)
    fail_s = bench.feeds.fail_s = 30.0
    bench.feeds.cell_s = 0.01
    bench.feeds.away = lambda row: bench.now_s < outage_s and away(row)
    bench.writer._consumer = Consuming(bench, bench.writer._consumer, 1)
    while bench.now_s < outage_s:
        bench.writer.step()
    assert list(bench.writer._outages)

    while list(bench.writer._outages):
        bench.writer.step()
        assert bench.now_s < 2 * outage_s + 2 * fail_s, "it was not noticed"
