"""Faults that are put into a home by hand, what `feedctl verify` says of them while actions are recorded, and what
`feedctl repair` leaves, though it is killed time and again.

    python -m bench.faults [--each 1000] [--users 2000] [--rate 1000] [--seconds S] [--kills 20] [--seed 1]
                           [--home DIR]

Eight kinds of faults are written as keys, into files with a layout of this module's own, or into HBase as cells. It
prints what was found next to what was put there, and exits with 1 if that is not the same, or if a feed of either
replica differs from the model at the end.

--home: an empty home on servers that `feedctl init` has made; without it a home in files is made, and taken away.
--seconds: how long actions are recorded while verify runs, which then waits until all have landed. Without it they are
recorded for as long as verify runs, and a worker must keep up.
"""

import argparse
import contextlib
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, assert_never

from bench import ours
from bench.children import without_settings
from bench.meanwhile import meanwhile
from deploy.local.signals import unwinding
from feedstore.app import config as configuration
from feedstore.domain import Action, DeletePin, Follow, Followee, Pin, SavePin, Unfollow, board, user
from feedstore.following import FEEDS, columns, feed_table, feeds_ascending, row_key
from feedstore.follows.port import ActionRefusedError, Request
from feedstore.portions import chunks
from feedstore.widecolumn import DeleteColumns, Put
from feedstore.widecolumn.progress import progress_table
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from workers.app import wiring
from workers.app.home import create
from workers.following.ports import Ports

CAP: Final = 120
OWNERS: Final = 60
PINS_EACH: Final = 20
FEW: Final = 3
MANY: Final = 8
"""How many owners a user follows: with many, a feed is full."""
STRANGER: Final = 1_000
"""An owner without followers."""
FRESH_OWNERS: Final = range(100_000, 120_000)
"""Whom users follow and unfollow meanwhile: so many that a pin of theirs goes to a handful of feeds, as on the trace,
and a worker on the same machine keeps up.
"""
FIRST_READER: Final = 10_000
UNKNOWN: Final = 5_000_000
AT_ONCE: Final = 500
WAIT_S: Final = 900.0
VERSIONS_MAX: Final = 100


class Fault(NamedTuple):
    """What verify must say of a fault."""

    user: int
    cluster: str
    kind: str
    pin: int
    created_ms: int


@dataclass
class Recorded:
    """What was recorded meanwhile so far."""

    actions: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.actions / max(0.001, self.seconds):,.0f} actions a second were recorded for {self.seconds:.0f} s"


@dataclass
class Model:
    """What the actions come to, by the order in which they were acknowledged."""

    edges: dict[tuple[int, Followee], bool] = field(default_factory=dict)
    pins: dict[int, Pin] = field(default_factory=dict)

    def add(self, action: Action) -> None:
        match action:
            case SavePin(pin):
                self.pins[pin.pin] = pin
            case DeletePin(pin):
                del self.pins[pin]
            case Follow(follower, followee):
                self.edges[follower, followee] = True
            case Unfollow(follower, followee):
                self.edges[follower, followee] = False
            case _:
                assert_never(action)

    def feeds(self, cap: int) -> dict[int, list[tuple[int, int]]]:
        of: defaultdict[Followee, list[tuple[int, int]]] = defaultdict(list)
        for pin in self.pins.values():
            for followee in pin.followees():
                of[followee].append((-pin.created_ms, pin.pin))
        found: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        for (follower, followee), active in self.edges.items():
            if active:
                found[follower].update(of[followee])
        return {
            reader: [(pin, -created) for created, pin in sorted(entries)[:cap]]
            for reader, entries in found.items()
            if entries
        }


