"""The model of a catalog: what every adapter does, with one lock and some dicts."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from feedstore.catalog import checks, rule
from feedstore.catalog.port import (
    BeingBuiltError,
    BuiltBy,
    CatalogRefusedError,
    Collected,
    Delta,
    Fetched,
    Generation,
    InUse,
    NoGenerationError,
    Update,
)


class MemoryCatalog:
    """A `CatalogStore` that ends with its process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generations: dict[str, Generation] = {}
        self._records: dict[str, dict[bytes, bytes]] = {}
        """By generation, by key."""
        self._trail: list[str] = []
        self._rollbacks = 0
        self._updates: dict[bytes, Update] = {}
        self._delta = Delta(floor_ms=0, known_ms=0, entries=0)
        self._noted: dict[tuple[int, int], int] = {}
        """By `sources` and source: up to when its updates are in."""
        self._loading: list[int] = []
        """The as_of of each load under way."""
        self._builder: BuiltBy | None = None

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:
        checks.check_keys(keys)
        with self._lock:
            if self._current is None:
                raise NoGenerationError("no generation of this catalog is in use: load one and use it")
            as_of_ms = self._generations[self._current].as_of_ms
            generation = self._records[self._current]
            records = {}
            for key in keys:
                update = self._updates.get(key)
                if update is not None and rule.wins(update.time_ms, as_of_ms):
                    record = update.record
                else:
                    record = generation.get(key)
                if record is not None:
                    records[key] = record
            known_ms = rule.known_ms(as_of_ms, self._delta.known_ms, self._delta.floor_ms)
            return Fetched(records, self._current, known_ms)

    def generations(self) -> list[Generation]:
        with self._lock:
            return [
                self._generations[name]._replace(current=name == self._current, used=name in self._trail)
                for name in rule.in_order(self._generations)
            ]

    def trail(self) -> list[str]:
        with self._lock:
            return [*self._trail]

    @property
    def _current(self) -> str | None:
        return self._trail[-1] if self._trail else None

    def delta(self) -> Delta:
        with self._lock:
            return self._delta._replace(entries=len(self._updates))

    def check(self) -> None:
        with self._lock:
            if self._current is None:
                raise NoGenerationError("no generation of this catalog is in use: load one and use it")

    def rollbacks(self) -> int:
        with self._lock:
            return self._rollbacks

    def close(self) -> None: ...

    def update(self, updates: Sequence[Update]) -> None:
        checks.check_updates(updates)
        with self._lock:
            for update in updates:
                before = self._updates.get(update.key)
                if rule.replaces(rule.stamp(update), None if before is None else rule.stamp(before)):
                    self._updates[update.key] = update

    def note_known(self, known_ms: int, source: int = 0, sources: int = 1) -> None:
        checks.check_time(known_ms)
        checks.check_source(source, sources)
        with self._lock:
            self._noted[sources, source] = max(known_ms, self._noted.get((sources, source), 0))
            all_ms = [self._noted.get((sources, each), 0) for each in range(sources)]
            self._delta = rule.noted(self._delta, known_ms, all_ms)

    def note_gap(self, until_ms: int) -> None:
        checks.check_time(until_ms)
        with self._lock:
            self._raise_floor(until_ms)

    @contextmanager
    def building(self, who: str) -> Iterator[None]:
        with self._lock:
            if self._builder is not None:
                raise BeingBuiltError(self._builder)
            self._builder = BuiltBy(who, 0)
        try:
            yield
        finally:
            with self._lock:
                self._builder = None

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        checks.check_time(as_of_ms)
        with self._lock:
            checks.check_floor(self._delta.floor_ms, as_of_ms)
            self._loading.append(as_of_ms)
        try:
            checked = checks.Checked(records)
            loaded = dict(checked)
            with self._lock:
                name = checks.generation_id(as_of_ms, checked.sha256)
                made = Generation(name, as_of_ms, checked.records, 0, checked.sha256, current=False)
                self._generations.setdefault(name, made)
                self._records[name] = loaded
                return made._replace(current=name == self._current, used=name in self._trail)
        finally:
            with self._lock:
                self._loading.remove(as_of_ms)

    def look(self, generation: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        checks.check_keys(keys)
        with self._lock:
            if generation not in self._records:
                raise CatalogRefusedError(f"there is no generation {generation}")
            return {key: self._records[generation][key] for key in keys if key in self._records[generation]}

    def in_use(self) -> InUse:
        with self._lock:
            return InUse(self._current, self._rollbacks)

    def use(self, generation: str, before: InUse | None = None) -> bool:
        with self._lock:
            if before not in {None, (self._current, self._rollbacks)}:
                return self._current == generation
            if generation not in self._generations:
                raise CatalogRefusedError(f"there is no generation {generation}")
            self._rollbacks += rule.rolls_back(self._current, generation)
            self._trail = rule.extended(self._trail, generation)
            return True

    def collect(self, keep: int) -> Collected:
        checks.check_keep(keep)
        with self._lock:
            kept = rule.kept(rule.in_order(self._generations), keep, self._trail)
            self._trail = [each for each in self._trail if each in kept]
            gone = [name for name in rule.in_order(self._generations) if name not in kept]
            for name in gone:
                del self._generations[name], self._records[name]
            # What every generation has that may still be read is never asked of the delta.
            limit_ms = rule.collectable_ms([*map(rule.as_of_ms, kept), *self._loading])
            self._raise_floor(limit_ms)
            old = [key for key, update in self._updates.items() if update.time_ms <= limit_ms]
            for key in old:
                del self._updates[key]
            return Collected(gone, len(old))

    def _raise_floor(self, floor_ms: int) -> None:
        self._delta = self._delta._replace(floor_ms=max(self._delta.floor_ms, floor_ms))
