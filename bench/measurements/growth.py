"""Whether writing slows down as a cluster fills: the writer's rate at 20 M stored entries against that at 1 M."""

import random
import time
from collections.abc import Iterator

from bench import ours
from bench.context import Context
from bench.results import Row, at_least, interleaved, ratios
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, PinSaved
from feedstore.following import FEEDS, Limits
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn.progress import Progress
from workers.following.messages import Block, Delivery, Packed
from workers.following.packs import packed, unpacked
from workers.following.ports import Ports
from workers.following.writer import Writer

USERS = 100_000
ROWS = 1_000
MESSAGES = 10
BEGAN_MS = 1_700_000_000_000


def measure(context: Context) -> list[Row]:
    """The writer's rate at 20 M stored entries against that at 1 M"""
    full = context.pick(20_000_000, 400_000)
    start = context.pick(1_000_000, 20_000)
    window = context.pick(1_000_000, 10_000)

    def at_start() -> float:
        config = ours.make_home(context.folder("small"))
        with ours.ports(config) as opened:
            saved = _Saved(opened, config.limits)
            saved.write(start)
            return saved.write(window)

    config = ours.make_home(context.folder("large"))
    with ours.ports(config) as opened:
        filled = _Saved(opened, config.limits)
        for stored in range(0, full, full // 10):
            rate = filled.write(full // 10)
            context.say(f"{stored + full // 10:,} entries stored, {rate:,.0f} entries/s")
        samples = interleaved({"start": at_start, "full": lambda: filled.write(window)}, context.repeats)
    at = {"start": f"{start / 1e6:g} M", "full": f"{full / 1e6:g} M"}
    return [
        Row(
            f"write rate at {at['full']} stored entries / at {at['start']}",
            "x",
            ratios(samples["full"], samples["start"]),
            at_least(0.9),
        ),
        *(Row(f"write rate at {at[side]} stored entries", "entries/s", samples[side]) for side in at),
    ]


class _Saved:
    """Saved pins, each delivered to 1,000 of the followers, as a writer gets them."""

    def __init__(self, opened: Ports, limits: Limits) -> None:
        replica: Replica = next(iter(opened.replicas.values()))
        progress = Progress(replica.progress)
        self._writer = Writer(replica.name, replica.tables[FEEDS], progress, opened.follows, opened.queue, limits)
        self._rng = random.Random(1)
        self._pin = 0

    def write(self, entries: int) -> float:
        """Writes so many entries; returns how many a second."""
        seconds = 0.0
        rounds = max(1, entries // (ROWS * MESSAGES))
        for _ in range(rounds):
            messages = [unpacked(pack) for pack in packed(self._deliveries()) if isinstance(pack, Packed)]
            began = time.perf_counter()
            self._writer.write(messages)
            seconds += time.perf_counter() - began
        return rounds * ROWS * MESSAGES / seconds

    def _deliveries(self) -> Iterator[Delivery]:
        now = wall_ms()
        for _ in range(MESSAGES):
            self._pin += 1
            pin = Pin(self._pin, 1, 1, BEGAN_MS + self._pin)
            rows = [(user, BEGAN_MS + user) for user in self._rng.sample(range(1, USERS + 1), ROWS)]
            yield Delivery(PinSaved(pin, now), now, puts=[Block(rows, [(pin.pin, pin.created_ms)])])
