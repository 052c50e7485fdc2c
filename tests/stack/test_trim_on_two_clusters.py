"""Feeds that are ten times too long, on both clusters, with flushes and compactions of each at moments of its own: a
reader sees the model's page after every step, and the same page on both.

What reaches the rows is what the handlers write: backfills, fanouts, purges with their refills, and any of it again and
late. `test_trim_on_the_stack.py` has the handlers themselves.
"""

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from deploy.local import Stack
from feedstore.following import columns, feed_table, mutations, row_key
from feedstore.widecolumn import Mutation, WideColumnStore
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.schema import definition
from tests.widecolumn.hbase_regions import Regions

pytestmark = pytest.mark.stack

CAP, SLACK = 4, 1
USERS = [1, 2, 3]
FOLLOWEES = range(4)
STEPS = 80
DAY_MS = 86_400_000
SMALL = {"MEMSTORE_FLUSHSIZE": str(16 << 20), "hbase.hstore.compaction.min.size": "1"}

Entry = tuple[int, int]
"""A pin and when it was created."""


def chunks(entries: list[Entry]) -> list[list[Entry]]:
    """As a purge or a fanout may travel: in several deliveries."""
    return [entries[start : start + 15] for start in range(0, len(entries), 15)]


class Replica:
    """One cluster's table of feeds, and what happens to its files."""

    def __init__(self, store: WideColumnStore, regions: Regions, chance: random.Random) -> None:
        self.store = store
        self.regions = regions
        self.chance = chance

    def apply(self, batch: list[Mutation]) -> None:
        """In parts, with something happening to the files between any two of them."""
        for mutation in self.chance.sample(batch, len(batch)):
            self.store.apply([mutation])
            self.disturb()

    def disturb(self) -> None:
        what = self.chance.random()
        if what < 0.10:
            self.regions.flush()
        elif what < 0.14:
            self.regions.compact(major=False)
        elif what < 0.18:
            self.regions.compact(major=True)


class World:
    """Who follows what, since when, and every pin: what the follow store knows."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = time.time_ns() // 1_000_000
        self.pins: dict[int, list[Entry]] = {followee: [] for followee in FOLLOWEES}
        self.edges: dict[tuple[int, int], int] = {}
        self.sent: list[Mutation] = []

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def newest(self, entries: list[Entry]) -> list[Entry]:
        return sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:CAP]

    def page(self, user: int) -> list[bytes]:
        """The newest `CAP` pins of what a user follows now."""
        followed = [entry for (who, what) in self.edges if who == user for entry in self.pins[what]]
        return columns(self.newest(followed))

    def save(self) -> list[list[Mutation]]:
        followee = self.chance.choice(FOLLOWEES)
        saved = [
            (self.tick(), self.clock - self.chance.randint(0, 3) * DAY_MS) for _ in range(self.chance.randint(1, 60))
        ]
        self.pins[followee] += saved
        rows = [(who, ts) for (who, what), ts in self.edges.items() if what == followee]
        return [[mutations.put(rows, some) for some in chunks(saved)]] if rows else []

    def follow(self) -> list[list[Mutation]]:
        user, followee = self.chance.choice(USERS), self.chance.choice(FOLLOWEES)
        self.edges[user, followee] = ts = self.tick()
        return [[mutations.put([(user, ts)], self.newest(self.pins[followee]))]]

    def unfollow(self) -> list[list[Mutation]]:
        """The markers, and when they have all landed the refill."""
        if not self.edges:
            return []
        user, followee = self.chance.choice(sorted(self.edges))
        del self.edges[user, followee]
        ts = self.tick()
        purge = [mutations.remove([(user, ts)], some) for some in chunks(self.pins[followee])]
        refill = [
            mutations.put([(user, since)], self.newest(self.pins[what]))
            for (who, what), since in self.edges.items()
            if who == user
        ]
        return [purge, refill]

    def again(self) -> list[list[Mutation]]:
        """Something that was sent before, however long ago."""
        return [self.chance.sample(self.sent, min(3, len(self.sent)))]

    def step(self) -> list[list[Mutation]]:
        [act] = self.chance.choices([self.save, self.follow, self.unfollow, self.again], [5, 2, 2, 2])
        batches = act()
        self.sent += [mutation for batch in batches for mutation in batch]
        return batches


@pytest.fixture
def replicas(stack: Stack) -> Iterator[list[Replica]]:
    stack.up("cluster-a", "cluster-b")
    namespace = f"feedtest_{uuid.uuid4().hex[:12]}"
    table = feed_table(CAP, SLACK, 5 * DAY_MS)
    with ExitStack() as opened:
        made = []
        for number, name in enumerate("ab"):
            url = f"hbase://127.0.0.1:{stack.port(f'thrift2-{name}')}/{namespace}"
            cluster = opened.enter_context(closing(HBaseCluster.open(url, [table], check=False)))
            tables = cluster.administration
            tables.create_namespace()
            opened.callback(tables.drop_namespace)
            wanted = definition(table, SMALL)
            opened.callback(tables.drop, table.name)
            # One region: what happens to the files happens to every row.
            tables.create(type(wanted)(wanted.name, wanted.families, wanted.settings))
            made.append(Replica(cluster.table(table.name), Regions(url, table.name), random.Random(number)))
        yield made


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_see_the_models_page_after_every_step(replicas: list[Replica], seed: int) -> None:
    world = World(random.Random(seed))
    longest = 0
    for number in range(STEPS):
        for batch in world.step():
            for replica in replicas:
                replica.apply(batch)
        for user in USERS:
            row = row_key(user)
            pages = [replica.store.read(row, None, CAP) for replica in replicas]
            assert pages == [world.page(user)] * len(replicas), (seed, number, user)
            longest = max(longest, *(len(replica.store.read(row, None, 10_000)) for replica in replicas))
    for replica in replicas:
        replica.regions.flush()
        replica.regions.compact(major=True)
        for user in USERS:
            assert len(replica.store.cells(row_key(user))) <= CAP + SLACK
            assert replica.store.read(row_key(user), None, CAP) == world.page(user), (seed, user)
    assert longest >= 10 * (CAP + SLACK), longest
