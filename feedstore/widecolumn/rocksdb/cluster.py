"""Embedded adapter: a cluster is a directory with one RocksDB in it, a table is a column family.

Key layout
----------
`row | column | 2^63-1 - timestamp (8 bytes big-endian) | kind (0 marker, 1 put)`, empty value. A column's versions
are newest first, and a marker before a put of the same timestamp; so *the first key of a column decides* whether it
is visible, and a reader passes over the rest. The widths of each table are in the default column family.

Settings (in `files`), and why. Measured on 2 cores that other work shared (load 4-6), rows of 1,000 entries
----------------------------------------------------------------------------------------------------------------------
- One synced `WriteBatch` per `apply`, its keys in order: an apply costs one wait for the disk, and 0.85 us of CPU
  a cell for 10,000 cells anywhere (the memtable takes most of it; key by key in any order, without checks, 1.8 us).
- Reads take keys with `keys(from_key=)` and `islice`: a page of 25 costs 6 us there and 10 us in all; 12 us p50 over
  random rows of a swept table of 1 M entries, 27 us before (several sorted runs).
- LZ4 throughout, 16 KiB blocks: 15-22 bytes an entry after a sweep. ZSTD at the bottom gave 11-14, and random pages
  at 35 us instead of 19: a page that is not cached unpacks a block.
- Universal compaction, because levels rewrite more: for 20 M entries it took 79 s of CPU instead of 92 s, and its
  slowest million went at 185k cells/s wall instead of 68k. Writing to 20 M and to 1 M stored entries in turn: 1.01-1.02
  of the rate. It needs up to twice the space while it merges everything.
- 4 MiB memtables, at most 2: a third of the memory of 16 MiB ones. Sorted runs are merged from eight on while a table
  is busy, so that each cell is merged no more often (docs/decisions/0067), and from three on while it is at rest,
  because pages look into each run (docs/decisions/0076).
- One 32 MiB block cache per cluster, which only pages fill: reads that come once bypass it. No bloom filters: every
  page seeks, and a row has entries in every sorted run.
- At most 32 MiB of log, so that opening replays less than a second of it.
- One thread opens the files of a table, of which there are few: RocksDB would start 16 for each table, even for none.
  Opening takes 6 ms of CPU instead of 8, and 7 instead of 11 next to an owner.

Scans stream 2.7-3.3 M cells/s: a row whose keys are all puts of different columns is cut in C. A sweep compacts at its
end, and lets the background's own merges run meanwhile. Writers during a sweep of 5 M entries waited 12 ms p50 instead
of 10, and 167 ms at most.
"""

import shutil
import struct
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Self

from rocksdict import Rdict, ReadOptions, Snapshot, WriteBatch

from feedstore.widecolumn.checks import check_batch, check_range, check_read, check_row
from feedstore.widecolumn.port import (
    Access,
    Cell,
    DeleteCells,
    Mutation,
    PutCells,
    RefusedError,
    Sweep,
    Table,
    UnavailableError,
    lines,
)
from feedstore.widecolumn.resolution import Garbage, Version, garbage, masks
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from feedstore.widecolumn.rocksdb.dead_runs import DeadRuns, step_over
from feedstore.widecolumn.rocksdb.files import DURABLE, ONCE, UNSYNCED, Files, Merging
from feedstore.widecolumn.rocksdb.secondary import Secondary

_MARKER, _PUT = 0, 1
_REVERSED_FROM = 2**63 - 1
_TAIL = struct.Struct(">QB")
_PAST_COLUMN = b"\x80"
"""Sorts behind the tail of every version: reversed timestamps begin with a byte below it."""

