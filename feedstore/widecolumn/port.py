"""The port: `(row, column, timestamp)`, blind writes that commute, and reads of what is visible.

The model is HBase's, without values (everything is in the key) and with one kind of delete marker, DeleteColumn. The
docstrings of `WideColumnStore` are the contract of an adapter; `tests/widecolumn` runs it against every adapter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from feedstore.errors import MisconfiguredError, NeverError, NotNowError, PortError

if TYPE_CHECKING:  # a process that only reads does not load numpy
    import numpy as np
    from numpy.typing import NDArray

MAX_LIMIT = 10_000
"""The most columns that one `read` may ask for."""


Access = Literal["write", "read"]
"""How a cluster is opened: `write` owns it, and reads as well; `read` reads while another process writes."""


class StoreError(PortError):
    """A store failed. Subclasses say what the caller should do."""


class UnavailableError(StoreError, NotNowError):
    """Not now. A writer repeats the whole call later with the same timestamps; a reader asks another replica."""


class WillNotError(UnavailableError):
    """The store answered that it will not do this as things are: the table may be missing, or disabled."""


class DamagedError(UnavailableError, MisconfiguredError):
    """A part of what the store acknowledged is gone or unreadable: a file is missing, or a table was emptied.

    It is unavailable, so that a reader asks another replica and a writer keeps its messages. But it does not end by
    itself: the cluster must be created again, or its files brought back.
    """


class UnsafeTableError(UnavailableError, MisconfiguredError):
    """The definition of a table would break the rules: nothing is written until an operator has changed it.

    Unavailable, and not refused: the mutations are good, and a table with the right definition will take them.
    """


class RefusedError(StoreError, NeverError):
    """Never: the same call will be refused again (the store cannot hold a row or column of it). Do not retry."""


class Put(NamedTuple):
    """Writes one cell for every pair of a row and a column, at the row's timestamp.

    The cross product is what fanout is: one pin into a thousand rows, or a thousand pins into one.

    rows: (row key, timestamp in ms). columns: qualifiers.
    """

    rows: Sequence[tuple[bytes, int]]
    columns: Sequence[bytes]


class DeleteColumns(NamedTuple):
    """Writes a delete marker for each pair of a row and a column: it masks all versions up to the row's timestamp."""

    rows: Sequence[tuple[bytes, int]]
    columns: Sequence[bytes]


class PutCells(NamedTuple):
    """Writes single cells, given as three arrays of one length: cell i is in `rows[i]` and `columns[i]` at
    `timestamps[i]`. For many rows with few columns each, where objects for each cell would cost more than the cell.

    All arrays are C-contiguous and in the byte order of this machine. The cells may come in any order; a cell that is
    given twice is written once. The cells of one row at one timestamp are written together or not at all. The arrays
    must not change before `apply` has returned.

    rows: uint8, (cells, Table.row_bytes). columns: uint8, (cells, Table.column_bytes). timestamps: int64, (cells,), ms.
    """

    rows: "NDArray[np.uint8]"
    columns: "NDArray[np.uint8]"
    timestamps: "NDArray[np.int64]"


class DeleteCells(NamedTuple):
    """Writes single delete markers, given as `PutCells` gives cells: each masks its column up to its timestamp."""

    rows: "NDArray[np.uint8]"
    columns: "NDArray[np.uint8]"
    timestamps: "NDArray[np.int64]"


def lines(keys: "NDArray[np.uint8]") -> list[bytes]:
    """The rows or columns in such an array, each as one `bytes`."""
    found: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    return found


Mutation = Put | DeleteColumns | PutCells | DeleteCells


class Cell(NamedTuple):
    """The visible version of a column."""

    column: bytes
    timestamp: int


@dataclass(frozen=True)
class Trim:
    """What a trim leaves of a row: its first `keep` visible columns.

    cap: how many of them a reader may ask for. slack: how many more are kept: a row that loses some still has `cap`.
    """

    cap: int
    slack: int

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(f"cap: expected at least 1, got {self.cap}")
        if self.slack < 0:
            raise ValueError(f"slack: expected at least 0, got {self.slack}")

    @property
    def keep(self) -> int:
        return self.cap + self.slack


