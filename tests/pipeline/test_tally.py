"""What a stage counts: batches, outcomes, retries, what waits, and how far behind it is."""

from typing import Any

import pytest
from test_stage import Bench, NumberSlots

from feedstore.metering import Counting, Definition
from feedstore.widecolumn import RefusedError, UnavailableError
from workers.pipeline import metrics
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.tally import TELL_EVERY_S, Tally
from workers.pipeline.ticks import Tick


class Counted:
    def __init__(self, bench: Bench, **options: Any) -> None:
        self.bench = bench
        self.meter = Counting(lambda: bench.now_s)
        bench.reopen(meter=self.meter, **options)

    def value(self, definition: Definition, *labels: str) -> float | None:
        counts = self.meter.counts()
        found = [each.value for each in (*counts.counters, *counts.gauges) if each.name == definition.name]
        named = {each.labels: each.value for each in (*counts.counters, *counts.gauges) if each.name == definition.name}
        assert len(found) == len(named)
        return named.get(("group", *labels))

    def times(self, definition: Definition) -> int:
        [counts] = [each.counts for each in self.meter.counts().spreads if each.name == definition.name]
        return sum(counts)


def mended(bench: Bench) -> None:
    """What was away answers again, and all that waited is done."""
    bench.fails = lambda _: None
    bench.run()
    bench.now_s += 5
    bench.stage.step()


def without_a_slot(seconds: float, **options: Any) -> Counted:
    """Three messages, of which one needs a slot that has been away for so long."""
    bench = Bench()
    counted = Counted(bench, slots=NumberSlots(), **options)
    bench.fails = lambda bodies: UnavailableError("away") if "5" in bodies else None
    bench.publish("5", "100", "200")
    bench.run(seconds=seconds)
    return counted


def test_a_lot_is_counted_once_with_its_bytes_and_messages():
    counted = Counted(Bench())
    assert counted.value(metrics.MESSAGES, "done") == 0, "the first one is an increase"
    counted.bench.publish("1", "22", "333")
    counted.bench.run()
    assert counted.value(metrics.LOTS) == 1
    assert counted.value(metrics.BYTES) == 6
    assert counted.value(metrics.MESSAGES, "done") == 3
    assert (counted.times(metrics.BATCH), counted.times(metrics.HANDLE_SECONDS)) == (1, 1)


def test_what_is_away_is_a_retry_and_waits_for_as_long_as_it_lasts():
    bench = Bench()
    counted = Counted(bench)
    bench.fails = lambda _: UnavailableError("away")
    bench.publish("1")
    bench.run(seconds=30)
    assert counted.value(metrics.MESSAGES, "done") == 0
    assert (counted.value(metrics.RETRIES, "unavailable") or 0) > 1
    assert counted.value(metrics.RETRIES, "fault") == 0
    assert counted.value(metrics.WAITING) == 1
    assert counted.value(metrics.WAITING_BYTES) == 1
    assert counted.value(metrics.RETRYING) == pytest.approx(30, abs=1)
    bench.now_s += 100  # nothing steps: it grows by itself
    assert counted.value(metrics.RETRYING) == pytest.approx(130, abs=1)
    mended(bench)
    assert counted.value(metrics.MESSAGES, "done") == 1
    assert (counted.value(metrics.WAITING), counted.value(metrics.RETRYING)) == (0, 0)


def test_what_was_away_is_not_tried_for_ever_if_no_other_message_needs_it():
    """It failed with a whole slice of slots; only its own is known to work again."""
    counted = without_a_slot(20)
    assert counted.value(metrics.RETRYING) == pytest.approx(20, abs=1)
    mended(counted.bench)
    assert (counted.value(metrics.WAITING), counted.value(metrics.RETRYING)) == (0, 0)


def test_what_fails_later_is_not_tried_since_the_outage_before():
    """The outage of before is still known: its other slots were needed by nothing since."""
    counted = without_a_slot(20)
    bench = counted.bench
    mended(bench)
    bench.now_s += 1_000
    bench.fails = lambda bodies: UnavailableError("away") if "6" in bodies else None
    bench.publish("6")
    bench.run(seconds=10)
    assert counted.value(metrics.RETRYING) == pytest.approx(10, abs=1)


def test_what_is_parked_is_not_tried_here_any_more():
    counted = without_a_slot(120, park=lambda bodies, _: [True] * len(bodies))
    counted.bench.now_s += 5
    counted.bench.stage.step()
    assert counted.value(metrics.MESSAGES, "parked") == 1
    assert (counted.value(metrics.WAITING), counted.value(metrics.RETRYING)) == (0, 0)


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [("bad", None, "not_json"), ("1", RefusedError("never"), "refused"), ("1", ValueError("a bug"), "failed")],
)
def test_dead_letters_are_counted_by_reason(value: str, error: Exception | None, reason: str):
    bench = Bench(policy=RetryPolicy(attempts=2))
    counted = Counted(bench)
    bench.fails = lambda _: error
    bench.publish(value)
    bench.run()
    assert counted.value(metrics.DEAD, reason) == 1
    assert counted.value(metrics.MESSAGES, "dead") == 1
    assert counted.value(metrics.MESSAGES, "done") == 0