_CHUNK_KEYS = 16_384
"""How many keys a scan of everything holds: about 1.5 MB."""
_RANGE_CHUNK_KEYS = 1_024
"""How many keys a scan of a range holds: hundreds of ranges are read side by side."""
_FIRST_CHUNK_KEYS = 64
_SLOW_CHUNK_KEYS_MAX = 4_096
_FIRST_CELLS_KEYS = 16
"""How many keys of a row are looked at first if its cells are asked for."""
_RESOLVED_AT_ONCE = 2
"""How many keys a page that meets markers reads for each column that it wants: every other key may be a marker."""
_CUT_TOGETHER_MAX = 128
"""The most keys that are cut together. For each number of keys a cutter is kept, of 32 bytes a key."""
_LEARN_KEYS_FIRST = 512
_LEARN_KEYS_MAX = 20_000
"""How far into a row dead runs are looked for, at first and at most (about 5 ms under the write lock)."""
_LEARN_ROWS_MAX = 8
"""The most rows of one batch in which dead runs are looked for. In other rows, readers find them as they meet them."""


class RocksCluster:
    """The tables of one directory, for one owner and any number of other readers.

    Build it with `open`. Thread-safe.
    """

    def __init__(self, path: Path, tables: Sequence[Table], access: Access) -> None:
        self.path = path
        self._merging = Merging()
        self.lock = threading.Lock()
        """Held by every write, and by every read of a cluster that another process owns."""
        self.looks = 0
        """How often a look at the owner's files was begun."""
        self._layout = rocksdb_files.layout_of(tables)
        self._is_closed = False
        self._failure: str | None = None
        self._files: Files | None = None
        self._follower = Secondary(path, self._layout) if access == "read" else None
        try:
            self._files = self._open_files()
        except Exception:
            self.close()
            raise
        self._stores = {table.name: RocksStore(self, table) for table in tables}

    @classmethod
    def open(cls, path: str | Path, tables: Sequence[Table], access: Access = "write") -> Self:
        """Opens a cluster directory; an owner creates what is missing.

        access: "write" reads and writes, for one owner at a time; "read" only reads, and sees what the owner has
            written when a read or a scan begins.

        Raises:
            UnavailableError: owned by another process, missing (if not the owner), damaged, not writable, no space.
            UnsafeTableError: an UnavailableError; a table was created with other widths.
        """
        if len({table.name for table in tables}) != len(tables):
            raise ValueError(f"tables: expected different names, got {[table.name for table in tables]}")
        return cls(Path(path), tables, access)

    @property
    def is_secondary(self) -> bool:
        return self._follower is not None

    def table(self, name: str) -> "RocksStore":
        """Raises KeyError for a table that the cluster was not opened with."""
        return self._stores[name]

    def close(self) -> None:
        """Waits for a write that is under way; reads that are under way finish. Closing twice is fine."""
        with self.lock:
            self._is_closed = True
            self._close_files()

    def files(self) -> Files:
        """The files that a call works on."""
        files = self._files
        if self._is_closed:
            raise UnavailableError(f"{self.path}: the cluster is closed")
        if files is None:
            raise UnavailableError(f"{self.path}: not open: {self._failure or 'its files could not be read'}")
        return files

    def refreshed(self, looks: int) -> Files:
        """`files`, with all that the owner had written when `looks` was read. A reader that is not the owner holds the
        lock.

        Reads that waited for the lock share one look at the owner's files, which takes longer than a read.
        """
        if self._follower is not None and not self._is_closed and (self._files is None or self.looks == looks):
            self.looks += 1
            self._files = None
            self._files = self._follower.catch_up()
        return self.files()

    def writable(self) -> Files:
        """`files`, for a write. Opens the files again after a failed write: until then RocksDB takes no other."""
        if self.is_secondary:
            raise RefusedError(f"{self.path}: opened for reading only: another process owns it")
        if self._failure is not None:
            with self.lock:
                self._reopen()
        return self.files()

    def write(self, files: Files, name: str, batch: WriteBatch, *, durable: bool) -> None:
        """Writes to the table of that name. Under the lock."""
        if files is not self._files:
            raise UnavailableError(f"{self.path}: closed or opened again while a write was prepared")
        files.refuse_another()
        try:
            for each, runs in self._merging.wrote(name, batch.size_in_bytes()).items():
                rocksdb_files.merge_from(self.path, files.families[each], runs)
            rocksdb_files.write(files, batch, DURABLE if durable else UNSYNCED)
        except UnavailableError as error:
            self._failure = str(error)
            raise

    def _open_files(self) -> Files:
        if self._follower is not None:
            return self._follower.catch_up()
        return rocksdb_files.open_owner(self.path, self._layout)

    def _reopen(self) -> None:
        """Opens the files again after a failed write. While the disk is full, the old ones still serve reads."""
        if self._failure is None or self._is_closed:
            return
        try:
            has_room = shutil.disk_usage(self.path).free >= rocksdb_files.REOPEN_FREE_BYTES
        except OSError as error:  # its disk is away
            raise UnavailableError(f"{self.path}: {error.strerror}; before: {self._failure}") from error
        if self._files is not None and not has_room:
            raise UnavailableError(self._failure)
        self._close_files()
        self._merging = Merging()
        self._files = self._open_files()
        self._failure = None

    def _close_files(self) -> None:
        files, self._files = self._files, None
        if self._follower is not None:
            self._follower.close()
        elif files is not None:
            files.close()


