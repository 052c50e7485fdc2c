"""Who is asked, when, and who is left alone: policy alone, with the time as a number."""

import random

import pytest

from feedstore.replicas.attempts import Attempt
from feedstore.replicas.breaker import FAILURES, OPEN_S, OPEN_S_MAX, Breaker
from feedstore.replicas.health import CAUGHT_UP_MS, LAGGING_MS, Candidate, ReplicaHealth, lagging
from feedstore.replicas.hedging import (
    HEDGE_S_MAX,
    HEDGE_S_MIN,
    SAVED_MAX,
    SHARE,
    WINDOW,
    Budget,
    Latency,
    Pace,
    hedge_after_s,
)
from feedstore.widecolumn import UnavailableError


def late(name: str, took_s: float, error: Exception | None = None, *, is_probe: bool = False) -> Attempt:
    """An attempt that ended."""
    attempt = Attempt(name, list, lambda _: None, lambda: 0.0, is_probe=is_probe)
    attempt.took_s, attempt.error = took_s, error
    return attempt


class Health(ReplicaHealth):
    """Its time is a number."""

    def __init__(self, *names: str) -> None:
        self.now_s = 0.0
        super().__init__(names, lambda: self.now_s)

    def probe(self) -> str | None:
        return self.begin().probe

    def answered(self, name: str, took_s: float, *, probe: bool = False) -> None:
        self.ended(late(name, took_s, is_probe=probe))

    def names(self) -> list[str]:
        return [candidate.name for candidate in self.candidates]


# Breaker
# --------------------------------------------------------------------------------------------------------------------


def opened(now_s: float = 100.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(now_s)
    assert breaker.state == "open"
    return breaker


def test_a_breaker_opens_only_after_failures_in_a_row():
    breaker = Breaker()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            breaker.failed(100.0)
        assert breaker.state == "closed"
        assert not breaker.is_quiet
        breaker.succeeded()
        assert breaker.is_quiet
    for _ in range(FAILURES):
        breaker.failed(100.0)
    assert breaker.state == "open"


def test_an_open_breaker_lets_one_probe_through_when_its_time_has_come():
    breaker = opened()
    assert not breaker.take_probe(100.0 + OPEN_S - 0.01)
    assert breaker.take_probe(100.0 + OPEN_S)
    assert breaker.state == "half-open"
    assert not breaker.take_probe(1_000.0), "one at a time"
    breaker.succeeded()
    assert breaker.state == "closed"
    assert not breaker.take_probe(1_000.0)
    for _ in range(FAILURES):
        breaker.failed(2_000.0)
    assert breaker.take_probe(2_000.0 + OPEN_S), "the earlier probe is over"


def test_each_probe_that_fails_keeps_it_open_for_longer_up_to_a_bound():
    breaker = opened(now_s := 100.0)
    waits = []
    for _ in range(8):
        wait_s = OPEN_S
        while not breaker.take_probe(now_s + wait_s):
            wait_s += OPEN_S
        waits.append(wait_s)
        now_s += wait_s
        breaker.failed(now_s, probe=True)
        assert breaker.state == "open"
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0] + 3 * [OPEN_S_MAX]
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed(now_s)
    assert breaker.take_probe(now_s + OPEN_S), "once it was closed, it begins again"


def test_a_probe_that_is_answered_late_is_followed_by_the_next_one_soon():
    health = Health("a", "b")
    for _ in range(FAILURES):
        health.failed("a")
    for _ in range(8):
        health.now_s += OPEN_S_MAX
        assert health.probe() == "a"
        health.failed("a", probe=True)
    health.now_s += OPEN_S_MAX
    for _ in range(3):  # it is back, and cold
        assert health.probe() == "a"
        health.answered("a", 2 * HEDGE_S_MAX, probe=True)
        assert health.status()[0].breaker == "open"
        health.now_s += OPEN_S
    assert health.probe() == "a"
    health.answered("a", HEDGE_S_MIN, probe=True)
    assert health.status()[0].breaker == "closed"


