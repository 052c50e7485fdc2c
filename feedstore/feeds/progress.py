"""How far a cluster is: its watermark, kept in the cluster itself in a table of its own (rule 10).

Three kinds of rows, named by their first byte:
- ticks: one cell for each partition of feed.deliveries and each partition of feed.actions that ticks come through;
  its timestamp is the settled time that has come through.
- holds: what was put off. A hold (since, until) keeps the watermark at or below `since` until the ticks have passed
  `until`.
- parts: which parts of a follower's purge have landed (a purge in several parts is finished once, after the last).
"""

import struct
from collections.abc import Callable, Iterable, Sequence

from feedstore.widecolumn import Cell, DeleteColumns, Put, Table, WideColumnStore

PROGRESS = "progress"
"""The name of the table."""

_ROW = struct.Struct(">cQ").pack
_TICK = struct.Struct(">IIII")
_HOLD = struct.Struct(">QQ")
_PART = struct.Struct(">QII")
_TICKS = _ROW(b"t", 0)
_HOLDS = _ROW(b"h", 0)
_MAX_HOLDS_DROPPED = 10_000


def progress_table(purge_window_ms: int) -> Table:
    return Table(PROGRESS, 9, 16, trim=None, purge_window_ms=purge_window_ms)


def settled_through(ticks: Sequence[Cell]) -> int | None:
    """The settled time that has come through every partition; None while one of them has not been heard of.

    Pure. Each cell is (partition, partitions, source, sources) at its settled time; where the number of partitions or
    sources grew, the largest counts.
    """
    heard: dict[tuple[int, ...], int] = {_TICK.unpack(cell.column): cell.timestamp for cell in ticks}
    partitions = max((key[1] for key in heard), default=0)
    sources = max((key[3] for key in heard), default=0)
    wanted = [(p, partitions, s, sources) for p in range(partitions) for s in range(sources)]
    times: list[int] = [heard[key] for key in wanted if key in heard]
    return min(times) if times and len(times) == len(wanted) else None


def watermark(ticks: Sequence[Cell], holds: Sequence[Cell]) -> int | None:
    """The store time such that everything committed before it has landed; None where nothing is known. Pure."""
    settled = settled_through(ticks)
    if settled is None:
        return None
    return min([settled, *(since for _, since in _standing(settled, holds))])


def _standing(settled: int, holds: Sequence[Cell]) -> set[tuple[int, int]]:
    """The holds (until, since) that still keep the watermark back.

    A hold waits until everything before its `until` has landed. Where another hold says that something before that has
    not, because it was put off in its turn, the first one waits as long as the other.
    """
    standing: set[tuple[int, int]] = set()
    least = settled + 1
    for until, since in sorted((_HOLD.unpack(cell.column) for cell in holds), reverse=True):
        if until >= min(settled, least):
            standing.add((until, since))
            least = min(least, since)
    return standing


class Progress:
    """Reads and writes a cluster's progress table."""

    def __init__(self, store: WideColumnStore) -> None:
        self._store = store

    def watermark(self) -> int | None:
        """The cluster's watermark; None where nothing is known of it yet. Raises UnavailableError."""
        # The holds are read after the ticks: a hold is written before a tick that could pass it.
        ticks = self._store.cells(_TICKS)
        return watermark(ticks, self._store.cells(_HOLDS))

    def advance(self, settled_ms: int, *, partition: int, partitions: int, source: int, sources: int) -> None:
        """Notes that a settled time has come through one partition, and drops the holds that all ticks have passed."""
        column = _TICK.pack(partition, partitions, source, sources)
        self._store.apply([Put([(_TICKS, settled_ms)], [column])])
        settled = settled_through(self._store.cells(_TICKS))
        if settled is None:
            return
        holds = self._store.cells(_HOLDS)
        standing = _standing(settled, holds)
        passed = [cell for cell in holds if _HOLD.unpack(cell.column) not in standing]
        self._drop(_HOLDS, passed[:_MAX_HOLDS_DROPPED])

    def hold(self, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds (since_ms, until_ms): durable before the message that causes them is committed."""
        self._store.apply([Put([(_HOLDS, until)], [_HOLD.pack(until, since)]) for since, until in holds])

    def part_landed(self, follower: int, ts: int, part: int, parts: int) -> bool:
        """Notes that one part of a follower's purge at `ts` has landed; True where that makes all of them.

        Two writers that land the last two parts at once may both be told so: what follows is idempotent.
        """
        row = _ROW(b"p", follower)
        self._store.apply([Put([(row, ts)], [_PART.pack(ts, parts, part)])])
        landed = self._store.read(row, _PART.pack(ts, parts, 0), parts)
        return landed == [_PART.pack(ts, parts, number) for number in range(1, parts + 1)]

    def forget_parts(self, before_ms: int) -> None:
        """Drops the notes on parts of purges that are older than a time, when none of them can arrive any more."""
        for row, cells in self._store.scan(_ROW(b"p", 0), _ROW(b"q", 0)):
            old = [Cell(cell, ts) for cell in cells if (ts := _PART.unpack(cell)[0]) < before_ms]
            self._drop(row, old)

    def _drop(self, row: bytes, cells: Sequence[Cell]) -> None:
        self._store.apply([DeleteColumns([(row, cell.timestamp)], [cell.column]) for cell in cells])


class Watermark:
    """A cluster's watermark as a reader needs it: asked for once a second at most, never for each page."""

    def __init__(self, progress: Progress, clock: Callable[[], int], every_ms: int = 1_000) -> None:
        self._progress = progress
        self._clock = clock
        self._every_ms = every_ms
        self._asked_ms: int | None = None
        self._known: int | None = None

    def behind_ms(self) -> int | None:
        """How far the cluster may be behind the clock; None where its watermark is unknown. Raises
        UnavailableError.
        """
        now = self._clock()
        if self._asked_ms is None or not 0 <= now - self._asked_ms < self._every_ms:
            self._known = self._progress.watermark()
            self._asked_ms = now
        return None if self._known is None else max(0, now - self._known)
