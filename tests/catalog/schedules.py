"""The rule of catalogs under random schedules: a source that changes, batches that read it slowly, updates in any order
and repeated, loads, swaps, rollbacks, collections, restarts and gaps.

One seed decides everything. The store has an owner, a process that loads, and a reader; wherever one of them leaves a
gap between two steps, the others act.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

from feedstore.catalog.hbase.state import StoredState
from feedstore.catalog.hbase.tables import CatalogRow, DeltaRows
from feedstore.catalog.port import CatalogRefusedError, CatalogStore, Fetched, NoGenerationError, Update
from feedstore.catalog.rocksdb import delta
from feedstore.catalog.rocksdb.directory import Directory
from feedstore.widecolumn.hbase import RecordTable
from tests.catalog.catalog_adapters import ADAPTERS, Clock

KEYS = (b"a", b"b", b"c", b"d")
_STEPS = {"memory": 60, "rocksdb": 40, "hbase": 25}
_MOST_BATCHES = 3
_DEEPEST = 2

Patches = list[tuple[Any, str, Any]]


def _none(_world: "World") -> Patches:
    return []


class Mutant(NamedTuple):
    """A guard of the model that is gone. patches: (owner, attribute, value), in place for a run."""

    name: str
    what: str
    patches: Callable[["World"], Patches] = _none
    as_of_at_the_end: bool = False


class WrongError(AssertionError):
    """A fetch or a generation is not what the source says."""


@dataclass
class Outcome:
    failure: str | None
    history: list[str] = field(default_factory=list)


@dataclass
class Batch:
    as_of_ms: int
    left: list[bytes]
    read: dict[bytes, bytes] = field(default_factory=dict)


def simulate(seed: int, adapter: str = "memory", mutant: Mutant | None = None) -> Outcome:
    """Runs a schedule. The failure is None if all was as the source says."""
    history: list[str] = []
    with TemporaryDirectory() as scratch:
        world = World(Random(seed), adapter, Path(scratch), history, mutant)
        try:
            with patched([*world.hooks(), *(mutant.patches(world) if mutant else [])]):
                world.run()
        except TypeError:  # a mutant that does not fit the guard's signature any more would be found by this alone
            raise
        except Exception as wrong:  # noqa: BLE001  # a call that fails is as wrong as a false answer
            return Outcome(f"{type(wrong).__name__}: {wrong}", history)
        finally:
            world.close()
    return Outcome(None, history)


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


class World:
    """One run."""

    def __init__(self, rng: Random, adapter: str, scratch: Path, history: list[str], mutant: Mutant | None) -> None:
        self.rng = rng
        self._adapter = adapter
        self._steps = _STEPS[adapter]
        self.history = history
        self.clock = Clock()
        self._place = ADAPTERS[adapter](scratch, self.clock)
        self.owner: CatalogStore = self._place.store()
        self.loader: CatalogStore = self._place.store()
        self.reader = self._place.reader()
        self._as_of_at_the_end = mutant is not None and mutant.as_of_at_the_end
        # The source
        self.now_ms = 10
        self.log: list[Update] = []
        self.first_ms = rng.choice([0, 0, 16])
        """Updates before this are never published: the updater begins then."""
        # Updates that were delivered
        self.coming: list[Update] = []
        self.come: list[Update] = []
        self.newest: dict[bytes, Update] = {}
        self.floor_ms = 0
        self.is_known = False
        # Batches that were loaded
        self.batches: list[Batch] = []
        self.loaded: dict[str, dict[bytes, bytes]] = {}
        self.current: str | None = None
        self.rollbacks = 0
        self._depth = 0
        self._held: set[str] = set()
        """The parts that steps under way keep to themselves: "owner", "loader", "names"."""

    def close(self) -> None:
        for each in (self.owner, self.loader, self.reader):
            each.close()

    def run(self) -> None:
        steps: list[tuple[Callable[[], None], float]] = [
            (self.commit, self.rng.choice([1.5, 6])),
            (self.deliver, 5),
            (self.tick, 2),
            (self.begin, 1.5),
            (self.read, 5),
            (self.use, 1.5),
            (self.collect, self.rng.choice([1.5, 4])),
            (self.fetch, 4),
            (self.restart, 0.3),
            (self.gap, 0.2),
            (self.pass_time, 1),
        ]
        if self.rng.random() < 0.7:
            self.tick()  # the first one is a floor: a batch that is loaded later may need the delta
        for step in self.rng.choices(*zip(*steps, strict=True), k=self._steps):
            step()
        self.finish()

    @contextmanager
    def holding(self, *held: str) -> Iterator[None]:
        before = self._held
        self._held = before | {*held}
        try:
            yield
        finally:
            self._held = before

    def meanwhile(self) -> None:
        """Between two steps of a call, others act."""
        if self._depth >= _DEEPEST or self.rng.random() < 0.6:
            return
        self._depth += 1
        self.history.append("(")
        for _ in range(self.rng.randrange(1, 4)):
            steps = [self.commit]
            if "loader" not in self._held:
                steps.append(self.begin_and_load)
            if "owner" not in self._held:
                steps += [self.deliver, self.tick]
                if "names" not in self._held:
                    steps += [self.collect, self.collect]
            if not self._held & {"names", "loader"}:
                steps += [self.use, self.use]
            self.rng.choice(steps)()
        self.history.append(")")
        self._depth -= 1

    # The source
    # ----------------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        key = self.rng.choice(KEYS)
        record = None if self.rng.random() < 0.35 else str(len(self.log)).encode()
        self.now_ms += self.rng.choice([0, 1, 1, 3])
        last = next((each for each in reversed(self.log) if each.key == key), None)
        if last is not None and last.time_ms == self.now_ms and not (record is None and last.record is not None):
            self.now_ms += 1
        update = Update(key, self.now_ms, record)
        self.log.append(update)
        if update.time_ms >= self.first_ms:
            self.coming.append(update)
        self.history.append(f"commit {update}")

    def state(self, key: bytes) -> bytes | None:
        return next((each.record for each in reversed(self.log) if each.key == key), None)

    # Updates
    # ----------------------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        new = self.rng.sample(self.coming, self.rng.randint(0, min(3, len(self.coming))))
        again = self.rng.sample(self.come, min(len(self.come), self.rng.choice([0, 0, 1, 2])))
        self._deliver(new, again)

    def _deliver(self, new: Sequence[Update], again: Sequence[Update]) -> None:
        updates = [*new, *again]
        self.rng.shuffle(updates)
        self.history.append(f"deliver {updates}")
        self.owner.update(updates)
        self.come += new
        self.coming = [each for each in self.coming if each not in new]
        for update in updates:
            known = self.newest.get(update.key)
            order = (update.time_ms, update.record is None)
            if known is None or order > (known.time_ms, known.record is None):
                self.newest[update.key] = update

    @property
    def known_ms(self) -> int:
        """Every update up to this has come, or is lost."""
        return min([self.now_ms, *(each.time_ms for each in self.coming)]) - 1

    def tick(self) -> None:
        known_ms = self.known_ms
        if known_ms < self.first_ms:
            return
        self.history.append(f"known {known_ms}")
        self.owner.note_known(known_ms)
        if not self.is_known:
            self.is_known = True
            self.floor_ms = max(self.floor_ms, known_ms)

    def gap(self) -> None:
        lost = self.rng.sample(self.coming, self.rng.randint(0, len(self.coming)))
        if lost:
            until_ms = max(each.time_ms for each in lost)
            self.history.append(f"lost {lost}")
            self.coming = [each for each in self.coming if each not in lost]
            self.floor_ms = max(self.floor_ms, until_ms)
            self.owner.note_gap(until_ms)

    def restart(self) -> None:
        self.history.append("restart")
        if self._place.is_durable:
            self.owner.close()
            self.owner = self._place.store()

    def pass_time(self) -> None:
        self.clock.pass_s(self.rng.choice([0.05, 0.2, 1.5]))

    # Generations
    # ----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.batches) < _MOST_BATCHES:
            self.batches.append(Batch(self.now_ms - 1, self.rng.sample(KEYS, len(KEYS))))
            self.history.append(f"batch as of {self.now_ms - 1}")

    def read(self) -> None:
        if not self.batches:
            return
        batch = self.rng.choice(self.batches)
        if batch.left and self.rng.random() < 0.9:
            self._read(batch, batch.left.pop())
        elif not batch.left:
            self.batches.remove(batch)
            self._load(batch)

    def begin_and_load(self) -> None:
        """Reads the rest of a batch, or a whole one, and loads it, in one go."""
        batch = next((each for each in self.batches if self.rng.random() < 0.5), None)
        if batch is None:
            batch = Batch(self.now_ms - 1, [*KEYS])
        else:
            self.batches.remove(batch)
        for key in batch.left:
            self._read(batch, key)
        self._load(batch)

    def _read(self, batch: Batch, key: bytes) -> None:
        record = self.state(key)
        if record is not None:
            batch.read[key] = record

    def _load(self, batch: Batch) -> None:
        as_of_ms = self.now_ms - 1 if self._as_of_at_the_end else batch.as_of_ms

        def records() -> Iterator[tuple[bytes, bytes]]:
            for key in sorted(batch.read):
                self.meanwhile()
                yield key, batch.read[key]

        self.history.append(f"load as of {as_of_ms} {batch.read}")
        try:
            name = self.loader.load(as_of_ms, records()).id
        except CatalogRefusedError as refused:
            self.history.append(f"refused: {refused}")
            return
        self.history.append(f"loaded {name}")
        self.loaded[name] = batch.read
        if self.current is None and "names" not in self._held:
            self._use(name)

    def use(self) -> None:
        there = self.owner.generations()
        if there:
            self._use(self.rng.choice(there).id)

    def _use(self, name: str) -> None:
        self.history.append(f"use {name}")
        try:
            self.loader.use(name)
        except CatalogRefusedError as refused:  # collected before it was used
            self.history.append(f"refused: {refused}")
        else:
            if self._adapter != "hbase":  # there others may act before this returns: a hook notes the moment
                self._came_into_use(name)

    def _came_into_use(self, name: str) -> None:
        if self.current is not None and self.current != name:
            before, after = (int(each.partition("-")[0]) for each in (self.current, name))
            self.rollbacks += after <= before
        self.current = name

    def collect(self) -> None:
        keep = self.rng.choice([1, 2, 3])
        self.history.append(f"collect {keep}")
        self.history.append(f"collected {self.owner.collect(keep)}")

    # Fetches
    # ----------------------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        if self.rng.random() < 0.5:
            self.clock.pass_s(self.rng.choice([0, 0.05, 0.2]))
        reader = self.rng.choice([self.owner, self.reader, self.reader])
        try:
            found = reader.fetch(KEYS)
        except NoGenerationError:
            if self.current is not None:
                raise WrongError("no generation, although one is in use") from None
            return
        self.history.append(f"{'owner' if reader is self.owner else 'reader'} fetched {found}")
        self.check(found)

    def check(self, found: Fetched) -> None:
        """Each record is one that the source had, and it is not older than `known_ms` promises."""
        for key in KEYS:
            seen = found.records.get(key)
            states: list[bytes | None] = [None]
            first = 0
            for update in self.log:
                if update.key == key:
                    states.append(update.record)
                    if update.time_ms <= found.known_ms:
                        first = len(states) - 1
            if seen not in states[first:]:
                expected = f"expected one of {states[first:]}"
                raise WrongError(f"{key!r} is {seen!r} by {found.generation}, known {found.known_ms}: {expected}")

    def finish(self) -> None:
        """All that is coming comes, some of it again. Then every generation that is kept has the source's records."""
        self._depth = _DEEPEST  # nothing comes between any more
        self.now_ms += 1
        again = self.rng.sample(self.come, min(len(self.come), 6))
        self._deliver(self.coming, again)
        self.tick()
        if self.rng.random() < 0.5:
            self.collect()
            self._deliver([], self.rng.sample(self.come, min(len(self.come), 6)))
        for generation in self.owner.generations():
            self._use(generation.id)
            self.clock.pass_s(2)
            for reader in (self.owner, self.reader):
                found = reader.fetch(KEYS)
                self.history.append(f"at the end {found}")
                if found.generation != generation.id:
                    raise WrongError(f"{found.generation} is in use, expected {generation.id}")
                if reader.rollbacks() != self.rollbacks:
                    raise WrongError(f"{reader.rollbacks()} rollbacks, expected {self.rollbacks}")
                self.check(found)
                self._check_end(generation.as_of_ms, found)

    def _check_end(self, as_of_ms: int, found: Fetched) -> None:
        by_rule = {
            key: update.record if update and update.time_ms > as_of_ms else self.loaded[found.generation].get(key)
            for key in KEYS
            for update in [self.newest.get(key)]
        }
        seen = {key: found.records.get(key) for key in KEYS}
        if seen != by_rule:
            raise WrongError(f"{found.generation}: {seen}, expected {by_rule}")
        if as_of_ms >= self.floor_ms and self.is_known:
            at_source = {key: self.state(key) for key in KEYS}
            if seen != at_source:
                raise WrongError(f"{found.generation}: {seen}, but the source has {at_source}")
            if found.known_ms != max(self.known_ms, as_of_ms):
                raise WrongError(f"{found.generation}: known {found.known_ms}, expected {self.known_ms}")

    # Between two steps of a call
    # ----------------------------------------------------------------------------------------------------------------

    def hooks(self) -> Patches:
        """Where others act between two steps of a call."""
        match self._adapter:
            case "rocksdb":
                return self._in_files()
            case "hbase":
                return self._in_hbase()
            case _:
                return []

    def _in_hbase(self) -> Patches:
        """Others act before each round trip that matters for the order: there are no locks."""
        places = [
            (CatalogRow, ("look", "note")),
            (DeltaRows, ("get", "put", "remove")),
            (RecordTable, ("mask", "replace_cell")),
        ]

        def after_others(real: Callable[..., Any]) -> Callable[..., Any]:
            def method(*args: Any, **kwargs: Any) -> Any:
                self.meanwhile()
                return real(*args, **kwargs)

            return method

        change = CatalogRow.change

        def changed(*args: Any) -> StoredState:
            after = change(*args)
            if after.current is not None and after.current != self.current:
                self._came_into_use(after.current)
            return after

        return [
            (CatalogRow, "change", after_others(changed)),
            *((kind, name, after_others(getattr(kind, name))) for kind, names in places for name in names),
        ]

    def _in_files(self) -> Patches:
        announce, raise_floor = Directory.announce, delta.OwnDelta.raise_floor
        hooks: Patches = []

        def announced(directory: Directory, *args: Any) -> Path:
            path = announce(directory, *args)
            self.meanwhile()
            return path

        def raised(own: delta.OwnDelta, as_ofs_ms: Callable[[], Sequence[int]]) -> int:
            def looked() -> Sequence[int]:
                found = as_ofs_ms()
                self.meanwhile()
                return found

            with self.holding("owner", "names"):
                return raise_floor(own, looked)

        hooks += [(Directory, "announce", announced), (delta.OwnDelta, "raise_floor", raised)]
        for kind in (delta.FollowedDelta, delta.OwnDelta):
            hooks.append((kind, "view", self._between(kind.view)))
        for name in ("known_ms", "updates", "floor_ms"):
            hooks.append((delta.View, name, self._between(getattr(delta.View, name))))
        return hooks

    def _between(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            self.between()
            return real(*args, **kwargs)

        return method

    def between(self) -> None:
        with self.holding(*self._busy()):
            self.meanwhile()

    def _busy(self) -> list[str]:
        """The stores that hold a lock of their own, and can do nothing else meanwhile."""
        of = {"owner": self.owner._delta, "loader": self.loader._delta}
        return [name for name, own in of.items() if own._lock.locked() or own._followed._lock.locked()]
