"""`python -m bench.unfollows [mysql://root@127.0.0.1:3306/]`: whether an unfollow costs more where more is followed.

It expands and writes batches of unfollows of a user who follows 100 others, and of one who follows 100,000, in turn; in
SQLite, or on a server where it makes databases of its own and drops them. Every followee has more pins than a feed
holds, so that each unfollow needs its row read too.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.mysql_follows import temporary_store
from deploy.local.signals import unwinding
from feedstore.boards import Boards
from feedstore.clocks import wall_ms
from feedstore.domain import Edge, Follow, Pin, PinSaved, SavePin, Unfollow, Unfollowed, user
from feedstore.following import Limits, feed_table, mutations
from feedstore.follows import sqlite
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from feedstore.widecolumn.progress import Progress, progress_table
from tests.queue.memory_queue import MemoryQueue
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import Delivery, Task
from workers.following.packs import Pack, decode_bodies
from workers.following.topics import DELIVERIES, TOPICS

DAY_MS = 86_400_000
CREATED_MS = 1_700_000_000_000
FOLLOWS = (100, 100_000)
SAVED = 100
"""How many of the followees the row holds pins of; these are unfollowed."""
PINS = 8
CAP = 5


class Sample(NamedTuple):
    """ms an unfollow."""

    expanding: float
    writing: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.unfollows", description=__doc__)
    parser.add_argument("url", nargs="?", help="a MySQL server, and a user that may create databases")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, default=50, help="unfollows a sample")
    chosen = parser.parse_args()
    with _store(chosen.url) as store:
        few, many = (_User(store, 10 + number, follows) for number, follows in enumerate(FOLLOWS))
        for warmed in (few, many):
            warmed.sample(chosen.batch)
        samples = [(few.sample(chosen.batch), many.sample(chosen.batch)) for _ in range(chosen.repeats)]
    for part, name in enumerate(Sample._fields):
        for side, follows in enumerate(FOLLOWS):
            _print(f"{name}, {follows:,} follows", "ms an unfollow", [each[side][part] for each in samples])
        ratios = [of_many[part] / of_few[part] for of_few, of_many in samples]
        _print(f"{name}, {FOLLOWS[1]:,} follows / {FOLLOWS[0]:,}", "x", ratios)


def _print(name: str, unit: str, values: Sequence[float]) -> None:
    print(f"{name:<44} {statistics.median(values):>8.3f} {unit}  ({min(values):.3f} .. {max(values):.3f})")


@contextmanager
def _store(url: str | None) -> Iterator[FollowStore]:
    if url is not None:
        with temporary_store(url) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "follows.db"
        sqlite.create([path])
        with closing(sqlite.open_store([path], wall_ms)) as store:
            yield store


class _User:
    """A user with so many follows, all of them recent, in a cluster of their own."""

    def __init__(self, store: FollowStore, me: int, follows: int) -> None:
        self._store = store
        self._me = me
        self._followees = range(1_000 * me * 1_000, 1_000 * me * 1_000 + follows)
        self._next = itertools.cycle(range(SAVED))
        limits = Limits(CAP, CAP, action_age_ms=DAY_MS, delivery_age_ms=DAY_MS, purge_window_ms=4 * DAY_MS)
        self._queue = MemoryQueue(dict.fromkeys(TOPICS, 1), wall_ms)
        self._expander = Expander(store, self._queue, limits, Respacing(Boards(store), lambda: 0.0).respace)
        self._feeds = MemoryStore(feed_table(CAP, CAP, limits.purge_window_ms))
        progress = Progress(MemoryStore(progress_table(limits.purge_window_ms)))
        self._writer = Writer("a", self._feeds, progress, store, self._queue, limits)
        self._consumer = self._queue.consumer(DELIVERIES, "bench")
        for some in chunks(self._followees, 1_000):
            store.record([Request(Follow(me, user(each))) for each in some])
            now = wall_ms()
            store.index(edges=[Edge(me, user(each), now, active=True) for each in some])
            # Saved long ago: what is older than the window is listed up to the cap.
            store.index(pins=[PinSaved(pin, 1) for each in some for pin in self._pins(each)])
        store.record([Request(SavePin(pin)) for each in self._followees[:SAVED] for pin in self._pins(each)])
        self._fill(range(SAVED), wall_ms())

    def _pins(self, followee: int) -> list[Pin]:
        return [Pin(followee * PINS + number, followee, followee, CREATED_MS + number) for number in range(PINS)]

    def _fill(self, some: Sequence[int], ts: int) -> None:
        """Puts the pins of some of the followees into the row."""
        pins = [(pin.pin, pin.created_ms) for number in some for pin in self._pins(self._followees[number])]
        self._feeds.apply([mutations.put([(self._me, ts)], pins)])

    def sample(self, size: int) -> Sample:
        """Unfollows some, and follows them again for the next sample, which is not measured."""
        numbers = [next(self._next) for _ in range(size)]
        some = [user(self._followees[number]) for number in numbers]
        recorded = self._store.record([Request(Unfollow(self._me, each)) for each in some])
        tasks = [Task(action) for action in recorded if isinstance(action, Unfollowed)]
        began_s = time.perf_counter()
        self._expander.expand(tasks)
        expanded_s = time.perf_counter()
        messages = [body for each in self._consumer.poll(100_000, 0) for body in decode_bodies(each.value)]
        taken_s = time.perf_counter()
        self._writer.write([each for each in messages if isinstance(each, Delivery | Pack)])
        written_s = time.perf_counter()
        self._store.record([Request(Follow(self._me, each)) for each in some])
        self._fill(numbers, max(action.ts for action in recorded if isinstance(action, Unfollowed)) + size)
        return Sample((expanded_s - began_s) * 1_000 / size, (written_s - taken_s) * 1_000 / size)


if __name__ == "__main__":
    with unwinding():
        main()