def test_late_failures_do_not_keep_a_breaker_open():
    breaker = opened(100.0)
    for _ in range(50):
        breaker.failed(100.0 + OPEN_S / 2)
    assert breaker.take_probe(100.0 + OPEN_S)
    breaker.failed(101.5)
    assert breaker.state == "half-open", "only the probe decides"


# Latency, hedges
# --------------------------------------------------------------------------------------------------------------------


def test_the_p95_is_that_of_the_latest_reads():
    latency = Latency()
    for _ in range(19):
        latency.add(0.010)
    assert latency.p95_s() is None
    latency.add(0.010)
    assert latency.p95_s() == 0.010
    for number in range(WINDOW):
        latency.add(0.001 if number % 10 else 0.005)
    assert latency.p95_s() == 0.005
    for _ in range(WINDOW):
        latency.add(0.002)
    assert latency.p95_s() == 0.002


def test_a_hedge_waits_for_the_p95_of_the_healthier_cluster_within_bounds():
    assert hedge_after_s([0.004, 0.200]) == 0.004
    assert hedge_after_s([None, 0.007]) == 0.007
    assert hedge_after_s([0.200, 0.300]) == HEDGE_S_MAX == 0.050
    assert hedge_after_s([0.00002, None]) == HEDGE_S_MIN
    assert hedge_after_s([None, None]) == hedge_after_s([]) == HEDGE_S_MAX


def test_a_hedge_is_not_due_before_its_time():
    pace = Pace(0.004)
    assert pace.due_s < 0, "the first cluster is asked at once"
    pace.asked(10.0)
    assert pace.due_s == 10.004
    assert pace.is_early(10.004)
    pace.put_off()
    assert pace.due_s == 10.0 + HEDGE_S_MAX
    assert not pace.is_early(pace.due_s)


def test_early_hedges_are_a_small_share_of_the_reads():
    budget = Budget()
    sent = 0
    for _ in range(10_000):
        budget.earn()
        sent += budget.spend()
    assert 10_000 * SHARE <= sent <= 10_000 * SHARE + SAVED_MAX


# Health
# --------------------------------------------------------------------------------------------------------------------


def test_the_preferred_cluster_comes_first_while_it_is_well():
    health = Health("b", "a")
    assert health.candidates == (Candidate("b", is_well=True), Candidate("a", is_well=True))
    for _ in range(FAILURES):
        health.failed("b")
    assert health.candidates == (Candidate("a", is_well=True), Candidate("b", is_well=False))
    assert health.probe() is None
    health.now_s = OPEN_S
    assert health.probe() == "b"
    assert health.probe() is None
    health.answered("b", 0.002, probe=True)
    assert health.names() == ["b", "a"]


def test_an_answer_that_came_too_late_is_a_failure():
    health = Health("a", "b")
    for _ in range(FAILURES):
        health.answered("a", 0.200)
    assert health.names() == ["b", "a"]
    health.now_s = OPEN_S
    assert health.probe() == "a"
    health.answered("a", 0.200, probe=True)
    assert health.status()[0].breaker == "open"


def test_where_all_are_bad_all_are_still_asked():
    health = Health("a", "b")
    for name in ("a", "b"):
        for _ in range(FAILURES):
            health.failed(name)
    assert health.candidates == (Candidate("a", is_well=False), Candidate("b", is_well=False))


def test_an_old_page_is_better_than_a_cluster_that_failed():
    health = Health("a", "b", "c")
    health.set_watermark("a", 1)
    health.set_watermark("b", 10**12)
    health.set_watermark("c", 10**12)
    assert health.names() == ["b", "c", "a"]
    for name in ("b", "c"):
        for _ in range(FAILURES):
            health.failed(name)
    assert health.names() == ["a", "b", "c"]


def test_a_cluster_lags_from_one_distance_and_has_caught_up_at_a_smaller_one():
    now = 10**12
    near, between, far = now - CAUGHT_UP_MS, now - LAGGING_MS, now - LAGGING_MS - 1
    assert lagging({"a": between, "b": now}, frozenset()) == frozenset()
    assert lagging({"a": far, "b": now}, frozenset()) == {"a"}
    assert lagging({"a": between, "b": now}, frozenset({"a"})) == {"a"}
    assert lagging({"a": near, "b": now}, frozenset({"a"})) == frozenset()
    assert lagging({"a": None, "b": now}, frozenset()) == {"a"}, "it may have come back with nothing"
    assert lagging({"a": None, "b": None}, frozenset()) == frozenset()


