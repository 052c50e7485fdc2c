"""Bytes an entry: feeds of 1,000 on disk after a sweep, against the memory that they take in Redis."""

from bench import ours, redis_side
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.redis_server import redis_client
from bench.results import Row, at_most, ratios
from feedstore.clocks import wall_ms
from feedstore.following import FEEDS


def measure(context: Context) -> list[Row]:
    """Bytes an entry on disk after a sweep of 1,000-entry feeds, against Redis's memory"""
    count = context.pick(500, 20)
    disk: list[float] = []
    accounted: list[float] = []
    used: list[float] = []
    for repeat in range(context.repeats):
        feeds = made_feeds(count, CAP, seed=repeat)
        entries = count * CAP
        config = ours.make_home(context.folder("size"))
        with ours.replica(config) as replica:
            ours.fill(replica, feeds)
            replica.tables[FEEDS].sweep(wall_ms())
        disk.append(ours.disk_bytes(config.home / "data" / replica.name) / entries)
        with redis_client(context.folder("redis")) as client:
            before = int(client.info("memory")["used_memory"])
            redis_side.fill(client, feeds)
            used.append((int(client.info("memory")["used_memory"]) - before) / entries)
            accounted.append(redis_side.memory_bytes(client, feeds) / entries)
    return [
        Row("disk an entry after a sweep / Redis memory an entry", "x", ratios(disk, accounted), at_most(0.25)),
        Row("disk an entry after a sweep, every file of the cluster counted", "bytes", disk),
        Row("Redis MEMORY USAGE an entry", "bytes", accounted),
        Row("Redis used_memory an entry", "bytes", used),
    ]