class RocksStore:
    """One table of a cluster: a `WideColumnStore`."""

    def __init__(self, cluster: RocksCluster, table: Table) -> None:
        self._cluster = cluster
        self._table = table
        self._row_end = table.row_bytes
        self._column_end = table.row_bytes + table.column_bytes
        self._past_row = b"\xff" * (table.column_bytes + 1)
        self._dead_runs = DeadRuns(self._column_end, self._past_row, _PAST_COLUMN)
        self._reading: AbstractContextManager[object] = cluster.lock if cluster.is_secondary else nullcontext()

    def apply(self, batch: Sequence[Mutation]) -> None:
        check_batch(self._table, batch)
        files = self._cluster.writable()
        from feedstore.widecolumn.arrays import gathered  # noqa: PLC0415 - it needs numpy, which a reader does not load

        puts, markers = gathered(self._table, batch)
        encoded = WriteBatch(raw_mode=True)
        encoded.set_default_column_family(files.handles[self._table.name])
        made = chain(_keys(puts, _PUT), _keys(markers, _MARKER))
        deque(map(encoded.put, made, repeat(b"")), maxlen=0)  # the fastest loop
        with self._cluster.lock:
            self._dead_runs.put(puts)
            self._dead_runs.mark(markers)
            if len(encoded):
                self._cluster.write(files, self._table.name, encoded, durable=True)
            for row in self._much_deleted(markers):
                self._learn(files, row)

    def read(
        self,
        row: bytes,
        after: bytes | None,
        limit: int,
        deadline_s: float | None = None,  # noqa: ARG002  # files of its own
    ) -> list[bytes]:
        check_read(self._table, row, after, limit)
        position = row if after is None else row + after + _PAST_COLUMN
        looks = self._cluster.looks
        with self._reading:
            files = self._cluster.refreshed(looks)
            family = files.families[self._table.name]
            runs = self._dead_runs.rows.get(row)
            start = step_over(runs, position) if runs else position
            if not runs or start != position:
                keys = self._take(family, start, limit)
                columns = self._plain(row, keys)
                # Most pages end here: each key is the put of another column, there are enough of them or the row
                # ends, and no put has landed in a stretch that was stepped over.
                if (
                    columns is not None
                    and (len(columns) == limit or len(keys) < limit or not keys[-1].startswith(row))
                    and self._dead_runs.rows.get(row) is runs
                ):
                    return columns
            return self._read_resolving(files, row, position, limit)

    def cells(self, row: bytes) -> list[Cell]:
        return self.cells_of([row])[0]

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        for row in rows:
            check_row(self._table, row)
        looks = self._cluster.looks
        with self._reading:
            family = self._cluster.refreshed(looks).families[self._table.name]
            keys = [self._deciding_of(family, row) for row in rows]
        return [[Cell(v.column, v.timestamp) for v in map(self._decode, each) if not v.is_marker] for each in keys]

    def _deciding_of(self, family: Rdict, row: bytes) -> list[bytes]:
        """The first key of each column of a row. If a column has many versions, the others are stepped over: a note has
        thousands between two sweeps.
        """
        deciding: list[bytes] = []
        position, count = row, _FIRST_CELLS_KEYS
        while True:
            keys = self._within(row, self._take(family, position, count))
            found = self._deciding(keys)
            deciding += found
            if len(keys) < count:
                return deciding
            position = keys[-1][: self._column_end] + _PAST_COLUMN
            # If each key was another column, there was nothing to step over: more is read at once.
            count = min(4 * count, _SLOW_CHUNK_KEYS_MAX) if len(found) == count else _FIRST_CELLS_KEYS

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        check_row(self._table, row)
        with self._reading:
            family = self._cluster.files().families[self._table.name]
            keys = self._whole_row(family, row, _SLOW_CHUNK_KEYS_MAX)
        return masks([*map(self._decode, keys)], columns)

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        check_range(self._table, start, stop)
        looks = self._cluster.looks
        with self._reading:
            self._cluster.refreshed(looks)
        return self._scan(start, stop)

    def sweep(self, now_ms: int) -> Sweep:
        self._cluster.writable()
        rows = trimmed = masked = markers = 0
        for row, keys in self._rows(b""):
            rows += 1
            columns = self._plain(row, keys)
            if columns is not None and (self._table.keep is None or len(columns) <= self._table.keep):
                continue
            drop = self._garbage(keys, now_ms)
            if any(drop):
                drop = self._sweep_row(row, keys, drop, now_ms)
                trimmed += len(drop.trimmed)
                masked += len(drop.masked)
                markers += len(drop.markers)
        self._compact()
        return Sweep(rows, trimmed, masked, markers)

    def _read_resolving(self, files: Files, row: bytes, position: bytes, limit: int) -> list[bytes]:
        """Reads a page that meets markers or older versions, on one view of the row."""
        family = files.families[self._table.name]
        runs = self._dead_runs.rows.get(row)
        if not runs:
            # Most of these pages are in the next few keys; one look at them needs no snapshot.
            keys = self._take(family, position, _RESOLVED_AT_ONCE * limit)
            in_row = self._within(row, keys)
            columns = self._visible(in_row)
            if len(in_row) < _RESOLVED_AT_ONCE * limit or len(columns) >= limit:
                if runs is None and len(in_row) - len(columns) >= self._dead_runs.keys_min:
                    self._learn_if_idle(files, row)
                return columns[:limit]
        view = self._view(family)
        try:
            if self._dead_runs.rows.get(row) is not runs:  # a put has narrowed them: they may be ahead of the view
                runs = None
            columns = []
            chunk, walked = limit, 0
            while len(columns) < limit:
                stepped = step_over(runs or (), position)
                if stepped != position:
                    position, chunk = stepped, limit
                keys = self._take(view, position, chunk)
                in_row = self._within(row, keys)
                columns += self._visible(in_row)
                walked += len(in_row)
                if len(in_row) < chunk:
                    break
                position = keys[-1][: self._column_end] + _PAST_COLUMN
                chunk = min(2 * chunk, _SLOW_CHUNK_KEYS_MAX)
        finally:
            del view
        if runs is None and walked - len(columns) >= self._dead_runs.keys_min:
            self._learn_if_idle(files, row)
        return columns[:limit]

    def _scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, list[bytes]]]:
        for row, keys in self._rows(start, stop):
            columns = self._plain(row, keys)
            if columns is None:
                columns = self._visible(keys)
            if columns:
                yield row, columns

    def _rows(self, start: bytes, stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        """Every row from `start` to before `stop` with all its keys. Nothing native stays open between two steps.

        Many ranges may be read side by side, so a bounded one holds only a few keys, and fewer at its start.
        """
        position = start if len(start) <= self._row_end else start[: self._row_end] + self._past_row
        most = _CHUNK_KEYS if stop is None else _RANGE_CHUNK_KEYS
        usual = count = min(most, _FIRST_CHUNK_KEYS)
        while True:
            with self._reading:
                family = self._cluster.files().families[self._table.name]
                keys = self._take(family, position, count, ONCE)
            end = len(keys)
            if end == count:  # the last row may continue
                position = keys[-1][: self._row_end]
                end = bisect_left(keys, position)
                if end == 0:
                    count *= 2
                    continue
            first = 0
            while first < end:
                row = keys[first][: self._row_end]
                if stop is not None and row >= stop:
                    return
                following = bisect_left(keys, row + self._past_row, first, end)
                yield row, keys[first:following]
                first = following
            if len(keys) < count:
                return
            usual = count = min(most, 4 * usual)

    def _sweep_row(self, row: bytes, seen: list[bytes], drop: Garbage, now_ms: int) -> Garbage:
        """Drops the garbage of a row; returns what was dropped. The row is read again under the lock, because a put may
        have been written meanwhile under the very key that was to be dropped.
        """
        with self._cluster.lock:
            files = self._cluster.files()
            keys = self._whole_row(files.families[self._table.name], row, len(seen) + 64)
            if keys != seen:
                drop = self._garbage(keys, now_ms)
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(files.handles[self._table.name])
            for version in chain(*drop):
                batch.delete(row + version.column + _tail(version.timestamp, is_marker=version.is_marker))
            if len(batch):
                self._cluster.write(files, self._table.name, batch, durable=False)
        return drop

    def _much_deleted(self, markers: DeleteCells) -> list[bytes]:
        """Rows that may have a dead run now."""
        if len(markers.rows) < self._dead_runs.keys_min:
            return []
        counted = Counter(lines(markers.rows))
        return [row for row, count in counted.items() if count >= self._dead_runs.keys_min][:_LEARN_ROWS_MAX]

    def _compact(self) -> None:
        files = self._cluster.files()
        files.refuse_another()
        rocksdb_files.compact(self._cluster.path, files.families[self._table.name])
        with self._cluster.lock:
            self._dead_runs.clear()

    def _learn_if_idle(self, files: Files, row: bytes) -> None:
        """A reader must not wait for writers: if one is busy, the next reader tries."""
        if not self._cluster.is_secondary and self._cluster.lock.acquire(blocking=False):
            try:
                self._learn(files, row)
            finally:
                self._cluster.lock.release()

    def _learn(self, files: Files, row: bytes) -> None:
        family = files.families[self._table.name]
        count = _LEARN_KEYS_FIRST
        # Most rows are short. A longer one is read again from its start.
        while len(keys := self._within(row, self._take(family, row, count, ONCE))) == count < _LEARN_KEYS_MAX:
            count = min(8 * count, _LEARN_KEYS_MAX)
        self._dead_runs.learn(row, keys, _MARKER, whole=len(keys) < count)

    def _view(self, family: Rdict) -> Rdict | Snapshot:
        """A view that does not change between two seeks. A cluster of another owner changes only when it catches up,
        which takes the lock that a read holds.
        """
        return family if self._cluster.is_secondary else rocksdb_files.snapshot(self._cluster.path, family)

    def _take(
        self, view: Rdict | Snapshot, position: bytes, count: int, reading: ReadOptions | None = None
    ) -> list[bytes]:
        return rocksdb_files.take(self._cluster.path, view, position, count, reading)

    def _whole_row(self, family: Rdict, row: bytes, expected: int) -> list[bytes]:
        """Every key of the row, in one look: with a larger `count` until the row ends before it."""
        count = expected
        while len(keys := self._within(row, self._take(family, row, count))) == count:
            count *= 4
        return keys

    def _within(self, row: bytes, keys: list[bytes]) -> list[bytes]:
        if not keys or keys[-1].startswith(row):
            return keys
        return keys[: bisect_left(keys, row + self._past_row)]

    def _plain(self, row: bytes, keys: list[bytes]) -> list[bytes] | None:
        """The columns of the row's keys if each is the put of a column of its own."""
        keys = self._within(row, keys)
        joined = b"".join(keys)
        if _MARKER in joined[self._column_end + 8 :: self._column_end + 9]:
            return None
        columns = self._columns(keys, joined)
        return columns if len({*columns}) == len(columns) else None

    def _columns(self, keys: list[bytes], joined: bytes) -> list[bytes]:
        """The column of each key. The columns of a page are cut out together, which takes a third of the time."""
        first, past = self._row_end, self._column_end
        if len(keys) <= _CUT_TOGETHER_MAX:
            return list(_cutter(first, past - first, len(keys))(joined))
        return [key[first:past] for key in keys]

    def _deciding(self, keys: list[bytes]) -> list[bytes]:
        """The first key of each column."""
        first, past = self._row_end, self._column_end
        deciding = {key[first:past]: key for key in reversed(keys)}
        return [*reversed(deciding.values())]

    def _visible(self, keys: list[bytes]) -> list[bytes]:
        """The columns that the keys show: those of which the first key is a put."""
        first, past = self._row_end, self._column_end
        visible = []
        before = b""
        for key in keys:
            column = key[first:past]
            if column != before:
                before = column
                if key[-1] == _PUT:
                    visible.append(column)
        return visible

    def _decode(self, key: bytes) -> Version:
        reversed_timestamp, kind = _TAIL.unpack_from(key, self._column_end)
        return Version(key[self._row_end : self._column_end], _REVERSED_FROM - reversed_timestamp, kind == _MARKER)

    def _garbage(self, keys: list[bytes], now_ms: int) -> Garbage:
        return garbage([*map(self._decode, keys)], self._table.keep, now_ms, self._table.purge_window_ms)


def _keys(cells: PutCells | DeleteCells, kind: int) -> list[bytes]:
    """The key of each cell, roughly in order: RocksDB enters a key next to the previous one in less than half of the
    time (`python -m bench --only cells`).
    """
    import numpy as np  # noqa: PLC0415 - a reader does not load it

    rows, columns, timestamps = cells
    row_of, column_of = (f"V{each.shape[1]}" for each in (rows, columns))
    made = np.empty(len(rows), [("row", row_of), ("column", column_of), ("reversed", ">i8"), ("kind", "u1")])
    made["row"] = rows.view(row_of).ravel()
    made["column"] = columns.view(column_of).ravel()
    made["reversed"] = _REVERSED_FROM - timestamps
    made["kind"] = kind
    # Sorted by their first 8 bytes only: roughly is enough, and numbers sort in a third of the time of whole keys.
    beginnings = np.ndarray(len(rows), ">u8", made, strides=made.strides)
    in_order = made[np.argsort(beginnings, kind="stable")]
    found: list[bytes] = in_order.view(f"V{made.dtype.itemsize}").tolist()
    return found


def _tail(timestamp: int, *, is_marker: bool) -> bytes:
    return _TAIL.pack(_REVERSED_FROM - timestamp, _MARKER if is_marker else _PUT)


@lru_cache(maxsize=2 * _CUT_TOGETHER_MAX)
def _cutter(row_bytes: int, column_bytes: int, count: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts the columns out of `count` consecutive keys."""
    return struct.Struct(f"{row_bytes}x{column_bytes}s{_TAIL.size}x" * count).unpack