def test_one_failure_is_noted_and_turns_nobody_away():
    health = Health("a", "b")
    assert health.quiet == "a"
    health.failed("a")
    assert health.quiet is None, "the next read must say how it went"
    assert health.candidates[0] == Candidate("a", is_well=True)


def test_a_read_that_was_overtaken_and_then_fails_counts_once():
    health = Health("a", "b")
    for number in range(1, FAILURES + 1):
        attempt = late("a", 0.2, UnavailableError("too late") if number % 2 else None)
        health.abandon([attempt])
        health.ended(attempt)
        assert health.status()[0].breaker == ("closed" if number < FAILURES else "open")


def test_a_read_that_lost_by_a_little_is_no_failure():
    health = Health("a", "b")
    for _ in range(3 * FAILURES):
        attempt = late("a", 0.004)
        health.abandon([attempt])
        health.ended(attempt)
    assert health.quiet == "a"
    for _ in range(3 * FAILURES):
        attempt = late("a", 0.004)
        health.ended(attempt)
        health.abandon([attempt])
    assert health.quiet == "a", "it had ended before it was abandoned"


# A simulation: two clusters, one page after the other
# --------------------------------------------------------------------------------------------------------------------


class Simulated:
    """What `replicas` does with threads, in a time that is a number."""

    def __init__(self, rng: random.Random, slow: float) -> None:
        self.rng = rng
        self.health = Health("a", "b")
        self.slow_s = {"a": slow, "b": 0.0}
        self.hedges = 0

    def took_s(self, name: str) -> float:
        usual = self.rng.lognormvariate(-6.5, 0.5)  # about 1.5 ms
        return usual + (0.05 * self.rng.random() if self.rng.random() < 0.005 else 0) + self.slow_s[name]

    def page_s(self) -> float:
        began_s = self.health.now_s
        (first, second), hedge_after_s, probed = self.health.begin()
        pace = Pace(hedge_after_s)
        pace.asked(began_s)
        if probed is not None:
            self.health.answered(probed, self.took_s(probed), probe=True)
        took_s = self.took_s(first.name)
        done_s = began_s + took_s
        if pace.due_s < done_s and not (second.is_well and self.health.may_hedge()):
            pace.put_off()
        if pace.due_s < done_s:
            self.hedges += 1
            other_s = self.took_s(second.name)
            if pace.due_s + other_s < done_s:
                self.health.now_s = done_s
                self.health.answered(second.name, other_s)
                if took_s > HEDGE_S_MAX:
                    self.health.failed(first.name)
                done_s = pace.due_s + other_s
        if took_s <= HEDGE_S_MAX:
            self.health.now_s = done_s
            self.health.answered(first.name, took_s)
        self.health.now_s = done_s + 0.001
        return done_s - began_s


@pytest.mark.parametrize("seed", range(5))
def test_in_normal_times_hedges_stay_below_one_in_twenty(seed: int):
    simulated = Simulated(random.Random(seed), slow=0.0)
    for _ in range(20_000):
        simulated.page_s()
    assert 0 < simulated.hedges <= 0.05 * 20_000


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_that_is_always_a_little_slower_is_not_hedged_all_the_time(seed: int):
    simulated = Simulated(random.Random(seed), slow=0.006)
    for _ in range(20_000):
        simulated.page_s()
    assert simulated.hedges <= 0.05 * 20_000


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_that_becomes_slow_costs_few_pages_more_than_a_hedge(seed: int):
    simulated = Simulated(random.Random(seed), slow=0.0)
    for _ in range(2_000):
        simulated.page_s()
    simulated.slow_s["a"] = 0.2
    pages = sorted(simulated.page_s() for _ in range(20_000))
    assert pages[-1] < 0.2
    assert pages[int(0.999 * len(pages))] <= 0.052, "the tail that b has by itself"
