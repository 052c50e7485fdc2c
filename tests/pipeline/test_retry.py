"""How long failing attempts rest, and when they do not."""

import math
from collections.abc import MutableMapping
from typing import Any

import pytest

from feedstore.metering import Counting
from workers.pipeline import metrics
from workers.pipeline.retry import RETRY_REST, Away, Later, Share

TOOK_S = 30.0


def test_attempts_do_not_rest_if_nothing_else_works() -> None:
    share = Share()
    assert [share.failed(at_s, at_s + TOOK_S, worked=0) for at_s in (0.0, 30.0, 60.0)] == [0.0] * 3


def test_attempts_rest_as_long_as_other_work_got_done_while_they_failed_and_at_most_seven_times_an_attempt() -> None:
    share = Share()
    rests: list[float] = []
    now_s = 1_000.0
    for worked in range(1, 8):
        rest_s = share.failed(now_s, now_s + TOOK_S, worked)
        rests.append(rest_s)
        now_s += TOOK_S + rest_s
    assert rests == [0.0, 30.0, 90.0, 210.0, 210.0, 210.0, 210.0]
    assert RETRY_REST * TOOK_S == 210


@pytest.mark.parametrize("outage_s", [90.0, 6_000.0])
def test_an_outage_of_everything_is_not_counted_once_a_part_works(outage_s: float) -> None:
    share = Share()
    share.failed(0.0, TOOK_S, worked=7)
    share.failed(TOOK_S, 2 * TOOK_S, worked=7)
    share.failed(outage_s - TOOK_S, outage_s, worked=7)
    assert share.failed(outage_s + 1, outage_s + 6, worked=8) == 6, "since the last failure, when nothing worked yet"


def test_an_attempt_that_works_ends_it() -> None:
    share = Share()
    share.failed(0.0, TOOK_S, worked=1)
    assert share.failed(1_000.0, 1_030.0, worked=2) == 210
    share.ended()
    assert share.failed(2_000.0, 2_030.0, worked=3) == 0
    assert share.failed(2_030.0, 2_060.0, worked=4) == 30


def test_what_is_tried_later_comes_when_it_is_due_the_earliest_first() -> None:
    later: Later[str] = Later()
    assert (later.due_s(), later.take_due(1_000.0)) == (math.inf, None)
    for thing, due_s in (("b", 20.0), ("a", 10.0), ("c", 20.0)):
        later.put(thing, due_s)
    assert (later.due_s(), later.take_due(9.0)) == (10.0, None)
    assert sorted(later) == ["a", "b", "c"], "it stays until it is taken"
    assert [later.take_due(20.0) for _ in range(4)] == ["a", "b", "c", None]


def test_a_long_outage_is_logged_ever_more_rarely_and_its_end_once(
    logged: list[MutableMapping[str, Any]],
) -> None:
    meter = Counting(lambda: 0.0)
    away = Away(lambda: 0.0, meter, "relay-0", "outbox", "relay.unavailable", shard=0)
    away.ended()
    for _ in range(1_000):
        away.noted("refused")
    away.ended()
    away.ended()
    away.noted("refused again")
    told = [(each["event"], each["shard"], each["failures"]) for each in logged]
    outage = [("relay.unavailable", 0, 2**power) for power in range(10)]
    assert told == [*outage, ("answers.again", 0, 1_000), ("relay.unavailable", 0, 1)]
    (counted,) = [each for each in meter.counts().counters if each.name == metrics.AWAY.name]
    assert counted.value == 1_001, "every failure counts"
