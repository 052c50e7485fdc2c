"""What a loop does every so often."""

from collections.abc import MutableMapping
from typing import Any

from feedstore.errors import NotNowError
from feedstore.metering import Counting
from workers.pipeline import metrics
from workers.pipeline.runtime import AGAIN_S, Every

HOUR_S = 3_600.0


class Bench:
    """A loop, and when it did a round. away: how many of the next rounds fail."""

    def __init__(self, every_s: float) -> None:
        self.now_s = 1_000.0
        self.away = 0
        self.done_s: list[float] = []
        self.meter = Counting(lambda: self.now_s)
        self.loop = Every("sweeper-a", self._round, every_s, lambda: self.now_s, "sweep.unavailable", self.meter)

    def _round(self) -> None:
        if self.away:
            self.away -= 1
            raise NotNowError("away")
        self.done_s.append(self.now_s - 1_000.0)

    def run(self, seconds: float) -> list[float]:
        """When rounds were done, as a worker that rests as it is told would do them."""
        until_s = self.now_s + seconds
        while self.now_s <= until_s:
            self.loop.step()
            self.now_s += max(0.001, self.loop.rest_s)
        return self.done_s


def test_the_first_round_comes_after_the_interval_and_the_next_ones_as_well() -> None:
    assert Bench(2.5).run(8) == [2.5, 5.0, 7.5]


def test_it_rests_until_it_is_time_and_no_longer_than_a_second() -> None:
    bench = Bench(HOUR_S)
    assert bench.loop.rest_s == 1.0
    bench.now_s += HOUR_S - 0.25
    assert bench.loop.rest_s == 0.25


def test_a_round_that_failed_is_done_again_soon_and_counted() -> None:
    bench = Bench(HOUR_S)
    bench.away = 2
    assert bench.run(2 * HOUR_S + 1) == [HOUR_S + 2 * AGAIN_S]
    [away] = [each for each in bench.meter.counts().counters if each.name == metrics.AWAY.name]
    assert (away.labels, away.value) == (("sweeper-a", "round"), 2)


def test_one_that_comes_often_is_not_done_again_sooner() -> None:
    bench = Bench(5)
    bench.away = 1
    assert bench.run(16) == [10, 15]


def test_rounds_that_fail_for_long_are_logged_ever_more_rarely(logged: list[MutableMapping[str, Any]]) -> None:
    bench = Bench(10)
    bench.away = 100
    bench.run(1_020)
    bench.away = 1
    bench.run(20)
    assert [each["failures"] for each in logged] == [1, 2, 4, 8, 16, 32, 64, 1]
