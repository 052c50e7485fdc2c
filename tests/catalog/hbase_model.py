"""The parts of an HBase cluster that catalogs need, in memory: the contract then runs without a server, too."""

import threading
from collections.abc import Iterable, Mapping, Sequence

from feedstore.widecolumn import WillNotError
from feedstore.widecolumn.hbase import Record, TableDefinition
from feedstore.widecolumn.hbase.records import RECORD


class ModelCluster:
    """An `HBaseCluster` as `CatalogStorage` uses it. Thread-safe."""

    def __init__(self) -> None:
        self.administration = ModelTables()

    def records(self, name: str) -> "ModelRecords":
        return ModelRecords(self.administration, name)

    def close(self) -> None:
        """Its tables stay, for the next store that opens it."""


class ModelTables:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.cells: dict[str, dict[tuple[bytes, bytes], Record]] = {}
        """By table, by row and column."""
        self.markers: dict[str, dict[bytes, int]] = {}
        """By table, by row: up to which timestamp its records are masked."""
        self.not_enabled: set[str] = set()
        """Tables that are there, and are still being made or were disabled."""
        self._definitions: dict[str, TableDefinition] = {}

    def create_namespace(self) -> None: ...

    def create(self, wanted: TableDefinition) -> None:
        with self.lock:
            self._definitions.setdefault(wanted.name, wanted)
            self.cells.setdefault(wanted.name, {})
            self.markers.setdefault(wanted.name, {})

    def definition(self, name: str) -> TableDefinition | None:
        return self._definitions.get(name)

    def exists(self, name: str, deadline_s: float | None = None) -> bool:
        return name in self._definitions

    def is_enabled(self, name: str, deadline_s: float | None = None) -> bool:
        return name in self._definitions and name not in self.not_enabled

    def drop(self, name: str) -> None:
        with self.lock:
            for each in (self._definitions, self.cells, self.markers):
                each.pop(name, None)

    def change(self, name: str, settings: Mapping[str, str | None]) -> None:
        raise AssertionError(f"{name}: {settings}: a table that was made here is as it must be")


class ModelRecords:
    """A `RecordTable`. Of a row and column the latest timestamp counts."""

    def __init__(self, tables: ModelTables, name: str) -> None:
        self._tables = tables
        self._name = name

    def get(self, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        with self._tables.lock:
            return [self._cells().get((row, RECORD)) for row in rows]

    def put(self, records: Iterable[tuple[bytes, Record]]) -> None:
        for row, record in records:
            with self._tables.lock:
                self._cells()  # it is there
                if record.timestamp > self._tables.markers[self._name].get(row, -1):
                    self._put(row, RECORD, record)

    def mask(self, rows: Iterable[bytes], timestamp: int) -> None:
        for row in rows:
            with self._tables.lock:
                held = self._cells().get((row, RECORD))
                if held is not None and held.timestamp <= timestamp:
                    del self._cells()[row, RECORD]
                markers = self._tables.markers[self._name]
                markers[row] = max(timestamp, markers.get(row, -1))

    def timestamps(self, start: bytes, stop: bytes, count: int) -> list[tuple[bytes, int]]:
        with self._tables.lock:
            found = sorted((row, each.timestamp) for (row, column), each in self._cells().items() if column == RECORD)
            return [(row, timestamp) for row, timestamp in found if start <= row < stop][:count]

    def cells(self, row: bytes, deadline_s: float | None = None) -> dict[bytes, Record]:
        with self._tables.lock:
            return {column: each for (of, column), each in self._cells().items() if of == row}

    def put_cell(self, row: bytes, column: bytes, record: Record) -> None:
        with self._tables.lock:
            self._put(row, column, record)

    def replace_cell(self, row: bytes, column: bytes, expected: bytes | None, record: Record) -> bool:
        with self._tables.lock:
            held = self._cells().get((row, column))
            if (None if held is None else held.value) != expected:
                return False
            self._put(row, column, record)
            return True

    def _put(self, row: bytes, column: bytes, record: Record) -> None:
        held = self._cells().get((row, column))
        if held is None or held.timestamp <= record.timestamp:
            self._cells()[row, column] = record

    def _cells(self) -> dict[tuple[bytes, bytes], Record]:
        if not self._tables.is_enabled(self._name):
            raise WillNotError(f"TableNotFoundException: {self._name}")
        return self._tables.cells[self._name]
