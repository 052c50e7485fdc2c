"""Loading, updating and collecting a catalog in files."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

import structlog

from feedstore.catalog import checks, rule
from feedstore.catalog.port import (
    BuiltBy,
    CatalogRefusedError,
    CatalogUnavailableError,
    Collected,
    Generation,
    InUse,
    Update,
)
from feedstore.catalog.rocksdb import generations
from feedstore.catalog.rocksdb.delta import OwnDelta
from feedstore.catalog.rocksdb.directory import LOCK_WAIT_S, discard, held
from feedstore.catalog.rocksdb.reader import RocksCatalogReader

LEFT_AFTER_MS: Final = 3_600_000
"""A directory that no process writes, and that has not changed for this long, is left from a process that died."""

_log = structlog.get_logger()


class RocksCatalogStore(RocksCatalogReader):
    """A `CatalogStore`. Any process may have one, to load and to use. The first one that updates, notes or collects
    owns the delta until it is closed; others that try get an error.

    path: the catalog's directory; made if it is missing. clock: monotonic seconds. wall_ms: by the clock of the files,
    ms since 1970. unique: returns hexadecimal digits that are used nowhere else.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        unique: Callable[[], str],
    ) -> None:
        super().__init__(path, clock)
        self._clock = clock
        self._wall_ms = wall_ms
        self._unique = unique
        self._delta: OwnDelta = OwnDelta(self._directory, clock, unique)

    def update(self, updates: Sequence[Update]) -> None:
        checks.check_updates(updates)
        self._delta.update(updates)

    def note_known(self, known_ms: int, source: int = 0, sources: int = 1) -> None:
        checks.check_time(known_ms)
        checks.check_source(source, sources)
        self._delta.note_known(known_ms, source, sources)

    def note_gap(self, until_ms: int) -> None:
        checks.check_time(until_ms)
        self._delta.note_gap(until_ms)

    def building(self, who: str) -> AbstractContextManager[None]:
        return self._directory.building(BuiltBy(who, self._wall_ms()))

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        checks.check_time(as_of_ms)
        new = self._directory.announce(as_of_ms, self._unique())
        with held(new, LOCK_WAIT_S):  # a collection sees that this load is alive
            return self._load(new, as_of_ms, records)

    def _load(self, new: Path, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        try:
            # The floor is read after the load is announced: a collection raises the floor and then looks for loads.
            with self._delta.view(latest=True) as view:
                floor_ms = view.floor_ms()
            checks.check_floor(floor_ms, as_of_ms)
            written = generations.write(new, as_of_ms, records, self._clock)
            name = checks.generation_id(as_of_ms, written.sha256)
            path = self._directory.generation(name)
            if path.exists() and not generations.holds(path, written):
                _log.warning("catalog.replaced", generation=name, reason="a file of it is damaged or gone")
                discard(self._directory.retire(path))
            self._directory.finish(new, path)
        except BaseException:
            discard(new)
            raise
        try:
            trail = self.trail()
        except CatalogUnavailableError:
            trail = []  # CURRENT is damaged: if this generation is used, that mends it
        return generations.describe(path, trail)

    def look(self, generation: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        checks.check_keys(keys)
        found = generations.opened(self._there(generation)).get(keys)
        return {key: record for key, record in zip(keys, found, strict=True) if record is not None}

    def in_use(self) -> InUse:
        return self._directory.in_use()

    def use(self, generation: str, before: InUse | None = None) -> bool:
        with self._directory.locked():
            if before is not None and (now := self.in_use()) != before:
                return now.current == generation
            generations.opened(self._there(generation))  # if it cannot be opened, all fetches would fail
            self._directory.use(generation)
            return True

    def collect(self, keep: int) -> Collected:
        checks.check_keep(keep)
        self._delta.own()
        # Without the lock, a generation that becomes current after the look could be removed.
        with self._directory.locked():
            names = self._directory.names()
            kept = rule.kept(names.generations, keep, self._trail(names.generations))
            removed = [name for name in names.generations if name not in kept]
            for path in names.gone:  # remains of a collection that died
                discard(path)
            for path in [*map(self._directory.generation, removed), *filter(self._is_left, names.new)]:
                self._directory.retire(path)
            # Generations lose their names before the floor rises: one that has a name has all its updates.
            limit_ms = self._delta.raise_floor(lambda: self._directory.names().as_ofs_ms)
        entries = self._delta.remove(limit_ms)
        for path in self._directory.names().gone:
            discard(path)
        return Collected(removed, entries)

    def _there(self, generation: str) -> Path:
        """The path of a generation. Raises CatalogRefusedError if there is none."""
        path = self._directory.generation(generation)
        if not path.exists():
            raise CatalogRefusedError(f"{self._directory.path}: there is no generation {generation}")
        return path

    def _is_left(self, new: Path) -> bool:
        with suppress(OSError, CatalogUnavailableError):
            age_ms = self._wall_ms() - new.stat().st_mtime_ns // 1_000_000
            if age_ms <= LEFT_AFTER_MS:
                return False
            if age_ms > rule.DEAD_LOAD_MS:
                return True
            with held(new, within_s=0):
                return True
        return False