def test_ticks_that_are_not_taken_are_counted_as_away():
    bench = Bench()
    counted = Counted(bench)
    bench.tick_fails = UnavailableError("away")
    bench.publish("tick 5")
    bench.stage.step()
    assert counted.value(metrics.AWAY, "ticks") == 1
    assert counted.value(metrics.BEHIND, "0") is None


def test_a_stage_that_ends_says_nothing_more_of_how_things_are():
    counted = Counted(Bench())
    counted.bench.publish("1", "tick 5")
    counted.bench.run()
    assert counted.value(metrics.BEHIND, "0") is not None
    assert counted.value(metrics.WAITING) is not None
    counted.bench.stage.close()
    for gauge in (metrics.WAITING, metrics.WAITING_BYTES, metrics.RETRYING):
        assert counted.value(gauge) is None
    assert counted.value(metrics.BEHIND, "0") is None
    assert counted.value(metrics.MESSAGES, "done") == 1


def test_a_stage_that_has_lost_all_of_its_partitions_is_behind_in_none():
    counted = Counted(Bench())
    bench = counted.bench
    bench.publish("tick 5")
    bench.run()
    assert counted.value(metrics.BEHIND, "0") is not None
    bench.given_up.add(0)
    bench.now_s += 5
    bench.stage.step()
    assert counted.value(metrics.BEHIND, "0") is None


class Ticking:
    """A tally alone; the time of the store and that of the machine are one."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.meter = Counting(lambda: self.now_s)
        self.held = {0, 1}
        self.tally = Tally(self.meter, "group", lambda: self.now_s, lambda: int(self.now_s * 1_000), lambda: self.held)

    def ticked(
        self, partition: int, ago_s: float, source: int = 0, sources: int = 1, partitions: int | None = 2
    ) -> None:
        self.tally.ticked([(partition, Tick(int((self.now_s - ago_s) * 1_000), source, sources, partitions))])

    def behind(self) -> dict[str, float]:
        return {each.labels[1]: each.value for each in self.meter.counts().gauges if each.name == metrics.BEHIND.name}


def test_a_group_is_as_far_behind_as_its_slowest_source():
    bench = Ticking()
    bench.ticked(0, 2, source=0, sources=2)
    bench.ticked(0, 30, source=1, sources=2)
    for source in range(2):
        bench.ticked(1, 1, source, sources=2)
    assert bench.behind() == {"0": pytest.approx(30), "1": pytest.approx(1)}
    bench.now_s += 10  # no tick comes: it falls behind
    assert bench.behind() == {"0": pytest.approx(40), "1": pytest.approx(11)}


def test_ticks_of_fewer_partitions_are_history():
    bench = Ticking()
    bench.ticked(0, 500, source=0, sources=1)
    bench.ticked(0, 2, source=0, sources=2)
    bench.ticked(0, 3, source=1, sources=2)
    assert bench.behind() == {"0": pytest.approx(3)}


def test_where_the_topic_was_made_again_with_fewer_partitions_ticks_of_these_count():
    bench = Ticking()
    for source in range(3):
        bench.ticked(0, 5, source, sources=3)
    bench.now_s += 60
    for source in range(2):
        bench.ticked(0, 2, source, sources=2)
    assert bench.behind() == {"0": pytest.approx(2)}


def test_a_partition_that_is_far_behind_does_not_undo_what_is_known_of_the_others():
    """What it reads is from before a source was added."""
    bench = Ticking()
    bench.ticked(0, 2, source=0, sources=2)
    bench.ticked(1, 500, source=0, sources=1)
    bench.ticked(0, 3, source=1, sources=2)
    assert bench.behind() == {"0": pytest.approx(3), "1": pytest.approx(500)}


def test_a_partition_that_another_member_reads_is_unknown():
    bench = Ticking()
    bench.ticked(0, 1)
    bench.ticked(1, 1)
    bench.held = {0}
    bench.now_s += TELL_EVERY_S
    bench.tally.waits(0, 0, list)
    assert bench.behind() == {"0": pytest.approx(1 + TELL_EVERY_S)}


def test_how_far_behind_a_partition_is_that_was_gained_is_unknown_until_all_sources_have_ticked():
    """After a rebalance, one that is stuck would make it look as if all were well."""
    bench = Ticking()
    bench.ticked(0, 1, source=0, sources=2)
    assert bench.behind() == {}
    bench.ticked(0, 300, source=1, sources=2)
    assert bench.behind() == {"0": pytest.approx(300)}
    bench.held = set()
    bench.now_s += TELL_EVERY_S
    bench.tally.waits(0, 0, list)
    bench.ticked(0, 1, source=0, sources=2)
    assert bench.behind() == {}


def test_a_partition_of_the_first_topic_hears_its_own_ticks_alone():
    bench = Ticking()
    for partition in range(2):
        bench.ticked(partition, 3, source=partition, sources=2, partitions=None)
    assert bench.behind() == {"0": pytest.approx(3), "1": pytest.approx(3)}


def test_if_no_partition_hears_of_a_tick_all_of_them_fall_behind():
    bench = Ticking()
    bench.ticked(0, 1)
    bench.ticked(1, 1)
    bench.now_s += 3_600
    assert bench.behind() == {"0": pytest.approx(3_601), "1": pytest.approx(3_601)}
