"""How far a cluster is: its watermark, kept in the cluster itself in a table of its own (rule 10).

Eight kinds of rows, named by their first byte:
- ticks: one cell for each partition of feed.deliveries and each partition of feed.actions that ticks come through;
  its timestamp is the settled time that has come through.
- put off: a hold (since, until) keeps the watermark at or below `since` until the ticks have passed `until`. What is
  parked (since, id) does so until it is lifted. Both stand in one row, parked ones behind the holds, ordered by
  `since`: one becomes the other now and then, and a look at the row sees one of them at least.
- parts: which parts of a follower's purge have landed (a purge in several parts is finished once, after the last).
- sent back: which actions were sent back to the expander because deliveries of them came too late, and a time: what was
  read before it needs no sending back any more.
- made: when the cluster was made anew, if it was.
- name: the name of the cluster.
- applied: how far the messages of each partition of a topic are in this cluster, contiguously. A group may commit only
  what is noted here: a cluster that was put back from a copy then says that it is older than its group.
- canary: the number that every canary of the feeds' table must have reached (`feedstore.feeds.canaries`).
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from feedstore.feeds.behind import behind_ms
from feedstore.widecolumn import Cell, DeleteColumns, Put, Table, WideColumnStore

PROGRESS = "progress"
"""The name of the table."""

_ROW = struct.Struct(">cQ").pack
_TICK = struct.Struct(">IIII")
_HOLD = struct.Struct(">QQ")
_PART = struct.Struct(">QII")
_SENT_BACK = struct.Struct(">QQ")
_TICKS = _ROW(b"t", 0)
_PUT_OFF = _ROW(b"h", 0)
_MADE = _ROW(b"m", 0)
_NAME = _ROW(b"n", 0)
_NAME_BYTES = 16
_APPLIED = _ROW(b"a", 0)
_POSITION = struct.Struct(">QQ")
_CANARY = _ROW(b"c", 0)
_FORGOTTEN = ((_ROW(b"p", 0), _ROW(b"q", 0)), (_ROW(b"s", 0), _ROW(b"t", 0)))
"""The rows of notes that are of use for a while only. Their columns begin with the time to which they belong."""
_PARKED = 2**63
"""What is parked has `_PARKED + since` where a hold has its `until`: no tick ever passes it."""
_MAX_HOLDS_DROPPED = 10_000
_READ_AT_ONCE = 1_000
_SENT_BACK_AT_ONCE = 16
"""More notes than one action has, but for those of others with the same half of an identity."""


class Through(NamedTuple):
    """What a settled time came through: one partition of feed.deliveries, and one of feed.actions before it."""

    partition: int
    partitions: int
    source: int
    sources: int


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


def watermark(ticks: Sequence[Cell], put_off: Sequence[bytes]) -> int | None:
    """The store time such that everything committed before it has landed; None where nothing is known. Pure.

    put_off: the columns of all holds, and at least the first of what is parked.
    """
    settled = settled_through(ticks)
    if settled is None:
        return None
    return min([settled, *(since for _, since in _standing(settled, put_off))])


def _standing(settled: int, put_off: Sequence[bytes]) -> set[tuple[int, int]]:
    """What was put off (until, since) and still keeps the watermark back.

    A hold waits until everything before its `until` has landed. Where another hold says that something before that has
    not, because it was put off in its turn, the first one waits as long as the other.
    """
    standing: set[tuple[int, int]] = set()
    least = settled + 1
    for until, since in sorted(map(_times, put_off), reverse=True):
        if until >= min(settled, least):
            standing.add((until, since))
            least = min(least, since)
    return standing


def _times(column: bytes) -> tuple[int, int]:
    """The (until, since) of a hold or of what is parked, which waits for no tick."""
    until, since = _HOLD.unpack(column)
    return until, since if until < _PARKED else until - _PARKED


class Progress:
    """Reads and writes a cluster's progress table."""

    def __init__(self, store: WideColumnStore) -> None:
        self._store = store
        self._made_ms: int | None = None

    def watermark(self) -> int | None:
        """The cluster's watermark; None where nothing is known of it yet. Raises UnavailableError."""
        # What was put off is read after the ticks: it is written before a tick that could pass it.
        ticks = self._store.cells(_TICKS)
        return watermark(ticks, self._put_off())

    def landed_before(self, settled_ms: int) -> int:
        """The watermark as it would be if a tick had come through everything: for who knows, since a look at the
        queue, that nothing from before a settled time is on its way. Raises UnavailableError.
        """
        return min([settled_ms, *(since for _, since in _standing(settled_ms, self._put_off()))])

    def advance(self, settled: Mapping[Through, int]) -> None:
        """Notes the settled times that have come through some partitions, and drops the holds that all ticks have
        passed.
        """
        self._store.apply([Put([(_TICKS, ms)], [_TICK.pack(*through)]) for through, ms in settled.items()])
        slowest = settled_through(self._store.cells(_TICKS))
        if slowest is None:
            return
        put_off = self._put_off()
        standing = _standing(slowest, put_off)
        passed = [Cell(column, times[0]) for column in put_off if (times := _times(column)) not in standing]
        self._drop(_PUT_OFF, passed[:_MAX_HOLDS_DROPPED])

    def hold(self, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds (since_ms, until_ms): durable before the message that causes them is committed."""
        self._store.apply([Put([(_PUT_OFF, until)], [_HOLD.pack(until, since)]) for since, until in holds])

    def park(self, parked: Iterable[tuple[int, int]]) -> None:
        """Notes what is parked (since_ms, id): durable before the message counts as done. Each keeps the watermark at
        or below `since_ms` until it is lifted.

        What was lifted stays lifted, however often it is noted: it has landed, and a copy of it does no more.
        """
        self._store.apply([Put([(_PUT_OFF, since)], [_parked(since, number)]) for since, number in parked])

    def lift(self, parked: Iterable[tuple[int, int]], now_ms: int) -> None:
        """What was parked (since_ms, id) has landed, or is held in another way. now_ms: the store's time; how long it
        is remembered counts from it.
        """
        lifted = list(parked)
        at_ms = max([now_ms, *(since for since, _ in lifted)])
        self._store.apply([DeleteColumns([(_PUT_OFF, at_ms)], [_parked(*each) for each in lifted])])

    def lift_all(self, now_ms: int) -> None:
        """All that was parked is gone: nothing of it lands any more, and something else holds the watermark instead.
        now_ms: as of `lift`.
        """
        after = _HOLD.pack(_PARKED, 0)
        while page := self._store.read(_PUT_OFF, after, _READ_AT_ONCE):
            after = page[-1]
            self.lift([(until - _PARKED, number) for until, number in map(_HOLD.unpack, page)], now_ms)

    def partitions(self) -> int:
        """The most partitions of a topic that ticks came through; 0 if none came."""
        return max((max(_TICK.unpack(cell.column)[1::2]) for cell in self._store.cells(_TICKS)), default=0)

    def refuse_unwritable(self) -> None:
        """Raises UnavailableError where nothing can be put off now. Changes nothing."""
        self._store.apply([DeleteColumns([(_PUT_OFF, 1)], [_HOLD.pack(0, 0)])])

    def part_landed(self, follower: int, ts: int, part: int, parts: int) -> bool:
        """Notes that one part of a follower's purge at `ts` has landed; True where that makes all of them.

        Two writers that land the last two parts at once may both be told so: what follows is idempotent.
        """
        row = _ROW(b"p", follower)
        self._store.apply([Put([(row, ts)], [_PART.pack(ts, parts, part)])])
        landed = self._store.read(row, _PART.pack(ts, parts, 0), parts)
        return landed == [_PART.pack(ts, parts, number) for number in range(1, parts + 1)]

    def sent_back_after(self, identity: bytes, read_ms: int) -> bool:
        """Whether it is noted that an action was sent back to the expander, at a time later than `read_ms`. identity:
        16 bytes that name the action.
        """
        row, rest = _sent_back(identity)
        noted = self._store.read(row, _SENT_BACK.pack(read_ms, 2**64 - 1), _SENT_BACK_AT_ONCE)
        return any(_SENT_BACK.unpack(column)[1] == rest for column in noted)

    def note_sent_back(self, identities: Iterable[bytes], before_ms: int) -> None:
        """Notes that actions were sent back to the expander: what was read of them before a time is of no use any more.

        Durable after the tasks, and after the holds that wait for them: whoever finds a note does neither.
        """
        rows = [_sent_back(identity) for identity in identities]
        self._store.apply([Put([(row, before_ms)], [_SENT_BACK.pack(before_ms, rest)]) for row, rest in rows])

    def forget(self, before_ms: int) -> None:
        """Drops the notes on parts of purges, and on what was sent back, that are older than a time: when no part, and
        nothing that is late, can arrive any more.
        """
        for start, stop in _FORGOTTEN:
            for row, columns in self._store.scan(start, stop):
                times = [(column, int.from_bytes(column[:8])) for column in columns]
                self._drop(row, [Cell(column, ms) for column, ms in times if ms < before_ms])

    def made(self, at_ms: int) -> None:
        """Notes that the cluster was made anew: what was read before a time may lack markers that are gone with the old
        one, and is late (rule 8).
        """
        self._store.apply([Put([(_MADE, at_ms)], [_HOLD.pack(at_ms, 0)])])

    def made_ms(self) -> int:
        """When the cluster was made anew; 0 if it is as it was first made. Looked up once: nobody writes a cluster
        while it is made anew.
        """
        if self._made_ms is None:
            self._made_ms = max((cell.timestamp for cell in self._store.cells(_MADE)), default=0)
        return self._made_ms

    def began(self) -> bool:
        """Whether any tick has come through, or the cluster was made anew: it is no new one."""
        return bool(self._store.cells(_TICKS) or self._store.cells(_MADE))

    def name(self) -> str | None:
        """The name that the cluster was first written under; None if it is new, or an earlier version noted no name."""
        parts = sorted((cell.timestamp, cell.column) for cell in self._store.cells(_NAME))
        return b"".join(column for _, column in parts).rstrip(b"\0").decode() or None

    def note_name(self, name: str) -> None:
        """Notes the cluster's name, 31 bytes at most. It must not have another one."""
        # The last part ends with a zero, so that no two parts are the same column.
        padded = name.encode().ljust(2 * _NAME_BYTES, b"\0")
        parts = (padded[:_NAME_BYTES], padded[_NAME_BYTES:])
        self._store.apply([Put([(_NAME, number)], [part]) for number, part in enumerate(parts, 1)])

    def applied(self) -> dict[tuple[int, int], int]:
        """By (topic, partition): everything before this offset has been applied to this cluster. A partition of which
        nothing is noted is left out. The numbers of topics are those of `note_applied`.
        """
        noted = self._store.cells(_APPLIED)
        return {_POSITION.unpack(cell.column): cell.timestamp - 1 for cell in noted}

    def note_applied(self, positions: Mapping[tuple[int, int], int], canary: int | None = None) -> None:
        """Notes positions by (topic, partition): everything before them is durable here. One that is below what is
        noted changes nothing. canary: the number that every canary has reached.
        """
        notes = [Put([(_APPLIED, 1 + offset)], [_POSITION.pack(*key)]) for key, offset in positions.items()]
        if canary is not None:
            notes.append(Put([(_CANARY, canary)], [_POSITION.pack(0, 0)]))
        self._store.apply(notes)

    def canary(self) -> int:
        """The number that every canary of the feeds' table has reached; 0 before the first."""
        return max((cell.timestamp for cell in self._store.cells(_CANARY)), default=0)

    def _put_off(self) -> list[bytes]:
        """The columns of all holds, and at least the first of what is parked; of up to _READ_AT_ONCE holds in one look
        at the row.
        """
        found: list[bytes] = []
        while True:
            page = self._store.read(_PUT_OFF, found[-1] if found else None, _READ_AT_ONCE)
            found += page
            if len(page) < _READ_AT_ONCE or _HOLD.unpack(page[-1])[0] >= _PARKED:
                return found

    def _drop(self, row: bytes, cells: Sequence[Cell]) -> None:
        self._store.apply([DeleteColumns([(row, cell.timestamp)], [cell.column]) for cell in cells])


def _sent_back(identity: bytes) -> tuple[bytes, int]:
    """The row of an action's notes, and the half of its identity that is in their columns."""
    first, rest = _SENT_BACK.unpack(identity)
    return _ROW(b"s", first), rest


def _parked(since: int, number: int) -> bytes:
    return _HOLD.pack(_PARKED + since, number)


class Watermark:
    """A cluster's watermark as a reader needs it: asked for once a second at most, never for each page."""

    def __init__(self, progress: Progress, clock: Callable[[], int], every_ms: int = 1_000) -> None:
        self._progress = progress
        self._clock = clock
        self._every_ms = every_ms
        self._asked_ms: int | None = None
        self._known: int | None = None

    def known_ms(self) -> int | None:
        """The watermark, as it was a second ago or less; None where it is unknown. Raises UnavailableError."""
        now = self._clock()
        if self._asked_ms is None or not 0 <= now - self._asked_ms < self._every_ms:
            self._known = self._progress.watermark()
            self._asked_ms = now
        return self._known

    def behind_ms(self, known_ms: int | None) -> int | None:
        """How far a read that is over now may be behind the clock, where this was known before it began."""
        return behind_ms(known_ms, self._clock())
