"""A world that misbehaves, around the real handlers.

One seed decides everything: who acts, which handler moves next (they give way before and after every call of a port),
what is delivered, how often and in which order, which handler dies, when clusters are swept, how clocks go.

What the world does not do, because the design does not claim to survive it: a handler that pauses for longer
than the ages allow comes to its end there (its process is dead, or its lease is), and clocks of one store differ by
less than the margin by which the windows were chosen. Time therefore goes in two paces: by single milliseconds, in
which clocks differ and everything races, and in leaps (`LEAP_MS`) that let windows pass. Ages are never so close to a
multiple of a leap that skew could decide.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from feedstore.boards import Boards
from feedstore.domain import (
    Action,
    DeletePin,
    Entry,
    Follow,
    Followed,
    Followee,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.following import FEEDS, Limits, feed_table
from feedstore.follows.port import ActionRefusedError, Request
from feedstore.follows.store import FollowStore
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Table, WideColumnStore
from feedstore.widecolumn.progress import PROGRESS, Progress, progress_table
from tests.queue.memory_queue import MemoryDeadLetters
from tests.simulation.bag import Bag, Group, Taken
from tests.simulation.memory_shard import MemoryShard
from tests.simulation.model import Model
from tests.simulation.reading import page
from tests.simulation.scheduler import Port, QueuePort, Scheduler, StorePort
from tests.widecolumn.memory_store import MemoryStore
from workers.app import rebuild
from workers.boards import Respacing
from workers.following import Expander, Parking, Writer, backfill, fanout, housekeeping, purge, writer
from workers.following.applied import NUMBERS
from workers.following.housekeeping import sweep
from workers.following.messages import encode_action, wrap_actions
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.ticks import Tick
from workers.queue.port import Topic

CLUSTERS = ("a", "b")
CAP, SLACK = 2, 1
LEAP_MS = 100_000
_SKEW_MS = 3_000
_START_MS = 100 * LEAP_MS
_MOST_OPS = 20_000
_MOST_TURNS = 20_000
"""Until the watermarks pass. Few seeds take more than 1,500; where partitions are added while messages are stuck, one
takes more than 5,000."""
_MOST_PARTITIONS = 3  # the watermarks need as many ticks as there are pairs of them

_BOARD_OWNERS = {21: 11, 22: 11, 23: 12}


@dataclass(frozen=True)
class Profile:
    """What a family of runs does how often: relative weights of the world's moves, and of the kinds of actions."""

    followers: int = 2
    owners: tuple[int, ...] = (11, 12)
    boards: tuple[int, ...] = (21, 22, 23)
    follow: float = 3
    unfollow: float = 3
    save: float = 4
    delete: float = 1.2
    prelude: int = 14
    prelude_saves: float = 0.5
    follow_all: float = 0.15
    past: float = 0.4
    chunks: tuple[int, ...] = (1, 2, 3)
    slow: float = 0.17
    rush: float = 1.2
    followees: tuple[Followee, ...] = ()
    actions: int = 12
    steps: int = 350
    again: float = 0.08
    crash: float = 0.25
    sweep: float = 0.5
    leap: float = 0.15
    farthest: int = 3
    rebuild: float = 0
    tick: float = 0.25
    walk: float = 0.2
    sticky: tuple[float, ...] = (0, 0.1, 0.4)
    late_sweeps: float = 0.03
    ticking: float = 0.3
    park: float = 0
    grow: float = 0
    shards: tuple[int, ...] = (1, 1, 3)
    paces: tuple[float, ...] = (0.4, 0.4, 0.02)
    begin: float = 0
    cells: int | None = None


GENERAL = Profile()
PARKING = replace(GENERAL, park=1, ticking=0.7, tick=0.4)
"""Writers park every third delivery or so."""
REBUILDING = replace(GENERAL, rebuild=0.5, slow=0.4)
"""Clusters are made again while expanders run."""
BEGINNING = replace(GENERAL, begin=0.7)
"""Expanders begin some of the actions that they expand next, while others work."""
DIVIDING = replace(GENERAL, cells=1, followers=4, chunks=(1, 1, 2), save=6, follow_all=0.6, actions=8)
"""Each call does a page of a fanout at most, and leaves the rest to others."""
GROWING = replace(GENERAL, grow=0.3, ticking=1, tick=0.5, delete=0, sticky=(0, 0.1))
"""Partitions are added. Few messages are stuck: there are more ticks than are set free otherwise."""
PROFILES = {
    "general": GENERAL,
    "parking": PARKING,
    "rebuilding": REBUILDING,
    "beginning": BEGINNING,
    "dividing": DIVIDING,
    "growing": GROWING,
}