class Round:
    """A home, and what was done to it."""

    def __init__(self, home: Path, users: int, seed: int) -> None:
        self.home = home
        self.rng = random.Random(seed)
        self.model = Model()
        self.readers = range(FIRST_READER, FIRST_READER + users)
        self.base_ms = 1_600_000_000_000
        self.deleted: dict[int, Pin] = {}
        self.next_pin = 1_000_000
        self.lost: set[int] = set()
        self.used: set[tuple[str, int, int]] = set()
        self.cap = self.config.limits.cap
        self.in_files = wiring.is_embedded(self.config)

    @property
    def config(self) -> configuration.Config:
        return configuration.load(self.home, {})

    # Actions
    # ------------------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Owners with pins, readers who follow some of them; everything has landed."""
        actions: list[Action] = []
        for owner in (*range(1, OWNERS + 1), STRANGER):
            for number in range(PINS_EACH):
                # A stranger's are newer: verify looks at what is within the cap of a feed that is otherwise right.
                from_ms = self.base_ms + (15_000_000 if owner == STRANGER else 0)
                pin = Pin(owner * 100 + number, owner, owner * 10, from_ms + self.rng.randrange(1_000_000))
                actions.append(SavePin(pin))
        # Newer than anything else, and gone: the first entry must not be seen.
        for owner in range(1, OWNERS + 1):
            pin = Pin(500_000 + owner, owner, owner * 10, self.base_ms + 20_000_000 + owner)
            self.deleted[owner] = pin
            actions += [SavePin(pin), DeletePin(pin.pin)]
        for reader in self.readers:
            count = MANY if reader % 2 else FEW
            actions += [Follow(reader, user(owner)) for owner in self.rng.sample(range(1, OWNERS + 1), count)]
        self.record(actions)
        self.feedctl("--log-level", "error", "work", "--until-idle")

    def record(self, actions: Sequence[Action]) -> None:
        with closing(wiring.open_ports(self.config, "read", feeds=False)) as ports:
            for some in chunks(actions, AT_ONCE):
                self._record(ports, some)

    def _record(self, ports: Ports, actions: Sequence[Action]) -> None:
        answers = ports.follows.record([Request(action) for action in actions])
        for action, answer in zip(actions, answers, strict=True):
            if isinstance(answer, ActionRefusedError):
                raise answer
            self.model.add(action)

    @contextmanager
    def recording(self, rate: float, seconds: float) -> Iterator["Recorded"]:
        """Somebody records meanwhile, for so long at most."""
        began = time.monotonic()
        recorded = Recorded()

        def run(ended: threading.Event) -> None:
            with closing(wiring.open_ports(self.config, "read", feeds=False)) as ports:
                while not ended.is_set() and time.monotonic() - began < seconds:
                    due = int((time.monotonic() - began) * rate) - recorded.actions
                    if due < 50:
                        ended.wait(0.05)
                        continue
                    some = [self._some_action() for _ in range(min(due, AT_ONCE))]
                    self._record(ports, [action for action in some if action is not None])
                    recorded.actions += len(some)
                    recorded.seconds = time.monotonic() - began

        with meanwhile(run):
            yield recorded

    def _some_action(self) -> Action | None:
        """Of the same readers and owners, but nothing that the faults rest on: pins are older than all others, and
        edges are to owners and boards of their own. Saves, follows and unfollows are mixed about as on the activity
        trace of docs/benchmarks.md: 54, 44 and 2 of 100.
        """
        rng, chance = self.rng, self.rng.random()
        if chance < 0.55:
            self.next_pin += 1
            fresh = chance < 0.53
            owner = rng.choice(FRESH_OWNERS) if fresh else rng.randrange(1, OWNERS + 1)
            where = owner * 10 if fresh else owner * 10 + 5
            return SavePin(Pin(self.next_pin, owner, where, self.base_ms - rng.randrange(1_000_000)))
        reader = rng.choice(self.readers)
        followee = user(rng.choice(FRESH_OWNERS)) if chance < 0.965 else board(rng.randrange(1, OWNERS + 1) * 10 + 5)
        # An unfollow has the feed refilled, and what was lost is there again before anybody looks.
        if chance < 0.95 or chance > 0.97 or reader in self.lost:
            return Follow(reader, followee)
        return Unfollow(reader, followee)

    # Faults
    # ------------------------------------------------------------------------------------------------------------

    def faults(self, each: int, kinds: Sequence[str]) -> tuple[set[Fault], dict[str, list["Write"]]]:
        """So many faults of each kind, at different entries; what verify must say of them, and how to make them."""
        feeds = self.model.feeds(self.cap)
        with closing(wiring.open_ports(self.config, "read")) as ports:
            stamps = {name: self._stamps(ports, name, feeds) for name in ports.replicas}
            now_ms = ports.follows.now()
        entries = [(reader, *entry) for reader, shown in feeds.items() for entry in shown[: CAP // 2]]
        self.rng.shuffle(entries)
        taken = iter(entries)
        expected: set[Fault] = set()
        writes: defaultdict[str, list[Write]] = defaultdict(list)
        for kind in kinds:
            for number in range(each):
                cluster = self.rng.choice(sorted(stamps))
                fault, some = MAKE[kind](self, Place(cluster, stamps[cluster], now_ms, number), taken)
                expected.add(fault)
                self.lost |= {fault.user} if fault.kind == "missing" else set()
                writes[cluster] += some
        return expected, writes

    def _stamps(self, ports: Ports, name: str, feeds: dict[int, list[tuple[int, int]]]) -> dict[bytes, int]:
        store = ports.replicas[name].tables[FEEDS]
        return {row_key(r) + cell.column: cell.timestamp for r in feeds for cell in store.cells(row_key(r))}

    def spoil(self, writes: dict[str, list["Write"]]) -> None:
        """Writes the faults, while no other process has the clusters."""
        for name, some in writes.items():
            cluster = next(each for each in self.config.clusters if each.name == name)
            if cluster.in_files:
                _write_keys(self.config, self.config.path(cluster.url), some)
            else:
                with closing(wiring.open_ports(self.config, "write")) as ports:
                    for row, column, ts, what in some:
                        kind = Put if what == "put" else DeleteColumns
                        ports.replicas[name].tables[FEEDS].apply([kind([(row, ts)], [column])])

    # Commands
    # ------------------------------------------------------------------------------------------------------------

    def spawn(self, *words: object) -> "subprocess.Popen[bytes]":
        line = ours.feedctl(self.home, *map(str, words))
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def feedctl(self, *words: object, codes: Sequence[int] = (0,)) -> str:
        process = self.spawn(*words)
        out, err = process.communicate()
        if process.returncode not in codes:
            said = f"{out[-2_000:].decode()}\n{err[-2_000:].decode()}"
            raise AssertionError(f"{words}: exit {process.returncode}\n{said}")
        return out.decode()

    @contextmanager
    def worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Its errors are shown at once: a pipe that is read at the end would stop it once it is full."""
        line = ours.feedctl(self.home, "--log-level", "error", "work")
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                ended = process.poll()
                process.terminate()
        if ended is not None:
            raise AssertionError(f"the worker ended by itself, with {ended}")

    def verified(self) -> Counter[Fault]:
        said = self.feedctl("verify", "--json", "--wait", WAIT_S, codes=(0, 1, 3))
        lines = [json.loads(line) for line in said.splitlines()]
        return Counter(Fault(*(line[name] for name in Fault._fields)) for line in lines if "kind" in line)

    def differing(self) -> int:
        """How many feeds of both replicas are not as the model says."""
        feeds = self.model.feeds(self.cap)
        wrong = 0
        with closing(wiring.open_ports(self.config, "read")) as ports:
            for replica in ports.replicas.values():
                wanted = {reader: [_column(*entry) for entry in shown] for reader, shown in feeds.items()}
                found = dict(feeds_ascending(replica.tables[FEEDS], self.cap))
                wrong += sum(wanted.get(each) != found.get(each) for each in wanted.keys() | found.keys())
        return wrong


def _column(pin: int, created_ms: int) -> bytes:
    return columns([(pin, created_ms)])[0]


class Write(NamedTuple):
    """what: put, marker, or gone (the key itself is deleted)."""

    row: bytes
    column: bytes
    ts: int
    what: str


class Place(NamedTuple):
    cluster: str
    stamps: dict[bytes, int]
    now_ms: int
    number: int


Made = tuple[Fault, list[Write]]
Entries = Iterator[tuple[int, int, int]]
"""Reader, pin and time of entries that are shown, none of them twice."""
_Make = Callable[[Round, Place, Entries], Made]


def _at_entry(kind: str, writes: Callable[[bytes, bytes, int, Place], list[Write]]) -> _Make:
    def make(_: Round, place: Place, entries: Entries) -> Made:
        reader, pin, created_ms = next(entries)
        row, column = row_key(reader), _column(pin, created_ms)
        ts = place.stamps[row + column]
        return Fault(reader, place.cluster, kind, pin, created_ms), writes(row, column, ts, place)

    return make


def _extra(chosen: Callable[[Round], Pin]) -> _Make:
    """A pin at a reader who must not see it, at another place each time."""

    def make(the: Round, place: Place, _: object) -> Made:
        while True:
            reader, pin = the.rng.choice(the.readers), chosen(the)
            if (place.cluster, reader, pin.pin) not in the.used:
                the.used.add((place.cluster, reader, pin.pin))
                write = Write(row_key(reader), _column(pin.pin, pin.created_ms), place.now_ms, "put")
                return Fault(reader, place.cluster, "extra", pin.pin, pin.created_ms), [write]

    return make


def _of_a_stranger(the: Round) -> Pin:
    return the.model.pins[STRANGER * 100 + the.rng.randrange(PINS_EACH)]


def _deleted(the: Round) -> Pin:
    return the.deleted[the.rng.randrange(1, OWNERS + 1)]


def _differs(_: Round, place: Place, entries: Entries) -> Made:
    reader, pin, created_ms = next(entries)
    other_ms = created_ms + 1
    ts = place.stamps[row_key(reader) + _column(pin, created_ms)]
    fault = Fault(reader, place.cluster, "differs", pin, other_ms)
    return fault, [Write(row_key(reader), _column(pin, other_ms), ts, "put")]


def _displaced(the: Round, place: Place, entries: Entries) -> Made:
    reader, pin, created_ms = next(entries)
    row = row_key(reader)
    elsewhere = bytes([row[0] ^ the.rng.randrange(1, 256)]) + row[1:]
    fault = Fault(reader, place.cluster, "displaced", pin, created_ms)
    return fault, [Write(elsewhere, _column(pin, created_ms), place.stamps[row + _column(pin, created_ms)], "put")]


def _unknown(_: Round, place: Place, entries: Entries) -> Made:
    pin, created_ms = next(entries)[1:]
    reader = UNKNOWN + place.number
    fault = Fault(reader, place.cluster, "unknown user", pin, created_ms)
    return fault, [Write(row_key(reader), _column(pin, created_ms), place.now_ms, "put")]


MAKE: Final[dict[str, _Make]] = {
    "lost": _at_entry("missing", lambda row, column, ts, _: [Write(row, column, ts, "gone")]),
    "masked": _at_entry("masked", lambda row, column, ts, _: [Write(row, column, ts, "marker")]),
    "masked above": _at_entry("masked", lambda row, column, _, at: [Write(row, column, at.now_ms, "marker")]),
    "stranger": _extra(_of_a_stranger),
    "undead": _extra(_deleted),
    "differs": _differs,
    "displaced": _displaced,
    "unknown": _unknown,
}
ON_SERVERS: Final = ("masked", "masked above", "stranger", "undead", "differs", "displaced", "unknown")
"""A cell of HBase does not go without a marker."""

_TAIL = struct.Struct(">QB")


def _write_keys(config: configuration.Config, path: Path, writes: Sequence[Write]) -> None:
    """RocksDB's keys: row, column, 2^63-1 less the timestamp, and 0 for a marker or 1 for a put."""
    limits = config.limits
    tables = [
        feed_table(limits.cap, limits.slack, limits.purge_window_ms),
        progress_table(limits.purge_window_ms),
    ]
    files = rocksdb_files.open_owner(path, rocksdb_files.layout_of(tables))
    try:
        feeds = files.families[FEEDS]
        for row, column, ts, what in writes:
            key = row + column
            if what == "gone":
                for version in rocksdb_files.take(path, feeds, key, VERSIONS_MAX):
                    if version.startswith(key):
                        feeds.delete(version)
            else:
                feeds[key + _TAIL.pack(2**63 - 1 - ts, what == "put")] = b""
    finally:
        files.close()


class Outcome(NamedTuple):
    """What was wrong in a round; empty if nothing was."""

    lines: list[str]
    wrong: list[str]


def rounds(
    home: Path, *, each: int, users: int, rate: float, seconds: float, kills: int, seed: int, kinds: Sequence[str]
) -> Outcome:
    the = Round(home, users, seed)
    lines, wrong = [f"seed {seed}"], list[str]()

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    def compare(what: str, expected: set[Fault]) -> None:
        began = time.monotonic()
        found = the.verified()
        took = time.monotonic() - began
        lost, more = expected - found.keys(), found.keys() - expected
        twice = [fault for fault, count in found.items() if count > 1]
        say(f"{what}: {len(found):,} of {len(expected):,} faults found in {took:.1f} s, {len(more)} others")
        if lost or more or twice:
            wrong.append(f"{what}: not found {sorted(lost)[:5]}, not put there {sorted(more)[:5]}, twice {twice[:5]}")

    the.fill()
    compare("before", set())
    expected, writes = the.faults(each, kinds)
    the.spoil(writes)
    say(f"put there: {dict(Counter(fault.kind for fault in expected))}")
    compare("at rest", expected)
    if the.in_files:  # on servers verify waits for workers, which may run anywhere
        with the.recording(rate, seconds) as recorded:
            time.sleep(1.0)
            compare("while actions are recorded, without a worker", expected)
            say(str(recorded))
    with the.worker(), the.recording(rate, seconds) as recorded:
        compare("while actions are recorded, with a worker", expected)
        say(str(recorded))
    began = time.monotonic()
    done = 0
    with contextlib.nullcontext() if the.in_files else the.worker():
        for _ in range(kills):
            process = the.spawn("repair")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(the.rng.uniform(0.5, 6.0))
                done += 1
            process.kill()
            process.communicate()
        the.feedctl("--log-level", "error", "repair", "--wait", WAIT_S)
        say(f"repaired across {kills - done} kills in {time.monotonic() - began:.0f} s")
        # On servers a worker that ends may leave work behind, and verify waits for it.
        compare("after the repair", set())
    differing = the.differing()
    say(f"{differing} feeds differ from the model")
    if differing:
        wrong.append(f"{differing} feeds differ from the model")
    return Outcome(lines, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=1_000)
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path)
    given = parser.parse_args()
    without_settings()
    with contextlib.ExitStack() as stack:
        kinds: Sequence[str] = ON_SERVERS if given.home else tuple(MAKE)
        home = given.home or made(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "home")
        outcome = rounds(
            home,
            each=given.each,
            users=given.users,
            rate=given.rate,
            seconds=given.seconds,
            kills=given.kills,
            seed=given.seed,
            kinds=kinds,
        )
    for line in outcome.wrong:
        print(f"WRONG: {line}")
    sys.exit(bool(outcome.wrong))


def made(home: Path) -> Path:
    """A home in files."""
    create(home, {}, {"cap = 1000": f"cap = {CAP}", "slack = 250": "slack = 30"})
    return home


if __name__ == "__main__":
    with unwinding():
        main()
