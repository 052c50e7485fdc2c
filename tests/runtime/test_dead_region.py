"""Rule 12 in time: one region of sixteen is away, and each attempt that meets it takes its time to fail."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from feedstore.domain import Pin, PinSaved
from tests.runtime.parking_bench import START_MS, Bench
from workers.messages import Block, Delivery, encode_delivery
from workers.queue.port import DELIVERIES, Consumer, Message
from workers.stage import STEP_S

SECONDS = 900
BATCH = 10
MESSAGE_S = 0.2
ATTEMPTS_S = (0.0, 0.003, 0.02, 0.5, 5.0, 30.0)


def away(row: bytes) -> bool:
    """One region of sixteen."""
    return row[0] >> 4 == 5


@dataclass
class Consuming:
    """A consumer that notes when each message was polled, and makes a message for every one that is asked for."""

    bench: Bench
    consumer: Consumer
    rows: int
    polled: int = 0

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        self.bench.queue.publish(DELIVERIES, [self.message() for _ in range(limit)])
        return self.consumer.poll(limit, timeout_s)

    def message(self) -> bytes:
        self.polled += 1
        pin = self.polled
        users = range(pin * self.rows, (pin + 1) * self.rows)
        committed_ms = START_MS - 1_000_000
        block = Block([(user, committed_ms) for user in users], [(pin, 1_000)])
        action = PinSaved(Pin(pin, 5_000, 6_000, 1_000), committed_ms)
        return encode_delivery(Delivery(action, self.bench.wall_ms(), [block]))

    def commit(self, positions: Mapping[int, int]) -> None:
        self.consumer.commit(positions)

    def keep_alive(self) -> None:
        self.consumer.keep_alive()

    def close(self) -> None:
        self.consumer.close()


@dataclass
class Run:
    """What a writer came to in SECONDS, with as many messages as it takes."""

    good_cells: int
    steps_s: list[float] = field(default_factory=list)
    parked: int = 0
    stuck: list[float] = field(default_factory=list)


def run(rows: int, fail_s: float | None) -> Run:
    """rows: of a message. fail_s: how long an attempt takes that meets the region; None: nothing is away."""
    bench = Bench(room=400, batch=BATCH)
    bench.feeds.cell_s = MESSAGE_S / rows
    if fail_s is not None:
        bench.feeds.away, bench.feeds.fail_s = away, fail_s
    consuming = Consuming(bench, bench.writer._consumer, rows)
    bench.writer._consumer = consuming
    found = Run(0)
    first: dict[int, float] = {}
    while bench.now_s < SECONDS:
        began_s = bench.now_s
        bench.writer.step()
        found.steps_s.append(bench.now_s - began_s)
        outages = bench.writer._outages
        waiting = {item.number for outage in outages for item in outage.items}
        first = {number: first.get(number, bench.now_s) for number in waiting}
        found.stuck += [bench.now_s - since_s for since_s in first.values() if bench.now_s - since_s > 60]
        if bench.now_s == began_s:
            bench.now_s += 0.02
    found.good_cells = sum(len(columns) for row, columns in bench.feeds.scan() if not away(row))
    found.parked = bench.published()
    return found


@pytest.fixture(scope="module")
def without_the_fault() -> dict[int, Run]:
    return {rows: run(rows, None) for rows in (1, 32)}


@pytest.mark.parametrize("rows", [1, 32], ids=["small messages", "large messages"])
@pytest.mark.parametrize("fail_s", ATTEMPTS_S)
def test_rule_12_good_rows_are_written_at_their_rate_whatever_time_a_region_takes_to_fail(
    fail_s: float, rows: int, without_the_fault: dict[int, Run]
) -> None:
    found = run(rows, fail_s)

    assert found.good_cells >= 0.8 * without_the_fault[rows].good_cells
    assert found.parked > 100
    assert not found.stuck, "it is parked within a minute"
    assert max(found.steps_s) <= STEP_S + fail_s + BATCH * MESSAGE_S + 1e-6
