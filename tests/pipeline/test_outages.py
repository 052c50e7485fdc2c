"""What waits for slots of a store that are away: parts of messages that need them, and nothing else."""

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
        away = frozenset().union(*(each.slots or frozenset() for each in outages))
        assert away == {0, 1} - tried
        assert len(free) + sum(len(each.items) for each in outages) == 1
