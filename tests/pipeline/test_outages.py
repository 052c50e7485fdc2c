"""What waits for slots of a store that are away: parts of messages that need them, and nothing else."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from workers.pipeline.lots import Lots
from workers.pipeline.outages import Outages, Probe
from workers.queue.port import Message

Needs = frozenset[int]


class Parts:
    """Messages of parts, each of which needs some slots. A message is divided by its parts."""

    count = 3

    def needed(self, body: tuple[Needs, ...]) -> frozenset[int]:
        return frozenset().union(*body)

    def divided(self, body: tuple[Needs, ...], slots: frozenset[int]) -> tuple[Any, Any] | None:
        inside = tuple(each for each in body if each & slots)
        outside = tuple(each for each in body if not each & slots)
        return (inside, outside) if inside and outside else None

    def halved(self, body: tuple[Needs, ...]) -> None:
        return None


def test_rule_12_a_part_that_needs_no_slot_that_is_away_is_tried() -> None:
    """The part that is taken out of its message needs more than the slot for which it waits."""
    lots, message = Lots(10, 10), Message(0, 0, b"")
    outages: Outages[Any] = Outages(Parts(), lots, Random(1))
    for slot in (0, 2):
        outages._begin(frozenset([slot]), 0.0, 1, 10.0)
    body = (frozenset({0, 1, 2}), frozenset({1}))
    (item,) = lots.take(lots.begin([message]), message, [body], whole=True)
    assert outages.admit([item], None) == [item]
    assert item.body == (frozenset({1}),)
    waiting = [each.body for outage in outages for each in outage.items]
    assert waiting == [(frozenset({0, 1, 2}),)]


def test_rule_12_a_probe_ends_the_outage_of_no_slot_that_its_messages_do_not_need() -> None:
    for seed in range(20):
        lots, message = Lots(10, 10), Message(0, 0, b"")
        outages: Outages[Any] = Outages(Parts(), lots, Random(seed))
        outages._begin(frozenset([0, 1]), 0.0, 1, 10.0)
        (outage,) = outages
        outage.width = 2
        # One message needs slot 1, and cannot be divided. One needs both, and is not taken if there is room for one.
        bodies = [(frozenset({1}),), (frozenset({0, 1}),)]
        assert outages.admit(lots.take(lots.begin([message]), message, bodies, whole=True), None) == []
        probe = outages.take_due(10.0, 1)
        assert isinstance(probe, Probe)
        free = outages.worked(probe, 11.0)
        tried = frozenset().union(*(part for item in probe.items for part in item.body))
        away = frozenset().union(*(each.slots for each in outages))
        assert away == {0, 1} - tried
        assert len(free) + sum(len(each.items) for each in outages) == 1


def of_slots(*due_s: float) -> Outages[Any]:
    """Slots that are away, from 0 on: when each is due. Nothing waits for them."""
    outages: Outages[Any] = Outages(Parts(), Lots(10, 10), Random(1))
    for slot, due in enumerate(due_s):
        outages._begin(frozenset([slot]), 0.0, 1, due)
    return outages


def waits(outages: Outages[Any], slots: Sequence[int]) -> None:
    """A message for each of these slots waits."""
    lots, message = Lots(10, 10), Message(0, 0, b"")
    bodies = [(frozenset({slot}),) for slot in slots]
    assert outages.admit(lots.take(lots.begin([message]), message, bodies, whole=True), None) == []


def tried(outages: Outages[Any], now_s: float) -> Probe[Any]:
    probe = outages.take_due(now_s, 10)
    assert isinstance(probe, Probe)
    return probe


def test_rule_12_the_outage_that_has_been_due_for_longest_is_tried_if_something_waits_in_it() -> None:
    """One in which nothing waits is never tried: it must keep none of the others from being tried."""
    outages = of_slots(30.0, 20.0, 10.0)
    assert outages.due_s() == math.inf
    waits(outages, [0, 1])
    assert outages.due_s() == 20.0
    assert outages.take_due(19.0, 10) is None
    assert tried(outages, 40.0).slots == {1}
    assert tried(outages, 40.0).slots == {0}


def test_rule_12_if_one_part_of_a_store_is_back_the_others_are_tried_soon_and_wait_longer_each_time_they_fail() -> None:
    outages = of_slots(10.0, 1_000.0)
    waits(outages, [0, 1])
    outages.worked(tried(outages, 10.0), 20.0)
    assert outages.due_s() == 20.0
    for failures in (2, 3):
        outages.failed(tried(outages, outages.due_s()), 20.0, 30.0, lambda failures: 100.0 * failures)
        assert outages.due_s() == 30.0 + 100.0 * failures


def test_rule_12_what_also_needs_another_part_that_is_away_is_tried_last() -> None:
    """If it fails, that says nothing of the part that is tried."""
    for seed in range(20):
        lots, message = Lots(10, 10), Message(0, 0, b"")
        outages: Outages[Any] = Outages(Parts(), lots, Random(seed))
        for slot in (0, 1):
            outages._begin(frozenset([slot]), 0.0, 1, float(slot))
        bodies = [(frozenset({0, 1}),), (frozenset({0}),)]
        assert outages.admit(lots.take(lots.begin([message]), message, bodies, whole=True), None) == []
        assert [each.body for each in tried(outages, 10.0).items] == bodies[1:]
        assert [each.body for each in tried(outages, 10.0).items] == bodies[:1]


def test_more_of_an_outage_is_tried_at_once_as_long_as_it_works() -> None:
    outages = of_slots()
    outages._begin(frozenset(range(20)), 0.0, 1, 0.0)
    waits(outages, range(20))
    for width in (1, 2, 4):
        probe = tried(outages, 1.0)
        assert len(probe.slots) == len(probe.items) == width
        assert len(outages.worked(probe, 1.0)) == 0
    outages.failed(tried(outages, 1.0), 1.0, 1.0, lambda failures: 0.0)
    assert len(tried(outages, 1.0).slots) == 1
