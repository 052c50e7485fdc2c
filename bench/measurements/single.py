"""One action through a running worker: an unfollow by a user who follows 2,000 others, a follow of a user with
100,000 pins.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import ours
from bench.context import Context
from bench.results import Row, at_most
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.domain import Action, Follow, Pin, SavePin, Unfollow, user
from feedstore.following import FEEDS, entries_of, row_key
from feedstore.follows.port import Request
from workers.app import wiring
from workers.following.ports import Ports

BACK_MS = 4 * 86_400_000
"""How long ago what is not measured happened: longer than W, so that an unfollow cannot list everything and the
writers read their rows (rule 6)."""
FOLLOWER = 10**6
DEEP_PINS = 1_500
FEW_PINS = 20
IDLE_S = 600.0


def measure(context: Context) -> list[Row]:
    """An unfollow by a user who follows 2,000 others, and a follow of a user with 100,000 pins"""
    followed = context.pick(2_000, 100)
    many = context.pick(100_000, 2_000)
    popular = followed + 1
    deep = range(1, context.repeats + 1)
    config = ours.make_home(context.folder("single"))

    def before() -> int:
        return wall_ms() - BACK_MS

    with ours.ports(config, before) as opened:
        pins = _pins([(owner, DEEP_PINS if owner in deep else FEW_PINS) for owner in range(1, followed + 1)])
        ours.record_indexed(opened.follows, pins, lambda done: context.say(f"{done:,} pins recorded"))
        pins = _pins([(popular, many)], first=10**7)
        ours.record_indexed(opened.follows, pins, lambda done: context.say(f"{done:,} pins recorded"))
        opened.follows.record([Request(Follow(FOLLOWER, user(owner))) for owner in range(1, followed + 1)])
        with _working(opened, config):
            ours.wait_idle(opened, IDLE_S)
        for replica in opened.replicas.values():
            replica.tables[FEEDS].sweep(before())
    unfollows: list[float] = []
    follows: list[float] = []
    with ours.ports(config) as opened, _working(opened, config):
        ours.wait_idle(opened, IDLE_S)
        for repeat, owner in enumerate(deep):
            unfollows.append(_timed(opened, Unfollow(FOLLOWER, user(owner))))
            follows.append(_timed(opened, Follow(FOLLOWER + 1 + repeat, user(popular))))
            _check(opened, FOLLOWER, owner)
            _check(opened, FOLLOWER + 1 + repeat, None)
    return [
        Row(
            f"unfollow by a user who follows {followed:,} others: list, markers, row read, refill, both replicas",
            "s",
            unfollows,
            at_most(1),
        ),
        Row(f"follow of a user with {many:,} pins, both replicas", "s", follows, at_most(0.5)),
    ]


def _pins(owners: Sequence[tuple[int, int]], first: int = 1) -> Iterator[Request]:
    """Pins of each owner, a second apart and interleaved, so that every feed mixes its owners."""
    began = wall_ms() - 2 * BACK_MS
    pin = first
    for number in range(max(count for _, count in owners)):
        for owner, count in owners:
            if number < count:
                yield Request(SavePin(Pin(pin, owner, owner, began + number * 1_000 + owner % 1_000)))
                pin += 1


@contextmanager
def _working(opened: Ports, config: Config) -> Iterator[None]:
    worker = wiring.worker(opened, config)
    thread = threading.Thread(target=worker.run, name="bench-worker")
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def _timed(opened: Ports, action: Action) -> float:
    """Seconds from asking for an action until nothing of it is on its way."""
    began = time.perf_counter()
    ours.record(opened.follows, [Request(action)])
    ours.wait_idle(opened, IDLE_S)
    return time.perf_counter() - began


def _check(opened: Ports, follower: int, gone: int | None) -> None:
    """The feed is full, and nothing is left of whom they do not follow any more."""
    for replica in opened.replicas.values():
        pins = [entry.pin for entry in entries_of(replica.tables[FEEDS].read(row_key(follower), None, 1_000))]
        assert len(pins) == 1_000, f"{replica.name}: {len(pins)} entries"
        owners = {state.pin.owner for state in opened.follows.pins(pins).values()}
        assert gone not in owners
