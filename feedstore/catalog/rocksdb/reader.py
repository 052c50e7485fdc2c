"""Reading a catalog in files."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from feedstore.catalog import checks, rule
from feedstore.catalog.port import CatalogError, CatalogUnavailableError, Delta, Fetched, Generation, NoGenerationError
from feedstore.catalog.rocksdb import generations
from feedstore.catalog.rocksdb.delta import DeltaReader, FollowedDelta
from feedstore.catalog.rocksdb.directory import Directory
from feedstore.catalog.rocksdb.generations import Opened

_log = structlog.get_logger()

LOOK_EVERY_S: Final = 1.0
"""The longest time that a swap may go unnoticed."""

_ATTEMPTS_MAX = 10
_WAY_BACK: Final = "roll back, or use another generation; if there is none, build or load with --force"


class Current:
    """The generation that CURRENT names, open. Thread-safe. clock: monotonic seconds."""

    def __init__(self, directory: Directory, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._version: tuple[int, int, int] | None = None
        self._opened: Opened | None = None
        self._looked_s = 0.0

    def get(self) -> Opened:
        """The current generation, as of at most a second ago."""
        found = self._opened
        if found is not None and 0 <= self._clock() - self._looked_s < LOOK_EVERY_S:
            return found
        return self.look()

    def look(self) -> Opened:
        """The current generation, as of now."""
        with self._lock:
            looked_s = self._clock()
            try:
                version = self._directory.current_version()
                if self._opened is None or version != self._version:
                    self._opened = None
                    self._opened, self._version = self._open()
            except CatalogError:
                self._opened = None
                raise
            self._looked_s = looked_s
            return self._opened

    def rollbacks(self) -> int:
        """How many rollbacks there were. This looks at CURRENT again after it, so that no later `get` is older."""
        rollbacks = self._directory.in_use().rollbacks
        with suppress(CatalogUnavailableError):  # the generation cannot be opened: a later `get` tries again
            self.look()
        return rollbacks

    def close(self) -> None:
        with self._lock:
            self._opened = None

    def _open(self) -> tuple[Opened, tuple[int, int, int]]:
        for attempts_left in reversed(range(_ATTEMPTS_MAX)):
            version = self._directory.current_version()
            name = self._directory.pointer().generation
            path = self._directory.generation(name)
            try:
                return generations.opened(path), version
            except CatalogUnavailableError as error:
                # The generation may have been replaced and collected since its name was read.
                if attempts_left == 0 or version == self._directory.current_version():
                    raise CatalogUnavailableError(
                        f"{self._directory.current_file} names {name}: {error}: if it is damaged, {_WAY_BACK}"
                    ) from error
        raise AssertionError


class RocksCatalogReader:
    """A `CatalogReader` of a catalog that other processes load and update. Any number of them.

    path: the catalog's directory; it may be missing until something is loaded. clock: monotonic seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._directory = Directory(path)
        self._current = Current(self._directory, clock)
        self._delta: DeltaReader = FollowedDelta(self._directory, clock)
        self._damaged: set[str] = set()
        """Damaged generations that were logged already: a report looks every second."""

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:  # noqa: ARG002  # files
        """Fetches records in four steps. Their order matters, because a swap, an update and a collection may come
        between any two.

        1. Take the generation, and hold it to the end: its files stay readable if it is collected meanwhile.
        2. Read `known`, before the updates: one that is entered later is not promised, whether step 3 sees it or not.
        3. Read the updates.
        4. Read the floor, after them: a collection raises the floor before it removes the first update. If an update
           that this generation needs was removed, the floor is now above its as_of. Then either another generation is
           current, and the steps are repeated with that one; or there was a gap, and nothing is known after its as_of.
        """
        checks.check_keys(keys)
        opened = self._current.get()
        for _ in range(_ATTEMPTS_MAX):
            with self._delta.view() as view:
                known_ms = view.known_ms()
                updates = view.updates(keys)
                floor_ms = view.floor_ms()
            as_of_ms = opened.generation.as_of_ms
            if rule.is_complete(floor_ms, as_of_ms):
                break
            latest = self._current.look()
            if latest is opened:
                break
            opened = latest
        else:
            raise CatalogUnavailableError(f"{self._directory.path}: generations change faster than one can be read")
        records: dict[bytes, bytes] = {}
        asked = keys
        if any(updates):
            asked = []
            for key, held in zip(keys, updates, strict=True):
                if held is None or not rule.wins(held.time_ms, as_of_ms):
                    asked.append(key)
                elif held.record is not None:
                    records[key] = held.record
        found = zip(asked, opened.get(asked), strict=True)
        records |= {key: record for key, record in found if record is not None}
        return Fetched(records, opened.generation.id, rule.known_ms(as_of_ms, known_ms, floor_ms))

    def generations(self) -> list[Generation]:
        names = self._directory.names().generations
        trail = self._noted(names)
        described = (self._described(name, trail) for name in names)
        return [each for each in described if each is not None]

    def trail(self) -> list[str]:
        return self._trail(self._directory.names().generations)

    def _trail(self, names: Sequence[str]) -> list[str]:
        """The trail, without damaged generations except the current one. names: of all generations that exist."""
        noted = self._noted(names)
        return [each for each in noted if each == noted[-1] or self._described(each, noted) is not None]

    def _noted(self, names: Sequence[str]) -> list[str]:
        """The trail including damaged generations: no files of generations are read."""
        try:
            pointer = self._directory.pointer()
        except NoGenerationError:
            return []
        return rule.trail(pointer.noted, names, pointer.generation)

    def _described(self, name: str, trail: Sequence[str]) -> Generation | None:
        """Describes a generation; None if it was collected meanwhile, or is damaged and not in use. Raises
        CatalogUnavailableError.
        """
        path = self._directory.generation(name)
        try:
            return generations.describe(path, trail)
        except CatalogUnavailableError as error:
            if not path.exists():
                return None
            if name in trail[-1:]:
                raise CatalogUnavailableError(f"{error}: {_WAY_BACK}") from error
            # A damaged one is skipped, so that all others can be used, built and collected as before.
            if name not in self._damaged:
                self._damaged.add(name)
                _log.warning("catalog.damaged", generation=name, error=str(error))
            return None

    def delta(self) -> Delta:
        with self._delta.view() as view:
            known_ms = view.known_ms()
            return Delta(view.floor_ms(), known_ms, view.entries())

    def check(self) -> None:
        self._current.look()

    def rollbacks(self) -> int:
        return self._current.rollbacks()

    def close(self) -> None:
        self._current.close()
        self._delta.close()
