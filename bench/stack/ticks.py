"""Ticks through many partitions: what one costs the queue, and what a look at a cluster costs that notes them."""

import itertools
import os
import struct
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.context import Context
from bench.results import Row, at_most, interleaved, latencies, ratios
from bench.stack.servers import Servers, replica
from bench.timing import each_us
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Put
from feedstore.widecolumn.progress import Progress, Through
from workers.following.messages import encode_ticks
from workers.following.topics import DELIVERIES
from workers.pipeline.ticks import Tick
from workers.queue.kafka import KafkaQueue, parse, topics
from workers.queue.kafka.queue import connect

NAMESPACE = f"bench{os.getpid()}ticks"
AT_MS = 1_700_000_000_000
BLOCKS = 10


def measure(servers: Servers, context: Context) -> list[Row]:
    """Ticks through 64 partitions: publishing them together or one after the other, and looks at what is noted"""
    count, calls = context.pick(64, 8), context.pick(200, 50) // BLOCKS
    repeats = context.repeats * BLOCKS
    said = f"a watermark of {count} partitions"
    rows: list[Row] = []
    with (
        replica(servers, NAMESPACE) as noted,
        replica(servers, f"{NAMESPACE}pairs") as pairs,
        replica(servers, f"{NAMESPACE}one") as one,
    ):
        Progress(noted.progress).advance({Through(partition, count, count): AT_MS for partition in range(count)})
        _note_pairs(pairs, count)
        Progress(one.progress).advance({Through(0, 1, 1): AT_MS})
        looks = {name: _looks(place, calls) for name, place in (("noted", noted), ("pairs", pairs), ("one", one))}
        interleaved(looks, BLOCKS)
        at = latencies(interleaved(looks, repeats), BLOCKS)
    for share, p in at.items():
        rows += [
            Row(
                f"a watermark of {count} partitions / of one, {share}", "x", ratios(p["noted"], p["one"]), at_most(1.5)
            ),
            Row(
                f"the same with a note for each of {count} sources / of one, {share}", "x", ratios(p["pairs"], p["one"])
            ),
            Row(f"{said}, {share}", "us", p["noted"]),
        ]
    taken = _published(servers, count, calls, repeats)
    for share, p in taken.items():
        rows += [
            Row(
                f"a tick to {count} partitions together / one after the other, {share}",
                "x",
                ratios(p["together"], p["one by one"]),
                at_most(0.5),
            ),
            Row(f"a tick to {count} partitions together, {share}", "us", p["together"]),
        ]
    return rows


def _published(servers: Servers, count: int, calls: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    address = parse(f"kafka://127.0.0.1:{servers.stack.port('kafka')}?prefix={NAMESPACE}.", Path(), os.environ)
    wanted = topics.definitions(address, [DELIVERIES], partitions=count, replication=1, action_age_ms=86_400_000)
    values = encode_ticks([Tick(AT_MS, source, count) for source in range(count)], count)
    with closing(connect(address)) as admin:
        topics.apply(address, wanted)
        try:
            with closing(KafkaQueue.open(address, [DELIVERIES])) as queue:

                def together(_: int) -> None:
                    queue.publish_each(DELIVERIES, dict.fromkeys(range(count), values))

                def one_by_one(_: int) -> None:
                    for partition in range(count):
                        queue.publish(DELIVERIES, values, partition)

                sides: dict[str, Callable[[], list[float]]] = {
                    "together": partial(each_us, together, range(calls)),
                    "one by one": partial(each_us, one_by_one, range(calls)),
                }
                interleaved(sides, 1)
                return latencies(interleaved(sides, repeats), BLOCKS)
        finally:
            admin.delete_topics([each.name for each in wanted])


def _note_pairs(place: Replica, count: int) -> None:
    """As versions did that noted each pair of a partition and a source."""
    columns = [struct.pack(">IIII", p, count, s, count) for p, s in itertools.product(range(count), range(count))]
    place.progress.apply([Put([(b"t" + bytes(8), AT_MS)], columns)])


def _looks(place: Replica, calls: int) -> Callable[[], list[float]]:
    progress = Progress(place.progress)

    def look(_: int) -> None:
        assert progress.watermark() == AT_MS

    return partial(each_us, look, range(calls))
