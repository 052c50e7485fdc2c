"""The same as `bench.measurements.serving`, on two HBase clusters behind their gateways."""

import os
from contextlib import ExitStack

from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.measurements.serving import beside_the_read, hedged, opened
from bench.ours import fill
from bench.results import Row
from bench.stack.servers import Servers, replica
from feedstore.replicas.attempts import OnThreads

NAMESPACE = f"bench{os.getpid()}serving"
CLUSTERS = ("a", "b")


def measure(servers: Servers, context: Context) -> list[Row]:
    """A page through the library against the adapter's read; hedges between two clusters"""
    feeds = made_feeds(context.pick(100, 20), CAP, seed=1)
    with ExitStack() as stack:
        pair = {name: stack.enter_context(replica(servers, NAMESPACE, cluster=name)) for name in CLUSTERS}
        for name, each in pair.items():
            fill(each, feeds)
            context.say(f"filled {name}")
        with opened(pair, lambda name: OnThreads(name, 64)) as replicas:
            rows = beside_the_read("HBase", pair["a"], replicas, feeds, context.pick(1_000, 200), context.repeats)
        return [*rows, *hedged("HBase", pair, feeds, context)]
