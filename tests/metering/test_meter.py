"""What a process counts, and what several of them say together."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from feedstore.metering import CLUSTER, Counting, Counts, Definition, sampled
from feedstore.metering.exposition import text
from feedstore.metering.meter import LOOK_LASTS_S, SAMPLES, together

DONE = Definition("feed_tests_total", "counter", "Done", "x.py", ("work",), (CLUSTER,))
LAG = Definition("feed_tests_lag", "gauge", "Left to do", "x.py", ("work",), (CLUSTER,))
TOOK = Definition("feed_tests_seconds", "histogram", "Took", "x.py", ("work",), (CLUSTER,), (0.1, 1.0))
EVERY = (DONE, LAG, TOOK)


class Bench:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.meter = Counting(lambda: self.now_s)

    def gauges(self) -> dict[tuple[str, ...], float]:
        return {each.labels: each.value for each in self.meter.counts().gauges}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_counter_adds_up_by_its_labels(bench: Bench):
    bench.meter.add(DONE, 2, "a")
    bench.meter.add(DONE, 3, "a")
    bench.meter.add(DONE, 0, "b")
    assert {each.labels: each.value for each in bench.meter.counts().counters} == {("a",): 5, ("b",): 0}


def test_a_histogram_counts_each_value_in_its_bucket(bench: Bench):
    bench.meter.observe(TOOK, [0.05, 0.1, 0.5, 7.0], "a")
    bench.meter.observe(TOOK, [0.2, 0.3], "a")  # all in one bucket
    bench.meter.observe(TOOK, [], "b")
    spreads = {each.labels: each for each in bench.meter.counts().spreads}
    assert (spreads[("a",)].counts, spreads[("a",)].sum) == ([2, 3, 1], pytest.approx(8.15))
    assert spreads[("b",)].counts == [0, 0, 0]


def test_a_note_holds_until_the_next_one_or_until_it_is_forgotten(bench: Bench):
    bench.meter.note(LAG, 5, "a")
    bench.now_s += 1_000
    assert bench.gauges() == {("a",): 5}
    bench.meter.note(LAG, 6, "a")
    assert bench.gauges() == {("a",): 6}
    bench.meter.forget(LAG, "a")
    assert bench.gauges() == {}


def test_an_age_grows_by_itself(bench: Bench):
    bench.meter.since(LAG, bench.now_s - 2, "a")
    bench.meter.since(LAG, None, "b")
    assert bench.gauges() == {("a",): 2, ("b",): 0}
    bench.now_s += 60
    assert bench.gauges() == {("a",): 62, ("b",): 0}
    bench.meter.forget(LAG, "a")
    assert bench.gauges() == {("b",): 0}


def test_what_a_look_does_not_find_is_unknown(bench: Bench):
    bench.meter.saw(LAG, {("a",): 1, ("b",): 2})
    bench.meter.saw(LAG, {("b",): 3})
    assert bench.gauges() == {("b",): 3}
    bench.meter.saw(LAG, {})
    assert bench.gauges() == {}


def test_what_was_seen_too_long_ago_is_unknown(bench: Bench):
    bench.meter.saw(LAG, {("a",): 1})
    bench.now_s += LOOK_LASTS_S
    assert bench.gauges() == {("a",): 1}
    bench.now_s += 0.1
    assert bench.gauges() == {}


def test_one_that_looks_does_not_hide_what_another_one_sees(bench: Bench):
    bench.meter.saw(LAG, {("a",): 1}, "one")
    bench.meter.saw(LAG, {("b",): 2}, "other")
    bench.meter.saw(LAG, {}, "one")
    assert bench.gauges() == {("b",): 2}


def counted(done: int, lag: float, took: list[float]) -> Counts:
    meter = Counting(lambda: 0.0)
    meter.add(DONE, done, "a")
    meter.note(LAG, lag, "a")
    meter.observe(TOOK, took, "a")
    return meter.counts()


def test_processes_count_together():
    both = together([counted(2, 7, [0.05]), counted(3, 4, [0.5, 0.6]), Counts()])
    assert [(each.labels, each.value) for each in both.counters] == [(("a",), 5)]
    assert [(each.labels, each.value) for each in both.gauges] == [(("a",), 7)]
    assert [(each.counts, each.sum) for each in both.spreads] == [([1, 2, 0], pytest.approx(1.15))]


def test_of_one_that_has_ended_only_what_it_had_counted_is_known():
    ended = counted(2, 7, [0.05]).without_gauges()
    assert (len(ended.counters), ended.gauges, len(ended.spreads)) == (1, [], 1)


def test_counts_survive_a_pipe():
    counts = counted(2, 7, [0.05])
    assert msgspec.json.decode(msgspec.json.encode(counts), type=Counts) == counts


def test_the_text_is_what_prometheus_reads():
    families = {
        each.name: each for each in text_string_to_metric_families(text(counted(2, 7, [0.05, 5]), EVERY).decode())
    }
    assert set(families) == {"feed_tests", "feed_tests_lag", "feed_tests_seconds"}
    assert {(each.name, each.value) for each in families["feed_tests"].samples} == {("feed_tests_total", 2)}
    assert families["feed_tests_lag"].samples[0].labels == {"cluster": "a"}
    samples = families["feed_tests_seconds"].samples
    assert {each.labels["le"]: each.value for each in samples if each.name.endswith("_bucket")} == {
        "0.1": 1,
        "1.0": 1,
        "+Inf": 2,
    }
    assert {each.name: each.value for each in samples if not each.name.endswith("_bucket")} == {
        "feed_tests_seconds_count": 2,
        "feed_tests_seconds_sum": 5.05,
    }


def test_what_has_no_value_is_absent_from_the_text():
    assert b"feed_tests_lag" not in text(counted(2, 7, []).without_gauges(), EVERY)


@pytest.mark.parametrize("size", [0, 1, 49, 50, 99, 100, 1_000, 12_345])
def test_a_sample_of_many_counts_for_about_as_many(size: int):
    some, each = sampled(range(size))
    assert len(some) <= 2 * SAMPLES
    assert size <= len(some) * each < size + each


def test_one_value_may_be_several_observations(bench: Bench):
    bench.meter.observe(TOOK, [0.05, 0.5], "a", each=10)
    [spread] = bench.meter.counts().spreads
    assert (spread.counts, spread.sum) == ([10, 10, 0], pytest.approx(5.5))
