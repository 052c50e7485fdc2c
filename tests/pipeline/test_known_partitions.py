"""Partitions of ticks: how many there are is asked for only if a tick says that there are more."""

from typing import cast

import pytest

from workers.following.topics import ACTIONS, DELIVERIES
from workers.pipeline.ticks import KnownPartitions, Tick
from workers.queue.port import Queue, Topic


class Counts:
    """Says how many partitions topics have. asked: how often it was asked."""

    def __init__(self, actions: int, deliveries: int) -> None:
        self.now: dict[Topic[object], int] = {ACTIONS: actions, DELIVERIES: deliveries}
        self.asked = 0

    def partitions(self, topic: Topic[object]) -> int:
        self.asked += 1
        return self.now[topic]


def of_both(counts: Counts) -> KnownPartitions:
    return KnownPartitions(cast("Queue", counts), ACTIONS, DELIVERIES)


def test_what_is_known_is_not_asked_again() -> None:
    counts = Counts(2, 3)
    known = of_both(counts)
    assert all(known.had(Tick(1_000, source, 2, partitions)) for source in (0, 1) for partitions in (None, 2, 3))
    assert counts.asked == 2


def test_partitions_that_are_new_are_heard_of() -> None:
    counts = Counts(2, 3)
    known = of_both(counts)
    for tick in (Tick(1_000, 2, 3, 3), Tick(1_000, 0, 2, 4)):
        assert not known.had(tick)
    counts.now = {ACTIONS: 3, DELIVERIES: 4}
    for tick in (Tick(1_000, 2, 3, 3), Tick(1_000, 0, 2, 4)):
        assert known.had(tick)


def test_partitions_that_are_gone_are_heard_of_if_somebody_asks() -> None:
    counts = Counts(3, 3)
    known = of_both(counts)
    assert known.had(Tick(1_000, 2, 3, 3))
    assert not known.are_fewer(3)
    counts.now[ACTIONS] = 2
    assert known.are_fewer(3)
    assert not known.had(Tick(1_000, 0, 3, 3))
    assert known.had(Tick(1_000, 0, 2, 3))


@pytest.mark.parametrize("tick", [Tick(1_000, 0, 3, 1), Tick(1_000, 2, 2, 1), Tick(1_000, 0, 1, 2**40)], ids=str)
def test_one_of_partitions_that_there_are_not_did_not_come_through_one(tick: Tick) -> None:
    assert not of_both(Counts(2, 3)).had(tick)


def test_a_reader_of_the_first_topic_does_not_ask_for_the_second() -> None:
    counts = Counts(2, 3)
    assert KnownPartitions(cast("Queue", counts), ACTIONS).had(Tick(1_000, 1, 2))
    assert counts.asked == 1
