"""The tables of catalogs in a cluster, in its namespace.

    catalogs                              the deltas of all catalogs, and a row for each with its state
    cat.<name>.<as_of>-<unique>.blocks    the records of one generation

In `catalogs`, the row of an update is the catalog's name, a zero byte and the key. Its timestamp is `rule.stamp`, so
HBase itself keeps the newest update, even of ties, in whatever order updates arrive, and however many processes write
them. The row whose key is the name alone has the state: the generations, and up to when the updates are complete. It is
in the same table as the updates, so that a table that was emptied or put back does not claim updates that it has lost.

A generation is in blocks (`blocks.py`). If an earlier version has loaded it, its table has no `.blocks` in its name,
and a row for each record, which begins with a byte of a hash of the key. The name shows this, not a field of the
catalog's row: earlier versions drop fields that they do not know.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple
from zlib import crc32

from feedstore.catalog import rule
from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase.blocks import (
    COUNT_ROW,
    BlockIndex,
    block_row,
    part_row,
    parts_of,
    rows,
    split_keys,
)
from feedstore.catalog.hbase.state import Made, StoredState
from feedstore.catalog.port import CatalogUnavailableError, Update
from feedstore.errors import MisconfiguredError
from feedstore.portions import chunks
from feedstore.widecolumn.hbase import HBaseCluster, Record, RecordTable, schema
from feedstore.widecolumn.port import StoreError, UnsafeTableError, WillNotError

CATALOGS: Final = "catalogs"

_IN_BLOCKS: Final = ".blocks"
_STATE = b"state"
_KNOWN = b"known/"
_ATTEMPTS_MAX: Final = 20
_GENERATION: Final = 1
"""The timestamp of all records of a generation: a record is written once, or the same is written again."""
_AHEAD_BYTES: Final = 8 << 20
"""How many bytes of a generation are read while its table is made."""
_READ_AT_ONCE: Final = 256
"""The most blocks that one request reads: 16 MiB, if they are as large as they may be."""

_INDEX_PARTS_AT_ONCE: Final = 16
_INDEXES: Final = 3
"""How many generations' indexes are held: of the current one, the next one, and the one before."""
_WALKED_AT_ONCE: Final = 10_000


class UnsafeCatalogError(CatalogUnavailableError, MisconfiguredError):
    """The table of the catalogs has settings that could lose updates. The message names them."""


class About(NamedTuple):
    """The content of a catalog's row. known_ms: of the delta."""

    state: StoredState
    known_ms: int


NOTHING: Final = About(StoredState(), 0)