@dataclass(frozen=True)
class Table:
    """A table: its cells, and which of them it may forget.

    name: names it within its cluster.
    row_bytes, column_bytes: the length of all its row keys, and of all its columns, 1..64 each.
    trim: how its rows are trimmed; None: they may be of any length.
    purge_window_ms: a delete marker may be dropped once its timestamp is more than this far in the past (HBase's
        `hbase.hstore.time.to.purge.deletes`).
    """

    name: str
    row_bytes: int
    column_bytes: int
    trim: Trim | None
    purge_window_ms: int

    def __post_init__(self) -> None:
        for field in ("row_bytes", "column_bytes"):
            if not 1 <= getattr(self, field) <= 64:
                raise ValueError(f"{field}: expected 1 to 64, got {getattr(self, field)}")
        if self.purge_window_ms < 0:
            raise ValueError(f"purge_window_ms: expected at least 0, got {self.purge_window_ms}")

    @property
    def keep(self) -> int | None:
        """How many visible columns of a row a trim keeps, the first ones in column order; None: all."""
        return None if self.trim is None else self.trim.keep


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep in numbers: rows seen, then cells dropped by reason."""

    rows: int = 0
    trimmed: int = 0
    masked: int = 0
    markers: int = 0


class WideColumnStore(Protocol):
    """One table of one cluster. Thread-safe: any number of threads may call any method at once.

    Row keys and columns have the lengths that `Table` gives and sort as unsigned bytes; timestamps are ms, 1..2^63-2.
    Anything else raises RefusedError, before anything was written.

    What is visible: the version of a column is its put with the largest timestamp, if that is *strictly larger* than
    every delete marker's on that column. At the same timestamp the marker wins.
    """

    def apply(self, batch: Sequence[Mutation]) -> None:
        """Writes a batch; durable when it returns.

        Idempotent and commutative: the visible state depends on the set of mutations that were ever applied, not on
        their order or number, as long as no marker was dropped between them (Table.purge_window_ms). What one
        mutation writes in one row at one timestamp is atomic; a batch is not.

        Raises:
            UnavailableError: an unknown subset was applied; try the whole batch again with the same timestamps.
            RefusedError: the batch holds something that this store can never take; nothing was applied.
        """

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        """The visible columns of a row that sort strictly after `after` (None: from the first), in order, at most
        `limit`.

        One round trip, and its cost does not depend on how many visible columns are before `after`. Removed columns
        there may cost as much as if they were read, until they are compacted away. A row that was never written is an
        empty row. `limit` is 1..MAX_LIMIT, else RefusedError.

        deadline_s: a time of `time.monotonic`. A store on servers gives up when it passes; a store in files ignores it.

        Raises UnavailableError: ask another replica.
        """

    def cells(self, row: bytes) -> list[Cell]:
        """Every visible cell of a row with its timestamp, in column order. For small rows (bookkeeping) and tests."""

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        """`cells` of several rows, in their order. Each row is as it was at some moment after the call. A reader of
        files that another process writes looks for what is new only once, not for each row.
        """

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        """Tells why columns of a row are not visible. Returns those that have a delete marker and are not visible, in
        column order, each with the largest timestamp of its markers.

        For diagnosis: it costs as much as reading the whole row with its markers. Expired markers that were dropped are
        not found. The row is as it was when a row of this table was last read through this object, or later.

        Raises UnavailableError.
        """

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        """Streams rows with `start` <= key < `stop` (None: to the end) in key order, each with its visible columns in
        order.

        Rows with nothing visible are left out. Memory does not depend on the number of rows. Each row is as it was at
        some moment during the scan; different rows may show different moments.

        Raises UnavailableError: at any step; start again after the last row that arrived.
        """

    def sweep(self, now_ms: int) -> Sweep | None:
        """Trims every row to the first `Table.keep` visible columns, drops masked versions and expired delete markers.

        No visible column among the first `keep` of its row is lost, whatever is applied meanwhile; a marker that is
        not expired stays.

        Returns None if the store does this by itself, at times of its own: then a sweep does nothing. HBase trims when
        it compacts all files of a region, and counts only what is in those files: markers in memory do not count yet.
        A column that comes among the first `keep` only because of such markers may be lost. So a caller that masks more
        than `slack` columns puts the first `cap` again, after the markers have been applied (rule 9).
        """


class Cluster(Protocol):
    """One independent cluster: its tables, by name. Thread-safe."""

    def table(self, name: str) -> WideColumnStore:
        """One of the tables that the cluster was opened with."""

    def close(self) -> None:
        """Releases the files and connections that its tables share. Closing twice is fine. After it, every call that
        reads or writes something raises UnavailableError, and so does a scan at its next step.
        """
