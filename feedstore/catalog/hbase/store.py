"""Loading, updating and collecting a catalog in HBase."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from feedstore.catalog import checks
from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase.reader import HBaseCatalogReader
from feedstore.catalog.hbase.state import Building, Loading, Made, StoredState
from feedstore.catalog.port import (
    MAX_KEY_BYTES,
    BeingBuiltError,
    BuiltBy,
    CatalogUnavailableError,
    Collected,
    Generation,
    InUse,
    Update,
)
from feedstore.widecolumn.hbase import HBaseCluster

BEAT_S: Final = 5.0
"""How often a build notes that it is alive."""

DEAD_AFTER_S: Final = 30.0
"""A build that notes nothing for this long counts as dead."""

COUNT_EVERY_S: Final = 600.0
"""The updates are counted this often, by one of the processes that collect, even if there are none to remove."""


class HBaseCatalogStore(HBaseCatalogReader):
    """A `CatalogStore`. Any number of processes may load, use, update, note and collect.

    cluster: closed with it. clock: monotonic seconds, as deadlines are. wall_ms: ms since 1970. unique: returns
    hexadecimal digits that are used nowhere else. pause: waits for a number of seconds.
    """

    def __init__(
        self,
        cluster: HBaseCluster,
        catalog: str,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        unique: Callable[[], str],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(cluster, catalog, clock)
        self._wall_ms = wall_ms
        self._unique = unique
        self._pause = pause
        self._build = ""
        """The id of the build that this store is in."""
        self._walk, self._walk_since_s = "", float("-inf")
        """The id of the last walk over the updates, and since when this store has seen that one."""

    def update(self, updates: Sequence[Update]) -> None:
        checks.check_updates(updates)
        with self._tables.prepared():
            self._tables.delta.put(updates)

    def note_known(self, known_ms: int, source: int = 0, sources: int = 1) -> None:
        checks.check_time(known_ms)
        checks.check_source(source, sources)
        with self._tables.prepared():
            if not self._look().known_ms:
                # The floor is raised before the note: when all sources have noted a time, the floor is at least the
                # first time of the last of them.
                self._tables.row.change(lambda state: states.raised(state, known_ms))
            self._tables.row.note(known_ms, source, sources)

    def note_gap(self, until_ms: int) -> None:
        checks.check_time(until_ms)
        with self._tables.prepared():
            self._tables.row.change(lambda state: states.raised(state, until_ms))

    @contextmanager
    def building(self, who: str) -> Iterator[None]:
        with self._tables.prepared():
            mine = Building(self._unique(), who, self._wall_ms())
            dead = self._dead_builder()
            self._tables.row.change(lambda state: states.begun(state, mine, dead))
        over = threading.Event()
        beating = threading.Thread(target=self._beat, args=(mine.id, over), name="catalog-building", daemon=True)
        beating.start()
        self._build = mine.id
        try:
            yield
        finally:
            self._build = ""
            over.set()
            beating.join()
            with suppress(CatalogUnavailableError):  # then it soon counts as dead
                self._tables.row.change(lambda state: states.ended(state, mine.id))

    def _dead_builder(self) -> Building | None:
        """The noted builder, if its beat does not change for a while, measured by this machine's clock alone."""
        there = self._look().state.building
        until_s = self._clock() + DEAD_AFTER_S
        while there is not None and self._clock() < until_s:
            self._pause(min(1.0, DEAD_AFTER_S))
            now = self._look().state.building
            if now is None:
                return None
            if now != there:
                raise BeingBuiltError(BuiltBy(now.who, now.since_ms))
        return there

    def _beat(self, build: str, over: threading.Event) -> None:
        while not over.wait(BEAT_S):
            with suppress(CatalogUnavailableError):
                self._tables.row.change(lambda state: states.beaten(state, build))

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        checks.check_time(as_of_ms)
        began_s = self._clock()
        table = self._tables.named(as_of_ms, self._unique())
        announced = Loading(table, as_of_ms, self._wall_ms(), self._build)
        with self._tables.prepared():
            self._tables.row.change(lambda state: states.announced(state, announced))
        try:
            checked = checks.Checked(records)
            self._tables.load(table, checked)
            name = checks.generation_id(as_of_ms, checked.sha256)
            took_ms = int((self._clock() - began_s) * 1_000)
            made = Made(name, table, checked.records, checked.sha256, took_ms)
            state = self._tables.row.change(lambda state: states.finished(state, made, self._wall_ms()))
        except BaseException:
            # A collection removes its table.
            with suppress(CatalogUnavailableError):
                self._tables.row.change(lambda state: states.abandoned(state, table, self._wall_ms()))
            raise
        [loaded] = [each for each in state.listed() if each.id == name]
        return loaded

    def look(self, generation: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        checks.check_keys(keys)
        made = self._look().state.generation(generation)
        found = self._tables.records(made, keys)
        return {key: record for key, record in zip(keys, found, strict=True) if record is not None}

    def in_use(self) -> InUse:
        state = self._look().state
        return InUse(state.current, state.rollbacks)

    def use(self, generation: str, before: InUse | None = None) -> bool:
        made = self._look().state.generation(generation)
        self._tables.records(made, [b"\xff" * MAX_KEY_BYTES])  # if it does not answer, all fetches would fail
        self._tables.row.change(lambda state: states.used(state, generation, before))
        return self._look().state.current == generation

    def collect(self, keep: int) -> Collected:
        checks.check_keep(keep)
        now_ms = self._wall_ms()
        with self._tables.prepared():
            before = self._look().state
            after = self._tables.row.change(lambda state: states.collected(state, keep, now_ms))
        try:
            self._remove(states.removable(after, now_ms))
        finally:
            entries = self._remove_updates(after)
        return Collected([name for name in before.ids if name not in after.ids], entries)

    def _remove(self, tables: Sequence[str]) -> None:
        """Removes every table that can be removed. Raises CatalogUnavailableError if one cannot be."""
        removed: list[str] = []
        failure: CatalogUnavailableError | None = None
        for table in tables:
            try:
                self._tables.remove(table)
                removed.append(table)
            except CatalogUnavailableError as error:
                failure = error
        self._tables.row.change(lambda state: states.forgotten(state, removed))
        if failure is not None:
            raise failure

    def _remove_updates(self, state: StoredState) -> int:
        """Removes the updates below the floor, and counts the others. It walks over all updates, so one process does
        it, if there may be any to remove, or if the last walk began long ago, measured by this machine's clock alone.
        """
        limit_ms = states.limit_ms(state)
        now_s = self._clock()
        if state.walk != self._walk:
            self._walk, self._walk_since_s = state.walk, now_s
        if state.walk and limit_ms <= state.collected_ms and now_s - self._walk_since_s < COUNT_EVERY_S:
            return 0
        mine = self._unique()
        # Before it begins: a walk takes long, and other processes collect meanwhile.
        claimed = self._tables.row.change(lambda noted: states.walked(noted, mine, state.walk, limit_ms))
        if claimed.walk != mine:
            return 0
        self._walk, self._walk_since_s = mine, float("-inf")  # if it fails, the next collection does it
        removed, left = self._tables.delta.remove(limit_ms)
        self._tables.row.change(lambda noted: states.counted(noted, left))
        self._walk_since_s = now_s
        return removed