class CatalogStorage:
    """The tables as one catalog uses them. Thread-safe. Every method may raise CatalogUnavailableError.

    clock: monotonic seconds, as deadlines are.
    """

    def __init__(self, cluster: HBaseCluster, catalog: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._catalog = catalog
        self._clock = clock
        self._lock = threading.Lock()
        self._is_prepared = False
        self._index_lock = threading.Lock()
        self._indexes: dict[str, BlockIndex] = {}
        self.row = CatalogRow(cluster, catalog)
        self.delta = DeltaRows(cluster.records(CATALOGS), catalog)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """A block that writes: first makes a missing table. Raises UnsafeCatalogError: it could lose updates."""
        with self._lock, failing():
            if not self._is_prepared:
                wanted = [schema.records_definition(CATALOGS)]
                schema.apply(self._cluster.administration, wanted)
                schema.refuse_unsafe(self._cluster.administration, wanted)
                self._is_prepared = True
        try:
            yield
        except CatalogUnavailableError:
            self._is_prepared = False  # somebody may have removed the table
            raise

    def named(self, as_of_ms: int, unique: str) -> str:
        """The name of the table of a load."""
        return f"cat.{self._catalog}.{as_of_ms}-{unique}{_IN_BLOCKS}"

    def remove(self, table: str) -> None:
        """Removes a table; does nothing if it is not there."""
        with failing():
            self._cluster.administration.drop(table)

    def load(self, table: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Makes the table of a generation, and writes its records; all are durable when this returns. What `records`
        raises is passed on.

        HBase takes half a second to make a table: some megabytes of records are read meanwhile.

        They go through the write-ahead log like any other write. Without it they would be silently lost if a server
        died before HBase flushes the table by itself: no gateway can flush it.
        """
        given = rows(records)
        ahead: deque[tuple[bytes, bytes]] = deque()
        size = 0
        with ThreadPoolExecutor(1, thread_name_prefix="catalog-table") as thread:  # its end waits, even after an error
            making = thread.submit(self._create, table)
            while not making.done() and size < _AHEAD_BYTES and (row := next(given, None)) is not None:
                ahead.append(row)
                size += len(row[1])
            making.result()
        waiting = (ahead.popleft() for _ in range(len(ahead)))
        with failing():
            self._cluster.records(table).put((row, Record(_GENERATION, value)) for row, value in chain(waiting, given))

    def _create(self, table: str) -> None:
        with failing():
            self._cluster.administration.create(schema.records_definition(table, split_keys()))

    def records(self, made: Made, keys: Sequence[bytes], deadline_s: float | None = None) -> list[bytes | None]:
        """The records of a generation, in the order of the keys; None: it has none."""
        if not made.table.endswith(_IN_BLOCKS):
            return self._values(made.table, [_row(key) for key in keys], deadline_s)
        index = self.index(made, deadline_s)
        numbers = index.numbers(keys)
        wanted = sorted({*numbers} - {-1})
        blocks: dict[int, Mapping[bytes, bytes]] = {-1: {}}
        for some in chunks(wanted, _READ_AT_ONCE):
            values = self._values(made.table, list(map(block_row, some)), deadline_s)
            blocks |= {number: index.block(number, value) for number, value in zip(some, values, strict=True)}
        return [blocks[number].get(key) for number, key in zip(numbers, keys, strict=True)]

    def open(self, made: Made) -> None:
        """Reads once, however long that takes, and holds what each fetch from a generation needs."""
        if made.table.endswith(_IN_BLOCKS):
            self.index(made)

    def index(self, made: Made, deadline_s: float | None = None) -> BlockIndex:
        """The index of a generation in blocks, which is read once and held. If several threads need it at the same
        time, as after a swap, they wait for the first of them, each until its own deadline.
        """
        found = self._indexes.get(made.table)
        if found is not None:
            return found
        # The first may have more time than this thread: a build or a swap has a minute.
        within_s = -1 if deadline_s is None else max(0.0, deadline_s - self._clock())
        if not self._index_lock.acquire(timeout=within_s):
            raise CatalogUnavailableError(f"{made.table}: its index is still being read, and the time is over")
        try:
            found = self._indexes.get(made.table)
            if found is None:
                found = self._indexes[made.table] = self._read_index(made, deadline_s)
                while len(self._indexes) > _INDEXES:
                    del self._indexes[next(iter(self._indexes))]
        finally:
            self._index_lock.release()
        return found

    def _read_index(self, made: Made, deadline_s: float | None) -> BlockIndex:
        numbers = range(_INDEX_PARTS_AT_ONCE)
        # Most generations have at most as many parts as one request asks for.
        count, *found = self._values(made.table, [COUNT_ROW, *map(part_row, numbers)], deadline_s)
        parts = parts_of(made.table, count)
        for first in range(_INDEX_PARTS_AT_ONCE, parts, _INDEX_PARTS_AT_ONCE):
            numbers = range(first, min(first + _INDEX_PARTS_AT_ONCE, parts))
            found += self._values(made.table, list(map(part_row, numbers)), deadline_s)
        return BlockIndex(made.table, found[:parts])

    def _values(self, table: str, rows: Sequence[bytes], deadline_s: float | None) -> list[bytes | None]:
        with failing():
            found = self._cluster.records(table).get(rows, deadline_s)
        return [None if each is None else each.value for each in found]

    def close(self) -> None:
        self._cluster.close()


class CatalogRow:
    """The row of a catalog: one cell with its state, and one for each source, whose timestamp is the time that the
    source has noted. As a timestamp it never goes back, whichever process writes it last.
    """

    def __init__(self, cluster: HBaseCluster, catalog: str) -> None:
        self._administration = cluster.administration
        self._records = cluster.records(CATALOGS)
        self._row = catalog.encode()

    def look(self, deadline_s: float | None = None) -> About:
        """The row, read at one moment."""
        cells = self._cells(deadline_s)
        state = states.decoded(cells[_STATE].value) if _STATE in cells else StoredState()
        noted = {_source(column): cell.timestamp for column, cell in cells.items() if column.startswith(_KNOWN)}
        return About(state, states.known_ms(noted))

    def change(self, step: Callable[[StoredState], StoredState]) -> StoredState:
        """Applies a step to the current state, repeating it if another process has changed the state meanwhile. Passes
        on what `step` raises.
        """
        for _ in range(_ATTEMPTS_MAX):
            cells = self._cells(None)
            expected = cells[_STATE].value if _STATE in cells else None
            before = StoredState() if expected is None else states.decoded(expected)
            after = step(before)
            if after == before:
                return before
            # The version is in the document as well, so that no document equals an earlier one. It is also the cell's
            # timestamp, which thus needs no clock: with the time of a server, a step could seem older than the one
            # before it, and be lost.
            after = states.next_version(after)
            with failing():
                if self._records.replace_cell(
                    self._row, _STATE, expected, Record(after.version, states.encoded(after))
                ):
                    return after
        raise CatalogUnavailableError("other processes change this catalog faster than this one")

    def note(self, known_ms: int, source: int, sources: int) -> None:
        with failing():
            self._records.put_cell(self._row, _KNOWN + b"%d/%d" % (sources, source), Record(known_ms, b""))

    def _cells(self, deadline_s: float | None) -> dict[bytes, Record]:
        with failing():
            try:
                return self._records.cells(self._row, deadline_s)
            except WillNotError as error:
                if not self._administration.exists(CATALOGS, deadline_s):
                    return {}  # nothing was loaded or noted yet
                if not self._administration.is_enabled(CATALOGS, deadline_s):
                    # A disabled table may be full, so this must not count as an empty one.
                    raise CatalogUnavailableError(
                        f"{error}: the table {CATALOGS!r} is not enabled: if a worker is making it, try again in some"
                        " seconds; if somebody disabled it, enable it"
                    ) from error
                return self._records.cells(self._row, deadline_s)  # the table was made meanwhile


class DeltaRows:
    """The updates of one catalog."""

    def __init__(self, records: RecordTable, catalog: str) -> None:
        self._records = records
        self._prefix = catalog.encode() + b"\0"
        self._end = catalog.encode() + b"\1"

    def get(self, keys: Sequence[bytes], deadline_s: float | None) -> list[rule.Held | None]:
        with failing():
            found = self._records.get([self._prefix + key for key in keys], deadline_s)
        return [None if each is None else rule.held(each.timestamp, each.value) for each in found]

    def put(self, updates: Iterable[Update]) -> None:
        """Enters updates; durable when it returns."""
        rows = sorted((self._prefix + each.key, Record(rule.stamp(each), each.record or b"")) for each in updates)
        with failing():
            self._records.put(rows)

    def remove(self, limit_ms: int) -> tuple[int, int]:
        """Walks all updates and removes those up to a time. Returns how many were removed, and how many are left.

        Each is removed by a marker, which masks its row up to that time and nothing later. So an update that arrives
        meanwhile stays, whether it is put before its row's marker or after it. Two kinds of old updates may be masked
        or visible unexpectedly: one that was put late, and one that is visible again because a compaction dropped its
        marker while the update was still in memory. Both are at or below the floor, and the rule ignores them.
        """
        last = 2 * limit_ms + 1
        removed = left = 0
        start = self._prefix
        with failing():
            while True:
                found = self._records.timestamps(start, self._end, _WALKED_AT_ONCE)
                old = [row for row, timestamp in found if timestamp <= last]
                self._records.mask(old, last)
                removed += len(old)
                left += len(found) - len(old)
                if len(found) < _WALKED_AT_ONCE:
                    return removed, left
                start = found[-1][0] + b"\0"


@contextmanager
def failing() -> Iterator[None]:
    """Turns the errors of the platform into those of the port."""
    try:
        yield
    except UnsafeTableError as error:
        raise UnsafeCatalogError(str(error)) from error
    except StoreError as error:
        raise CatalogUnavailableError(str(error)) from error


def _source(column: bytes) -> tuple[int, int]:
    sources, _, source = column.removeprefix(_KNOWN).partition(b"/")
    return int(sources), int(source)


def _row(key: bytes) -> bytes:
    return bytes((crc32(key) & 0xFF,)) + key
