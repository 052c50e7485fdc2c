"""From a topic that is full into HBase: one writer into one cluster, one into each of both, against HBase's own
`BufferedMutator` with the same cells.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from bench.children import answering
from bench.context import Context
from bench.native import write_cells
from bench.ours import ports
from bench.results import Row, at_least, interleaved, ratios
from bench.stack import stages
from bench.stack.servers import Servers, feeds_of, home
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, PinSaved
from feedstore.following import mutations
from feedstore.widecolumn import Mutation
from workers.following.groups import writer_group
from workers.following.messages import Block, Delivery, encode_delivery
from workers.following.packs import Pack, cell_mutations, decode_bodies, packed
from workers.following.topics import DELIVERIES
from workers.queue.port import go_back, lag_of

DRAIN_S = 900.0
FANOUT_CHUNK = 1_000
FANOUT_USERS = 100_000
FIRST_MS = 1_700_000_000_000
WARMING_CELLS = 1_000_000
"""Written by each side before it is measured: over so many, the processor time of HBase's own client falls from 21 us a
cell to 3, and that of gateways falls too.
"""


def measure(servers: Servers, context: Context) -> list[Row]:
    """What the expander makes of all actions: Kafka to one and to both clusters, against a native loader"""
    with home(servers, context) as config:
        for stage in (stages.record, stages.relay, stages.expand):
            stage(context, config)
        return _measured(servers, context, config, "actions")


def measure_fanout(servers: Servers, context: Context) -> list[Row]:
    """Pins for 1,000 followers each: Kafka to one and to both clusters, against a native loader"""
    with home(servers, context) as config:
        fill_with_fanout(config, context.pick(200_000, 20_000))
        return _measured(servers, context, config, "fanout of 1,000s")


def fill_with_fanout(config: Config, cells: int) -> None:
    """Deliveries of pins with many followers into the topic."""
    now = wall_ms()
    with ports(config) as opened:
        for pin in range(1, cells // FANOUT_CHUNK + 1):
            saved = Pin(pin, 1, 1, FIRST_MS + pin)
            first = pin * 7_919 % FANOUT_USERS
            rows = [(1 + (first + each) % FANOUT_USERS, FIRST_MS + each) for each in range(FANOUT_CHUNK)]
            delivery = Delivery(PinSaved(saved, now), now, puts=[Block(rows, [(pin, saved.created_ms)])])
            opened.queue.publish(DELIVERIES, [encode_delivery(pack) for pack in packed([delivery])])


@dataclass(frozen=True)
class _Sample:
    """rates: cells a second, into each cluster. processor_us: processor time for a cell of one cluster, by its taker:
    `writer`, `gateway`, `cluster`, `kafka`, `native`.
    """

    rates: Sequence[float]
    processor_us: Mapping[str, float]

    def bound(self) -> float:
        """Cells a second into each cluster, if every core of this machine did nothing else."""
        return (os.cpu_count() or 1) * 1e6 / len(self.rates) / sum(self.processor_us.values())


def _measured(servers: Servers, context: Context, config: Config, what: str) -> list[Row]:
    cells_file = context.folder("cells") / "cells"
    cells = write_cells(cells_file, _mutations(config))
    context.say(f"{what}: {cells:,} cells in the topic")
    table = feeds_of(config, "a")

    def native() -> _Sample:
        servers.flush(table)
        before = servers.processor_seconds()
        rate = servers.native.load(table, cells_file)
        return _Sample([rate], _processor_us(before, servers.processor_seconds(), cells, ["a"]))

    def drained(*clusters: str) -> _Sample:
        servers.flush(table)
        _start_over(config, clusters)
        before = servers.processor_seconds()
        said = _drain(config, clusters, cells)
        us = _processor_us(before, servers.processor_seconds(), cells, clusters)
        writer_us = sum(each["processor_s"] for each in said) / len(said) / cells * 1e6
        sample = _Sample([each["cells"] / each["seconds"] for each in said], {"writer": writer_us, **us})
        context.say(f"{', '.join(f'{rate:,.0f}' for rate in sample.rates)} cells/s")
        return sample

    sides = {"native": native, "one": lambda: drained("a"), "both": lambda: drained("a", "b")}
    interleaved(sides, -(-context.pick(WARMING_CELLS, 1) // cells))
    samples = interleaved(sides, context.repeats)
    alone, one, slower = (
        [min(each.rates) for each in taken] for taken in (samples["native"], samples["one"], samples["both"])
    )
    return [
        Row(f"{what}: Kafka to one cluster / native loader, cells a second", "x", ratios(one, alone), at_least(0.75)),
        Row(
            f"{what}: Kafka to both clusters, the slower of them / native loader into one",
            "x",
            ratios(slower, alone),
            at_least(0.5),
        ),
        Row(f"{what}: native loader", "cells/s", alone, note=f"{cells:,} cells"),
        Row(f"{what}: Kafka to one cluster", "cells/s", one),
        Row(f"{what}: Kafka to both clusters, the slower", "cells/s", slower),
        *(
            Row(
                f"{what}: {side}: what its processor time allows on these cores",
                "cells/s",
                [each.bound() for each in taken],
            )
            for side, taken in (
                ("native loader", samples["native"]),
                ("Kafka to one cluster", samples["one"]),
                ("both", samples["both"]),
            )
        ),
        *(
            Row(
                f"{what}: {side}: processor time of {who}",
                "us/cell",
                [each.processor_us[who] for each in samples[taken]],
            )
            for side, taken in (("native loader", "native"), ("Kafka to one cluster", "one"), ("both", "both"))
            for who in samples[taken][0].processor_us
        ),
    ]


def _processor_us(
    before: Mapping[str, float], after: Mapping[str, float], cells: int, clusters: Sequence[str]
) -> dict[str, float]:
    """What the servers took for a cell of one cluster, and HBase's own client, which sleeps while others write."""
    kinds = {
        "gateway": [f"thrift2-{each}" for each in clusters],
        "cluster": [f"hbase-{each}" for each in clusters],
        "kafka": ["kafka"],
        "native": ["native"],
    }
    return {
        kind: sum(after[name] - before[name] for name in names) / len(clusters) / cells * 1e6
        for kind, names in kinds.items()
    }


