"""A pin with a million followers into two HBase clusters: how long, and what memory the worker needs."""

from bench import ours
from bench.context import Context
from bench.measurements.fanout import index_followers, pins_saved, sizes_of
from bench.results import Row
from bench.stack.servers import Servers, home


def measure(servers: Servers, context: Context) -> list[Row]:
    """A pin with 1,000,000 followers into both clusters, and the worker's memory from 1,000 followers on"""
    sizes = sizes_of(context)
    with home(servers, context) as config:
        with ours.ports(config) as opened:
            for owner, size in enumerate(sizes, start=1):
                index_followers(opened.follows, owner, size)
                context.say(f"{size:,} followers")
        return pins_saved(context, config, sizes, "clusters", 60)
