"""The writer stage alone: one group from a topic that is already full into one durable replica, against Redis."""

import time

from bench import loaded, ours
from bench.context import Context
from bench.redis_server import redis_client
from bench.redis_side import apply_deliveries
from bench.results import Row, at_least, interleaved
from feedstore.app.config import load
from workers.app import wiring
from workers.following.applied import begin_groups
from workers.following.groups import writer_group
from workers.following.topics import DELIVERIES
from workers.queue.port import lag_of

WRITER_S = 900.0


def measure(context: Context) -> list[Row]:
    """The writer stage alone, into one replica, against Redis"""
    home = loaded.home(context)
    deliveries = context.deliveries
    count = len(deliveries)
    writes = 0

    def writer() -> float:
        nonlocal writes
        writes += 1
        name = f"bench-{writes}"
        config = ours.with_cluster(load(home, {}), name)
        with ours.ports(config) as opened:
            begin_groups(opened.queue, [name])  # it counts as one that has been there from the first message on
            stage = wiring.writer(opened, config, name)
            waiting = lag_of(opened.queue, DELIVERIES, writer_group(name))
            began = time.perf_counter()
            while lag_of(opened.queue, DELIVERIES, writer_group(name)):
                stage.step()
                if time.perf_counter() - began > WRITER_S:
                    raise TimeoutError(f"the writer was not done after {WRITER_S:.0f} s")
            seconds = time.perf_counter() - began
            stage.close()
            ours.forget_outbox(opened.follows)  # what its purges ask for is for a cluster that goes away
        context.say(f"{waiting:,} messages in {seconds:.1f} s")
        ours.remove_cluster(config, name)
        return seconds

    with redis_client(context.folder("redis")) as client:
        samples = interleaved({"ours": writer, "redis": lambda: apply_deliveries(client, deliveries)}, context.repeats)
    return [
        Row(
            "writer stage alone, one replica / Redis, deliveries a second",
            "x",
            [theirs / ours_ for ours_, theirs in zip(samples["ours"], samples["redis"], strict=True)],
            at_least(3),
        ),
        Row("writer stage alone, one replica", "deliveries/s", [count / seconds for seconds in samples["ours"]]),
        Row("Redis beside it", "deliveries/s", [count / seconds for seconds in samples["redis"]]),
    ]