def _mutations(config: Config) -> Iterator[Sequence[Mutation]]:
    """What the deliveries in the topic write, read by a group of its own."""
    with ports(config) as opened, closing(opened.queue.consumer(DELIVERIES, "bench-cells")) as consumer:
        ahead = lag_of(opened.queue, DELIVERIES, "bench-cells")
        while ahead > 0:
            for message in consumer.poll(500, 1.0):
                ahead -= 1
                for body in decode_bodies(message.value):
                    if isinstance(body, Pack):
                        yield cell_mutations([body])
                    elif isinstance(body, Delivery):
                        yield [
                            *(mutations.put(block.rows, block.pins) for block in body.puts),
                            *(mutations.remove(block.rows, block.pins) for block in body.markers),
                        ]


def _start_over(config: Config, clusters: Sequence[str]) -> None:
    """The writers will read everything again."""
    with ports(config) as opened:
        first = dict.fromkeys(range(opened.queue.partitions(DELIVERIES)), 0)
        for cluster in clusters:
            go_back(opened.queue, DELIVERIES, writer_group(cluster), first)


def _drain(config: Config, clusters: Sequence[str], cells: int) -> list[dict[str, float]]:
    """Runs a writer of each of the clusters, all from the same moment."""
    words = [sys.executable, "-m", "bench.stack.drain", str(config.home)]
    with ExitStack() as stack, ThreadPoolExecutor(len(clusters)) as pool:
        writers = [
            stack.enter_context(answering([*words, cluster], config.home / f"drain-{cluster}.log", DRAIN_S))
            for cluster in clusters
        ]
        for writer in writers:
            writer.ask("be ready")
        said = list(pool.map(lambda writer: writer.ask("begin"), writers))
    assert all(each["cells"] == cells for each in said), (said, cells)
    return said
