"""What waits for slots of a store that are away: parts of messages that need them, and nothing else."""

from random import Random
from typing import Any

from workers.pipeline.lots import Lots
from workers.pipeline.outages import Outages
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
