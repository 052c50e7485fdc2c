"""Feeds made up for the measurements that need no actions: who holds which pins, since when."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

START_MS = 1_700_000_000_000
PIN_EVERY_MS = 1_500
POOL = 100_000
FOLLOWEES = 40


@dataclass(frozen=True)
class Feed:
    """entries: (pin, created_ms), newest first. edges: for each entry the timestamp of the edge that delivered it."""

    user: int
    entries: Sequence[tuple[int, int]]
    edges: Sequence[int]


def made_feeds(count: int, entries: int, seed: int) -> list[Feed]:
    """Feeds that draw on one pool of pins, as overlapping follows make them. Pins are numbered in the order in which
    they were saved, users are spread over the numbers.
    """
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        pins = sorted(rng.sample(range(1, POOL + 1), entries), reverse=True)
        edges = [START_MS + rng.randrange(POOL * PIN_EVERY_MS) for _ in range(FOLLOWEES)]
        made.append(
            Feed(
                rng.randrange(1, 10**9),
                [(pin, START_MS + pin * PIN_EVERY_MS) for pin in pins],
                [edges[pin % FOLLOWEES] for pin in pins],
            )
        )
    return made
