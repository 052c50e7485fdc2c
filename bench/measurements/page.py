"""A page of 25 from a feed of 1,000, against ZREVRANGE; deep in the feed; and where an unfollow has left 1,000
markers.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bench import ours, redis_side
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.redis_server import redis_client
from bench.redis_side import key
from bench.results import Row, at_most, interleaved, latencies, of_sides, percentile, ratios
from bench.timing import each_us
from feedstore.clocks import wall_ms
from feedstore.domain import Entry
from feedstore.following import FEEDS, mutations
from feedstore.following.pages import FeedPages

if TYPE_CHECKING:
    import redis  # an extra, which a measurement without it does not need


LIMIT = 25
DEEP = 900
BLOCKS = 20
"""A repeat is cut into so many turns of each side: a tail shows what the machine does, and must show it on both."""


def measure(context: Context) -> list[Row]:
    """A page of 25 against Redis ZREVRANGE, from the top, deep, and past markers"""
    count = context.pick(200, 20)
    plain = made_feeds(count, CAP, seed=1)
    # An unfollow took 1,000 entries: every other one, or all of the newest.
    mixed = made_feeds(count, 2 * CAP, seed=2)
    topped = made_feeds(count, 2 * CAP, seed=3)
    config = ours.make_home(context.folder("page"))
    with ours.replica(config) as replica:
        ours.fill(replica, [*plain, *mixed, *topped])
        for feeds, gone in ((mixed, slice(0, None, 2)), (topped, slice(0, CAP))):
            for feed in feeds:
                replica.tables[FEEDS].apply([mutations.remove([(feed.user, wall_ms())], feed.entries[gone])])
    # Opened again: what is read lies in files, as after a restart. First as the writes left it, in several runs, then
    # as a sweep leaves it, which is how housekeeping keeps it.
    times = Times(context.pick(5_000, 500) // BLOCKS, seed=1)
    with ours.replica(config) as replica:
        unswept = times.of(plain, partial(_page, ours.pages_of(replica)))
        as_written = [percentile(unswept(), 0.50) for _ in range(context.repeats)]
        replica.tables[FEEDS].sweep(wall_ms())
    with (
        ours.replica(config) as replica,
        redis_client(context.folder("redis")) as client,
    ):
        redis_side.fill(client, plain)
        reader = ours.pages_of(replica)
        cursors = {feed.user: reader.page(feed.user, DEEP).cursor for feed in plain}
        _check(reader, client, plain[0], mixed[0], topped[0])
        blocks = interleaved(
            {
                "redis": times.of(plain, lambda user: client.zrevrange(key(user), 0, LIMIT - 1)),
                "scores": times.of(plain, lambda user: client.zrevrange(key(user), 0, LIMIT - 1, withscores=True)),
                "first": times.of(plain, lambda user: reader.page(user, LIMIT).entries),
                "deep": times.of(plain, lambda user: reader.page(user, LIMIT, cursors[user]).entries),
                "mixed": times.of(mixed, lambda user: reader.page(user, LIMIT).entries),
                "topped": times.of(topped, lambda user: reader.page(user, LIMIT).entries),
            },
            context.repeats * BLOCKS,
        )
    at = latencies(blocks, BLOCKS)
    p50, p99 = at.values()
    return [
        Row("page of 25 from 1,000 entries / ZREVRANGE, p50", "x", ratios(p50["first"], p50["redis"]), at_most(0.3)),
        Row("page of 25 from 1,000 entries / ZREVRANGE, p99", "x", ratios(p99["first"], p99["redis"]), at_most(0.3)),
        Row("page 900 entries deep / first page, p50", "x", ratios(p50["deep"], p50["first"]), at_most(1.5)),
        Row(
            "page after 1,000 markers on every other entry / first page, p50",
            "x",
            ratios(p50["mixed"], p50["first"]),
            at_most(2),
        ),
        Row(
            "page after 1,000 markers on the newest entries / first page, p50",
            "x",
            ratios(p50["topped"], p50["first"]),
            at_most(2),
        ),
        Row("first page of 25, before a sweep, p50", "us", as_written),
        *of_sides(SIDES, at),
    ]


SIDES = {
    "first": "first page of 25",
    "deep": "page of 25, 900 entries deep",
    "mixed": "first page after 1,000 markers on every other entry",
    "topped": "first page after 1,000 markers on the newest entries",
    "redis": "ZREVRANGE 0 24",
    "scores": "ZREVRANGE 0 24 WITHSCORES, which says what a page says",
}


def _page(reader: FeedPages, user: int) -> object:
    return reader.page(user, LIMIT).entries


class Times:
    """Times single calls, in us, over feeds chosen at random."""

    def __init__(self, calls: int, seed: int) -> None:
        self._calls = calls
        self._rng = random.Random(seed)

    def of(self, feeds: Sequence[Feed], call: Callable[[int], object]) -> Callable[[], list[float]]:
        return lambda: each_us(call, [feed.user for feed in self._rng.choices(feeds, k=self._calls)])


def _check(reader: FeedPages, client: "redis.Redis", plain: Feed, mixed: Feed, topped: Feed) -> None:
    """What is timed is also right."""
    first = reader.page(plain.user, LIMIT)
    assert first.entries == [Entry(*entry) for entry in plain.entries[:LIMIT]]
    assert [entry.pin for entry in first.entries] == [
        int(pin) for pin in client.zrevrange(key(plain.user), 0, LIMIT - 1)
    ]
    deep = reader.page(plain.user, LIMIT, reader.page(plain.user, DEEP).cursor)
    assert deep.entries == [Entry(*entry) for entry in plain.entries[DEEP : DEEP + LIMIT]]
    assert reader.page(mixed.user, LIMIT).entries == [Entry(*entry) for entry in mixed.entries[1::2][:LIMIT]]
    assert reader.page(topped.user, LIMIT).entries == [Entry(*entry) for entry in topped.entries[CAP:][:LIMIT]]