class Mutant(Protocol):
    """A guard that is taken out; see `mutants`."""

    name: str

    def patches(self) -> Sequence[tuple[object, str, Any]]:
        """(owner, attribute, value): in place for the run."""
        ...

    def tamper(self, world: "World") -> None:
        """Changes a world that was built and has not begun."""
        ...


class WrongFeedError(AssertionError):
    """A feed is not what the model says."""


@dataclass
class Outcome:
    """What a run came to. failure: None where all is as it must be."""

    seed: int
    failure: str | None
    history: list[str] = field(default_factory=list)
    moves: int = 0
    holes: int = 0


class World:
    """One run.

    traced: keeps a history. one_clock: all shards read the same clock, and a call of the follow store is one step.
    make_store, make_follows: other adapters than memory; make_follows is given a clock for each shard.
    """

    def __init__(
        self,
        seed: int,
        profile: Profile = GENERAL,
        *,
        traced: bool = False,
        one_clock: bool = False,
        make_store: Callable[[Table], WideColumnStore] = MemoryStore,
        make_follows: Callable[[Sequence[Callable[[], int]]], FollowStore] | None = None,
    ) -> None:
        self.rng = rng = Random(seed)
        self.profile = profile
        self.history: list[str] = []
        self.traced = traced
        self.now_ms = _START_MS
        self.moves = 0
        self.holes = 0
        self.limits = _limits(rng, profile)
        self.model = Model(CAP)
        self.recorded: list[RecordedAction] = []
        self.users = list(range(1, profile.followers + 1))
        self.scheduler = Scheduler(rng)
        self.scheduler.slow = profile.slow
        trace = self._trace if traced else None

        shards = rng.choice(profile.shards)
        self._offsets = [0] * (1 if one_clock else shards)
        clocks = [self._clock(0 if one_clock else number) for number in range(shards)]
        fine = shards > 1 and rng.random() < 0.5 and not one_clock
        if make_follows is not None:
            self.follows_store = make_follows(clocks)
        else:
            self.shards = [MemoryShard(clock) for clock in clocks]
            wrapped = [
                Port(f"shard {n}", shard, self.scheduler, None, after=False) for n, shard in enumerate(self.shards)
            ]
            self.follows_store = FollowStore(
                wrapped if fine else self.shards,  # type: ignore[arg-type]
                clock=lambda: self.now_ms / 1_000,
            )
        self.follows: Any = _Recording(self, self.follows_store, trace)

        self.bag = Bag(rng, 1 + int(rng.random() * 2), 1 + int(rng.random() * 2), CLUSTERS)
        self.queue: Any = QueuePort(self.bag, self.scheduler, trace, rng)
        window_ms = self.limits.purge_window_ms
        self.stores = {name: make_store(feed_table(CAP, SLACK, window_ms)) for name in CLUSTERS}
        self.progress = {name: make_store(progress_table(window_ms)) for name in CLUSTERS}
        self.replicas = {
            name: Replica(name, {FEEDS: self.stores[name], PROGRESS: self.progress[name]}) for name in CLUSTERS
        }
        self.ports: dict[str, Replica] = {
            name: Replica(
                name,
                {
                    FEEDS: StorePort(f"cluster {name}", self.stores[name], self.scheduler, trace, rng),  # type: ignore[dict-item]
                    PROGRESS: Port(f"progress {name}", self.progress[name], self.scheduler, None),  # type: ignore[dict-item]
                },
            )
            for name in CLUSTERS
        }
        self.expander = Expander(
            self.follows,
            self.queue,
            self.limits,
            Respacing(Boards(self.follows), lambda: 0.0).respace,
            cells=profile.cells or fanout.CELLS,
            window=_SometimesFull(rng) if profile.cells else None,  # type: ignore[arg-type]
        )
        self.writers = {
            name: Writer(name, port.tables[FEEDS], Progress(port.progress), self.follows, self.queue, self.limits)
            for name, port in self.ports.items()
        }
        self.parking = {
            name: Parking(
                name, self.writers[name], Progress(port.progress), self.follows, self.queue, f"retries-{name}"
            )
            for name, port in self.ports.items()
        }
        self.relays = [
            Relay(self.follows, shard, self.queue, ACTIONS, MemoryDeadLetters(), lambda: 0.0, lambda: 1, wrap_actions)
            for shard in range(shards)
        ]
        self.ticker = Ticker(self.follows.settled_ms, self.queue, ACTIONS, lambda: 0.0, encode_action)
        self.sweepers = {
            name: partial(sweep, port, self.follows, self.limits, lambda: 0.0) for name, port in self.ports.items()
        }

        self._sweeps = profile.sweep if rng.random() < 0.85 else 0.0
        self._leaps = profile.leap if rng.random() < 0.6 else 0.0
        self._ticks = profile.tick if rng.random() < profile.ticking else 0.0
        self._parks = profile.park
        self._grows = profile.grow
        self._pins = 0
        self._pace = rng.choice(profile.paces)
        self._weights = [
            weight * rng.choice((0.5, 1, 1, 2))
            for weight in (profile.follow, profile.save, profile.unfollow, profile.delete * rng.choice((0, 1, 1)))
        ]
        self._again = profile.again * rng.choice((0, 0.3, 1))
        self._walks = profile.walk * rng.choice((0, 0, 1))
        self.bag.latest_first = rng.choice((0.0, 0.3, 0.8))
        self._sticky = rng.choice(profile.sticky)
        self._owners = list(profile.owners[: 1 + int(rng.random() * len(profile.owners))])
        if profile.followees:
            self._owners = list(profile.owners)
        self._boards = [each for each in profile.boards if _BOARD_OWNERS[each] in self._owners]
        self._followees = [user(owner) for owner in self._owners]
        self._followees += [board(each) for each in self._boards if rng.random() < 0.6]
        if profile.followees:
            self._followees = list(profile.followees)
        if rng.random() < 0.5:
            self.users = self.users[:1]
        for _ in range(int(rng.random() * 4)):
            self._skew()
        self._pages = {
            (purge, "MAX_PAGE"): 1 + int(rng.random() * 3),
            (purge, "UNFOLLOWS_AT_ONCE"): 1 + int(rng.random() * 3),
            (purge, "FOLLOWEES_AT_ONCE"): 1 + int(rng.random() * 2),
            (writer, "MAX_PAGE"): 1 + int(rng.random() * 3),
            (writer, "MAX_LIMIT"): 1 + int(rng.random() * 3),
            (backfill, "FEW"): 1,
            (backfill, "WITH_FEW_AT_ONCE"): 1 + int(rng.random() * 2),
            (backfill, "MAX_PAGE"): 1 + int(rng.random() * 3),
        }
        if profile.cells:
            self._pages |= {(fanout, "_WIDER"): 2**40, (fanout, "_RANGES"): 1 + int(rng.random() * 3)}

    # What it is made of
    # ----------------------------------------------------------------------------------------------------------------

    def _clock(self, shard: int) -> Callable[[], int]:
        return lambda: self.now_ms + self._offsets[shard]

    def _trace(self, port: str, method: str, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        shown = ", ".join([*map(_brief, args), *(f"{key}={value}" for key, value in named.items())])
        answer = "" if result is None else f" -> {_brief(result)}"
        self.say(f"{self.scheduler.current}: {port}.{method}({shown}){answer}")

    def say(self, line: str) -> None:
        if self.traced:
            self.history.append(f"{self.now_ms - _START_MS:>8} {line}")

    @contextmanager
    def small_pages(self) -> Iterator[None]:
        """Pages of a few rows inside the handlers, so that a few rows need several; and nothing is logged."""
        patches: list[tuple[object, str, Any]] = [(*place, value) for place, value in self._pages.items()]
        with patched([*patches, (housekeeping, "_log", _Silent())]):
            yield

    # A run
    # ----------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises WrongFeedError."""
        with self.small_pages():
            self._prelude()
            self._chaos()
            if self._ticks:
                self._until_watermarks_pass()
            self.drain()
            # Only deletions may leave a feed short until a walk has asked (rule 9).
            self._compare([follower for follower in self.users if not self.deletions(follower)])
            self.ask_where_short()
            self.drain()
            self._fill_holes()
            self._compare(self.users)

    def _prelude(self) -> None:
        """A past: actions that have landed one after the other, some of them longer ago than any window."""
        random = self.rng.random
        if random() < self.profile.follow_all:
            self.follows.record(
                [Request(Follow(each, followee)) for each in self.users for followee in self._followees]
            )
        for _ in range(int(random() * (self.profile.prelude + 1))):
            action = SavePin(self._pin()) if random() < self.profile.prelude_saves else self._action(0.3)
            self.follows.record([Request(action)])
            if random() < 0.15:
                self.drain(sweeps=0.02)
            self._pass_time()
        if random() < 0.7:
            self.drain(sweeps=0.02)
            if self._sweeps and random() < 0.5:
                self._compact()
                self._compact()
        if random() < self.profile.past:
            self._leap()

    def _chaos(self) -> None:
        random, profile = self.rng.random, self.profile
        left = profile.actions // 2 + int(random() * (profile.actions // 2 + 1))
        moves: list[tuple[float, Callable[[], None]]] = [
            (profile.rush, self._act),
            (1.5, self._relay),
            (3.0, self._expand),
            (2.2, lambda: self._write("a")),
            (2.2, lambda: self._write("b")),
            (profile.crash, self._crash),
            (self._sweeps / 2, lambda: self._sweep("a")),
            (self._sweeps / 2, lambda: self._sweep("b")),
            (self._sweeps / 2, self._compact),
            (self._leaps, self._leap),
            (self._walks, self._ask),
            (0.2, self._skew),
            (0.05, self._expire),
            (self._ticks, self._tick),
            (self._ticks * 4, self._pass_tick),
            (self._parks, lambda: self._park("a")),
            (self._parks, lambda: self._park("b")),
            (self._parks, lambda: self._land("a")),
            (self._parks, lambda: self._land("b")),
            (profile.rebuild, self._rebuild),
            (self._grows, self._grow),
        ]
        total = 0.0
        upto = [(total := total + weight, move) for weight, move in moves]
        self._left = left
        self.bag.sticky = self._sticky
        running = self.scheduler.running
        slots = self.rng.choice((2, 4, 6))
        for _ in range(profile.steps // 3 + int(random() * profile.steps)):
            self._pass_time()
            self.moves += 1
            if running and (len(running) > slots or random() < 0.75):
                self.scheduler.resume()
                continue
            drawn = random() * total
            for limit, move in upto:
                if drawn < limit:
                    move()
                    break
        self.scheduler.finish()

    def _pass_time(self) -> None:
        drawn = self.rng.random()
        if drawn < self._pace:
            self.now_ms += 20 if drawn < 0.03 else 1

    # Moves
    # ----------------------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        if self._left > 0:
            self._left -= 1
            request = Request(self._action(1.0))
            self.scheduler.start("frontend", "frontend", lambda: self.follows.record([request]))

    def _ask(self) -> None:
        """A walk that ended below the cap."""
        follower = self.rng.choice(self.users)
        self.scheduler.start(
            "walk", "frontend", lambda: _ignore(self.follows.ask_refill([follower], None, self.rng.choice((0, 50))))
        )

    def _relay(self) -> None:
        self.scheduler.start("relay", "relay", self._relay_all)

    def _tick(self) -> None:
        self.scheduler.start("tick", "relay", lambda: _ignore(self.ticker.tick()))

    def _relay_all(self) -> None:
        for relay in self.relays:
            relay.step()

    def _expand(self) -> None:
        taken = self.bag.expander.take(self.rng, 4, self._again, self.bag.latest_first)
        if taken:
            self._hand("expand", "expander", self.bag.expander, taken, self._expand_all(taken))

    def _expand_all(self, taken: Sequence[Taken]) -> Callable[[], None]:
        bodies = [each.body for each in taken]
        if not self.profile.begin or self.rng.random() >= self.profile.begin:
            return lambda: self.expander.expand(bodies)
        begun = bodies[: 1 + int(self.rng.random() * len(bodies))]
        expander = copy(self.expander)  # a process of its own, which remembers what it has begun

        def begin_and_expand() -> None:
            expander.begin(begun)
            expander.expand(bodies)

        return begin_and_expand

    def _write(self, cluster: str) -> None:
        group = self.bag.writers[cluster]
        taken = group.take(self.rng, 4, self._again, self.bag.latest_first)
        if taken:
            bodies = [each.body for each in taken]
            self._hand(f"write {cluster}", "writer", group, taken, lambda: self.writers[cluster].write(bodies))

    def _park(self, cluster: str) -> None:
        """Deliveries that the cluster cannot take now; what cannot be parked comes again."""
        group = self.bag.writers[cluster]
        taken = group.take(self.rng, 4, self._again, self.bag.latest_first)
        done: list[Taken] = []

        def park() -> None:
            parked = self.parking[cluster].park([each.body for each in taken], self.rng.random())
            done.extend(itertools.compress(taken, parked))

        if taken:
            self._hand(f"park {cluster}", "writer", group, taken, park, done)

    def _land(self, cluster: str) -> None:
        group = self.bag.retries[cluster]
        taken = group.take(self.rng, 4, self._again, self.bag.latest_first)
        if taken:
            bodies = [each.body for each in taken]

            def land() -> None:
                self.parking[cluster].land(bodies)
                self.note_retried(Progress(self.ports[cluster].progress), cluster, taken)

            self._hand(f"land {cluster}", "writer", group, taken, land)
        else:
            self.note_retried(Progress(self.progress[cluster]), cluster)

    def note_retried(self, progress: Progress, cluster: str, taken: Sequence[Taken] = ()) -> None:
        """A cluster notes how far its retries are, before they commit that, as `Applied` does."""
        retried = self.bag.retried(cluster, taken)
        progress.note_applied({(NUMBERS[RETRIES], partition): offset for partition, offset in retried.items()})

    def _hand(
        self,
        name: str,
        kind: str,
        group: Group,
        taken: Sequence[Taken],
        work: Callable[[], None],
        finished: Sequence[Taken] | None = None,
    ) -> None:
        """finished: what of `taken` is done when the work is; all of it where that is not given."""
        group.hold(taken)

        def done() -> None:
            group.release(taken)
            group.finish(taken if finished is None else finished)

        if self.traced:
            name = f"{name} {[each.partition * 1000 + each.offset for each in taken]}"
            self.say(f"{name} begins with " + "; ".join(_brief(each.body) for each in taken))
        self.scheduler.start(name, kind, work, done, lambda: group.release(taken))

    def _pass_tick(self) -> None:
        """One tick that has come to the front of its partition is handled."""
        groups: list[tuple[Group, str]] = [(self.bag.expander, ""), *((self.bag.writers[c], c) for c in CLUSTERS)]
        group, cluster = groups[int(self.rng.random() * 3)]
        taken = [each for each in group.ticks() if (each.partition, each.offset) not in group.in_hand]
        if taken:
            each = taken[int(self.rng.random() * len(taken))]
            self._hand(f"tick {cluster}", "tick", group, [each], lambda: self._tick_through(cluster, each))

    def _tick_through(self, cluster: str, each: Taken) -> None:
        tick: Tick = each.body
        if not cluster:
            self.expander.tick([tick])
        else:
            self.writers[cluster].tick([(each.partition, tick)])
            self._check_behind_watermark(cluster)

    def _crash(self) -> None:
        running = self.scheduler.running
        if running:
            self._kill(running[int(self.rng.random() * len(running))].kind, one=True)

    def _kill(self, kind: str, *, one: bool = False) -> None:
        for each in [each for each in self.scheduler.running if each.kind == kind]:
            self.say(f"{each.name} dies")
            self.scheduler.crash(each)
            if one:
                return

    def _sweep(self, cluster: str) -> None:
        self.scheduler.start(f"sweep {cluster}", "sweep", self.sweepers[cluster])

    def _compact(self) -> None:
        """A cluster compacts by itself, by its own clock."""
        cluster = CLUSTERS[int(self.rng.random() * 2)]
        done = self.stores[cluster].sweep(self.now_ms + self.rng.randint(-_SKEW_MS, _SKEW_MS))
        self.say(f"compaction of {cluster}: {done}")

    def _expire(self) -> None:
        self.scheduler.start("expire", "sweep", lambda: _ignore(self.follows.expire(self.limits.purge_window_ms, 100)))

    def _grow(self) -> None:
        """A partition is added, while everybody works."""
        topic: Topic[object] = self.rng.choice((ACTIONS, DELIVERIES))
        if self.bag.partitions(topic) < _MOST_PARTITIONS:
            self.bag.grow(topic)
            self.say(f"{topic} has {self.bag.partitions(topic)} partitions")

    def _leap(self) -> None:
        # A handler that pauses for so long is dead.
        for kind in ("writer", "sweep", "expander", "relay", "tick", "frontend"):
            self._kill(kind)
        leaps = 1 + int(self.rng.random() * self.profile.farthest)
        if self.rng.random() < 0.2:
            self.drain()
        # A cluster that lags for longer than the purge window has lost deliveries and is rebuilt: not here.
        oldest_ms = self.bag.forget_before(self.now_ms, self.limits.purge_window_ms - LEAP_MS // 10)
        while leaps and self.now_ms + leaps * LEAP_MS - oldest_ms >= self.limits.purge_window_ms - LEAP_MS // 10:
            leaps -= 1
        self.now_ms += leaps * LEAP_MS
        self.bag.forget_before(self.now_ms, self.limits.purge_window_ms - LEAP_MS // 10)
        self.say(f"time leaps {leaps}")

    def _rebuild(self) -> None:
        """A cluster is made again (`workers.app.rebuild`), while no writer writes it."""
        cluster = CLUSTERS[int(self.rng.random() * 2)]
        for kind in ("writer", "sweep", "tick"):
            self._kill(kind)
        for store in (self.stores[cluster], self.progress[cluster]):
            store._rows.clear()  # type: ignore[attr-defined]
        for group in (self.bag.writers[cluster], self.bag.retries[cluster]):
            group.pass_over()
        made_ms = self.follows_store.now() + 2 * _SKEW_MS
        asked_ms = rebuild.ask_all(self.follows_store, cluster, _ignore)
        progress = Progress(self.progress[cluster])
        rebuild.begin(progress, made_ms, asked_ms)
        self.note_retried(progress, cluster)
        self.writers[cluster]._progress = self.parking[cluster]._progress = Progress(self.ports[cluster].progress)
        self.say(f"cluster {cluster} is made again at {made_ms - _START_MS}, refilled after {asked_ms - _START_MS}")

    def _skew(self) -> None:
        shard = int(self.rng.random() * len(self._offsets))
        self._offsets[shard] = self.rng.randint(-_SKEW_MS, _SKEW_MS) if self.rng.random() < 0.5 else 0
        self.say(f"clock of shard {shard} is {self._offsets[shard]} ms off")

    # Actions
    # ----------------------------------------------------------------------------------------------------------------

    def _action(self, mood: float) -> Action:
        """Something to do. With a low mood few things end."""
        rng = self.rng
        follow, save, unfollow, delete = self._weights
        drawn = rng.random() * (follow + save + mood * (unfollow + delete))
        if drawn < follow:
            return self._follow()
        drawn -= follow
        if drawn < save or not self.recorded:
            return SavePin(self._pin())
        drawn -= save
        if drawn < mood * unfollow:
            return self._unfollow()
        saved = [action.pin for action in self.recorded if isinstance(action, PinSaved)]
        if not saved:
            return SavePin(self._pin())
        if rng.random() < 0.5:
            saved.sort(key=lambda pin: -pin.created_ms)
            saved = saved[:CAP]
        return DeletePin(rng.choice(saved).pin)

    def _follow(self) -> Follow:
        """Mostly something that is not followed."""
        follower = self.rng.choice(self.users)
        new = [each for each in self._followees if not self.model.follows(follower, each)]
        return Follow(follower, self.rng.choice(new if new and self.rng.random() < 0.6 else self._followees))

    def _unfollow(self) -> Unfollow:
        """Mostly something that is followed."""
        follower = self.rng.choice(self.users)
        old = [each for each in self._followees if self.model.follows(follower, each)]
        return Unfollow(follower, self.rng.choice(old if old and self.rng.random() < 0.7 else self._followees))

    def _pin(self) -> Pin:
        """A new pin, dated by somebody else's clock; now and then one that was there before."""
        rng = self.rng
        drawn = rng.random()
        if drawn < 0.05:
            saved = [action.pin for action in self.recorded if isinstance(action, PinSaved)]
            if saved:
                return rng.choice(saved)
        self._pins += 1
        number = self._pins
        # Ids in no order either.
        pin = 100 + (number * 37) % 101
        owner_board = rng.choice(self._boards) if self._boards else 21
        owner = _BOARD_OWNERS[owner_board]
        created = self.now_ms
        if drawn > 0.5:
            created += rng.randint(-4, 4)
        if drawn > 0.8:
            created = self.now_ms + rng.choice((-2 * LEAP_MS, -LEAP_MS, -5_000, -60, 60, 5_000, 110_000))
        return Pin(pin, owner, owner_board, created)

    # To the end
    # ----------------------------------------------------------------------------------------------------------------

    def drain(self, sweeps: float | None = None) -> None:
        """Delivers everything that is outstanding, and what follows from it, in random order."""
        sweeps = self.profile.late_sweeps if sweeps is None else sweeps
        rng, bag = self.rng, self.bag
        for _ in range(_MOST_OPS):
            if rng.random() < 0.15:
                bag.loosen()
            work: list[Callable[[], None]] = []
            if self.follows_store.unrelayed(1):
                work.append(self._relay)
            if bag.expander:
                work.append(self._expand_or_tick)
            work += [self._writer_or_tick(cluster) for cluster in CLUSTERS if bag.writers[cluster]]
            work += [partial(self._land, cluster) for cluster in CLUSTERS if bag.retries[cluster]]
            if not work:
                return
            if self._sweeps and rng.random() < sweeps:
                work.append(self._compact)
            self._at_once(work[int(rng.random() * len(work))])
            self._pass_time()
        raise WrongFeedError("the pipeline does not come to rest")

    def _at_once(self, move: Callable[[], None]) -> None:
        """A move without anybody in between."""
        move()
        while self.scheduler.running:
            self.scheduler._resume(self.scheduler.running[0])

    def _expand_or_tick(self) -> None:
        self._expand()
        self._front(self.bag.expander, "")

    def _writer_or_tick(self, cluster: str) -> Callable[[], None]:
        def move() -> None:
            self._write(cluster)
            self._front(self.bag.writers[cluster], cluster)

        return move

    def _front(self, group: Group, cluster: str) -> None:
        for each in list(group.ticks()):
            self._hand(f"tick {cluster}", "tick", group, [each], self._tick_of(cluster, each))

    def _tick_of(self, cluster: str, each: Taken) -> Callable[[], None]:
        return lambda: self._tick_through(cluster, each)

    # What must hold
    # ----------------------------------------------------------------------------------------------------------------

    def note(self, answers: Sequence[RecordedAction | ActionRefusedError]) -> None:
        """Told at each commit."""
        for action in answers:
            if isinstance(action, ActionRefusedError):
                continue
            if isinstance(action, PinSaved | PinDeleted) and action in self.recorded:
                continue
            self.recorded.append(action)
            self.model.record(action)

    def walk(self, cluster: str, follower: int) -> list[Entry]:
        """A feed page by page, as a reader sees it in one cluster."""
        limit = 1 + int(self.rng.random() * 2)
        entries: list[Entry] = []
        cursor: str | None = None
        while True:
            found = page(self.replicas[cluster].tables[FEEDS], follower, limit, cursor, CAP)
            entries += found.entries
            cursor = found.cursor
            if cursor is None:
                return entries

    def ask_where_short(self) -> None:
        """Every feed is walked; a walk that ends below the cap asks for a refill (rule 9)."""
        for follower in self.users:
            if any(len(self.walk(cluster, follower)) < CAP for cluster in CLUSTERS):
                self.follows.ask_refill([follower], None, 0)

    def _wrong(self, followers: Sequence[int], clusters: Sequence[str] = CLUSTERS) -> list[str]:
        return [
            f"{'stray' if set(got) - set(self.model.wanted(follower)) else 'hole'} in cluster {cluster},"
            f" feed of {follower}: {_show(got)} instead of {_show(self.model.feed(follower))}"
            for follower in followers
            for cluster in clusters
            if (got := self.walk(cluster, follower)) != self.model.feed(follower)
        ]

    def deletions(self, follower: int) -> int:
        """How many entries a feed may have lost to deletions."""
        followed = {each.followee for each in self.recorded if isinstance(each, Followed) and each.follower == follower}
        deleted = {each.pin for each in self.recorded if isinstance(each, PinDeleted)}
        return sum(1 for pin in deleted if not followed.isdisjoint(pin.followees()))

    def _fill_holes(self) -> None:
        """A row that lost more than `SLACK` entries to deletions, and got older ones since, has a hole that no walk
        notices: it does not end below the cap. Such a feed is refilled here, and counted.
        """
        for follower in self.users:
            if self._wrong([follower]) and self.deletions(follower):
                self.holes += 1
                self.follows.ask_refill([follower], None, 0)
        self.drain()

    def _compare(self, followers: Sequence[int]) -> None:
        wrong = self._wrong(followers)
        if wrong:
            raise WrongFeedError("; ".join(wrong))

    def _until_watermarks_pass(self) -> None:
        """No user acts any more; ticks are sent until both watermarks are later than every action. Then every feed must
        be right, whatever else is still under way.
        """
        rng, bag = self.rng, self.bag
        latest_ms = max((action.committed_ms for action in self.recorded), default=0)
        moves: list[Callable[[], None]] = [self._relay, self._expand_or_tick]
        moves += [self._writer_or_tick(cluster) for cluster in CLUSTERS]
        if self._parks:
            moves += [partial(move, cluster) for cluster in CLUSTERS for move in (self._land, self._park)]
        self._again = 0.0
        for turn in range(_MOST_TURNS):
            if rng.random() < 0.3:
                bag.loosen()
            if turn % 20 == 0:
                marks = [Progress(self.progress[cluster]).watermark() for cluster in CLUSTERS]
                if all(mark is not None and mark > latest_ms for mark in marks):
                    break
                for store in self.progress.values():
                    store.sweep(self.now_ms)  # it has a version of every tick
                self.now_ms += 200
                self._at_once(self._tick)
            self._at_once(moves[int(rng.random() * len(moves))])
        else:
            raise WrongFeedError("the watermarks do not move")
        for cluster in CLUSTERS:
            self._check_behind_watermark(cluster)

    def _check_behind_watermark(self, cluster: str) -> None:
        """Rule 10: everything committed before the watermark has landed. So where nothing that touches a feed was
        committed since, the feed is what the model says. (What deletions take from a feed, a walk brings back.)
        """
        mark = Progress(self.progress[cluster]).watermark()
        if mark is None:
            return
        for follower in self.users:
            if self._touched_ms(follower) < mark and not self.deletions(follower):
                wrong = self._wrong([follower], [cluster])
                if wrong:
                    raise WrongFeedError(f"behind the watermark {mark - _START_MS}: {wrong[0]}")

    def _touched_ms(self, follower: int) -> int:
        """When the latest action was committed that may show in a feed."""
        edges = [
            each for each in self.recorded if isinstance(each, Followed | Unfollowed) and each.follower == follower
        ]
        followed = {edge.followee for edge in edges}
        pins = [
            each
            for each in self.recorded
            if isinstance(each, PinSaved | PinDeleted) and not followed.isdisjoint(each.pin.followees())
        ]
        return max((each.committed_ms for each in (*edges, *pins)), default=0)


class _Recording(Port):
    """The follow store as everybody sees it, with an eye on what commits."""

    def __init__(self, world: World, target: FollowStore, trace: Any) -> None:
        super().__init__("follows", target, world.scheduler, trace)
        self._world = world

    def record(self, requests: Sequence[Request]) -> list[RecordedAction | ActionRefusedError]:
        world = self._world
        answers = self._target.record(requests)
        world.note(answers)
        if world.traced:
            world.say(f"{world.scheduler.current}: recorded {_brief(answers)}")
        world.scheduler.pause()
        return answers

    def unrelayed(self, limit: int, shard: int | None = None) -> Any:
        rows = self._target.unrelayed(min(limit, 1 + int(self._world.rng.random() * 6)), shard)
        self._world.scheduler.pause()
        return rows


class _SometimesFull:
    """The window of an expander, as if clusters took now more and now less time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def is_full(self) -> bool:
        return self._rng.random() < 0.3

    def published(self) -> None:
        """Nothing to remember."""


class _Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_named: None


@contextmanager
def patched(patches: Sequence[tuple[object, str, Any]]) -> Iterator[None]:
    """Attributes with other values, for as long as it lasts."""
    missing = object()
    before = [(owner, name, getattr(owner, name, missing)) for owner, name, _ in patches]
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def simulate(seed: int, mutant: Mutant | None = None, profile: Profile = GENERAL, **options: Any) -> Outcome:
    """One run of a seed."""
    with patched(mutant.patches() if mutant is not None else ()):
        world = World(seed, profile, **options)
        if mutant is not None:
            mutant.tamper(world)
        failure = None
        try:
            world.run()
        except WrongFeedError as error:
            failure = str(error)
        finally:
            world.scheduler.crash_all([each.kind for each in world.scheduler.running])
        return Outcome(seed, failure, world.history, world.moves, world.holes)


def _limits(rng: Random, profile: Profile) -> Limits:
    action_age_ms = rng.choice((0, 1, 1, 2)) * LEAP_MS + 40_000
    delivery_age_ms = rng.choice((0, 0, 1)) * LEAP_MS + 40_000
    return Limits(
        cap=CAP,
        slack=SLACK,
        action_age_ms=action_age_ms,
        delivery_age_ms=delivery_age_ms,
        purge_window_ms=action_age_ms + 2 * delivery_age_ms + 10_000,
        chunk=rng.choice(profile.chunks),
    )


def _ignore(_result: object) -> None:
    pass


def _show(entries: Sequence[Entry]) -> str:
    return "[" + ", ".join(f"{entry.pin}@{entry.created_ms - _START_MS}" for entry in entries) + "]"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."
