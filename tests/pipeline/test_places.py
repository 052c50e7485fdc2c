"""Places of ticks: how many partitions there are is asked for only if a tick says that there are more."""

import pytest

from workers.pipeline.ticks import Places, Tick


class Counts:
    """Two topics. asked: how often it was asked."""

    def __init__(self, sources: int, partitions: int) -> None:
        self.now = [sources, partitions]
        self.asked = 0

    def sources(self) -> int:
        self.asked += 1
        return self.now[0]

    def partitions(self) -> int:
        return self.now[1]


def test_what_is_known_is_not_asked_again() -> None:
    counts = Counts(2, 3)
    places = Places(counts.sources, counts.partitions)
    assert all(places.had(Tick(1_000, source, 2, partitions)) for source in (0, 1) for partitions in (None, 2, 3))
    assert counts.asked == 1


def test_partitions_that_are_new_are_heard_of() -> None:
    counts = Counts(2, 3)
    places = Places(counts.sources, counts.partitions)
    for tick in (Tick(1_000, 2, 3, 3), Tick(1_000, 0, 2, 4)):
        assert not places.had(tick)
    counts.now = [3, 4]
    for tick in (Tick(1_000, 2, 3, 3), Tick(1_000, 0, 2, 4)):
        assert places.had(tick)


@pytest.mark.parametrize("tick", [Tick(1_000, 0, 3, 1), Tick(1_000, 2, 2, 1), Tick(1_000, 0, 1, 2**40)], ids=str)
def test_one_of_partitions_that_there_are_not_did_not_come_through_one(tick: Tick) -> None:
    counts = Counts(2, 3)
    assert not Places(counts.sources, counts.partitions).had(tick)


def test_a_reader_of_the_first_topic_does_not_ask_for_the_second() -> None:
    assert Places(lambda: 2).had(Tick(1_000, 1, 2))
