"""How far a cluster is: its watermark, kept in the cluster itself in a table of its own (rule 10).

Fifteen kinds of rows, named by their first byte:
- ticks: one cell for each partition of the topic that is written to the cluster. Its timestamp is the latest settled
  time that has come through it from every source: a partition of the topic that ticks start in. Earlier versions noted
  a cell for each pair of a partition and a source.
- put off: a hold (since, until) keeps the watermark at or below `since` until the ticks have passed `until`.
- parked: a note keeps the watermark at or below a time until a partition of a topic is applied up to an offset. Then
  everything that committed in the ten seconds from that time, and was parked there before that offset, has landed. A
  note may be replaced by a hold, so a look reads these notes first: it then sees at least one of the two.
- refills: the holds of unfollows that wait for the refills that they asked for. They work as above, but are kept apart:
  they come in a stream, each before the previous one has ended, and must not prolong each other.
- fanouts: the holds of fanouts that are done in ranges of followers, each for the ranges that were published at once.
  They are kept apart for the same reason.
  If more than a thousand holds of these three kinds wait for what is parked, they are noted as one that is put off.
- bounds: two times, and which rows of holds and of what is parked exist. All holds that end before the first time have
  passed; no hold that is still to be noted ends before the second. A hold is in the row of its kind and of the day on
  which it ends. A note on what is parked is in the row of the ten minutes in which it committed. Such a row has two
  numbers: that of its last change, and that of the change at which all in it had landed. A look reads the rows in which
  these differ. What has passed or landed stays in its row, and is removed with it once no look reads the row: HBase
  walks over every removed column for days, but not over existing columns that sort before those that are read.
- parts: which parts of a follower's purge have landed (a purge in several parts is finished once, after the last).
- sent back: which actions were sent back to the expander because their deliveries came too late, each with a time. A
  delivery that was read from the follow store before that time need not be sent back any more.
- made: when the cluster was created again, if it was.
- name: the name of the cluster.
- applied: how far the messages of each partition of a topic are in this cluster, contiguously. A group may commit only
  what is noted here: a cluster that was put back from a copy then says that it is older than its group.
- topics: the id of each topic that the messages came from. A topic that was removed and made again under its name has
  another one.
- covered: positions like those of `applied`, as they were when the witnesses got their number: a table whose witnesses
  have that number has everything before them.
- times: the number of the rows of ticks, holds, bounds and `made` that are in use. If the clock of the follow store was
  ahead, all of these get new rows: timestamps of cells never go back, so the old rows are left alone.
- witness: the number that every witness must have reached, in all tables that are read.
"""

import itertools
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from feedstore import clocks
from feedstore.widecolumn import Cell, DeleteColumns, Put, Table, UnavailableError, WideColumnStore

PROGRESS = "progress"
"""The name of the table."""

_ROW = struct.Struct(">cQ").pack
_TICK = struct.Struct(">IIII")
_HOLD = struct.Struct(">QQ")
_PART = _WAITS = struct.Struct(">QII")
_SENT_BACK = struct.Struct(">QQ")
_TICKS, _PUT_OFF, _REFILLS, _FANOUTS, _PARKED, _MADE, _BOUNDS = b"t", b"h", b"r", b"d", b"k", b"m", b"b"
"""The first bytes of rows that are replaced by new ones if times must go back (`_TIMES`)."""
_HOLDS = (_PUT_OFF, _REFILLS, _FANOUTS)
"""The first bytes of rows of holds, in the order of `_Held`. They never get another order, because clusters keep it."""
_TIMES = _ROW(b"e", 0)
_NAME = _ROW(b"n", 0)
_NAME_BYTES = 16
_APPLIED = _ROW(b"a", 0)
_TOPICS = _ROW(b"i", 0)
_COVERED = _ROW(b"f", 0)
_POSITION = struct.Struct(">QQ")
_WITNESS = _ROW(b"c", 0)
_FORGOTTEN = ((_ROW(b"p", 0), _ROW(b"q", 0)), (_ROW(b"s", 0), _ROW(b"t", 0)))
"""The ranges of rows with notes that are dropped after a while. Their columns begin with the time of the note."""
_OF_PARKED = (_ROW(_PARKED, 0), _ROW(b"l", 0))
"""The range of rows with notes on what is parked."""
_DAY_MS = 86_400_000
_PARKED_MS = 600_000
"""The time of one row of what is parked. A look reads all of the first row with something that has not landed."""
_SLOT_MS = 10_000
"""What is parked and committed within this time has one note a partition: a watermark may be too low by this time."""
_NUMBERS = 2**32
"""The number in a row's key is its day from 1, or its ten minutes, times this, plus the number of the times in use. The
row of day 0 has what earlier versions noted: holds, and what they parked.
"""
_NUMBER_MAX = 2**31
_PASSED, _CLOSED = (0, 0), (0, 1)
"""The columns of the two times in the row of bounds: all holds that end before the first have passed, and no hold that
is still to be noted ends before the second. Each row of holds has a column there as well: the number of its kind, from
1, and its day. Each row of what is parked has two, with the numbers of its last change and of the change at which all
in it had landed: 0, and its ten minutes from `_CHANGED` and from `_LANDED`. Earlier programs read these as names of
rows of holds, and find those rows empty.
"""
_CHANGED, _LANDED = 2, 2**31
_EACH = 2**63
"""Earlier versions noted each message that they parked, in the row of what is put off, with `_EACH + since` where a
hold has its `until`: no tick ever passes it. Such a note has the id of its message, and is lifted when that has landed.
"""
_READ_AT_ONCE = 1_000
_WAITING_MAX = 1_000
"""If more holds than this wait for what is parked, they are noted as one."""


class Through(NamedTuple):
    """What ticks have come through: one of the `partitions` of the topic that is written to the cluster, from all
    `sources`, the partitions of the topic before it.
    """

    partition: int
    partitions: int
    sources: int


MARK_MAX_MS: Final = 2
"""A watermark up to this is a mark and no time: nothing is certain about the cluster, as while it is rebuilt."""


def known_ms(watermark_ms: int | None) -> int | None:
    """The time that a watermark says; None for a mark, too."""
    return None if watermark_ms is None or watermark_ms <= MARK_MAX_MS else watermark_ms


def behind_ms(watermark_ms: int | None, now_ms: int) -> int | None:
    """How far behind a cluster may be, as `clocks.behind_ms`; None for a mark, too."""
    return clocks.behind_ms(known_ms(watermark_ms), now_ms)


def progress_table(purge_window_ms: int) -> Table:
    return Table(PROGRESS, 9, 16, trim=None, purge_window_ms=purge_window_ms)


class NotedTicks(NamedTuple):
    """How far ticks have come. partitions: the largest number of partitions that they named. settled: the settled time
    that has come through each of these from every source; a partition is missing until one has.
    """

    partitions: int
    settled: Mapping[int, int]

    def through_all(self) -> int | None:
        """The settled time that has come through every partition; None while it has not come through one of them."""
        return min(self.settled.values()) if 0 < len(self.settled) == self.partitions else None


def noted_ticks(ticks: Sequence[Cell]) -> NotedTicks:
    """What the cells of the row of ticks say. Pure.

    A cell is (partition, partitions, sources, 0) at its settled time. One of an earlier version is (partition,
    partitions, source, sources): it counts together with those of all other sources. What a time says of a partition
    stays true if the number of sources grows.
    """
    most = max((_TICK.unpack(cell.column)[1] for cell in ticks), default=0)
    times: list[tuple[int, int]] = []
    pairs: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for column, settled_ms in ticks:
        partition, partitions, _, sources = _TICK.unpack(column)
        if partitions == most and sources:
            pairs[partition, sources].append(settled_ms)
        elif partitions == most:
            times.append((partition, settled_ms))
    times += [(partition, min(some)) for (partition, sources), some in pairs.items() if len(some) == sources]
    # In ascending order, so that the latest time of a partition counts.
    return NotedTicks(most, dict(sorted(times)))


class _Bounds(NamedTuple):
    """All holds that end before `passed_ms` have passed; no hold that ends before `closed_ms` is noted any more. days:
    the rows of holds that are named, by kind and day. changed: the number of the last change of each row of what is
    parked. landed: the change at which all in the row had landed.
    """

    passed_ms: int
    closed_ms: int
    days: Sequence[tuple[bytes, int]]
    changed: Mapping[int, int]
    landed: Mapping[int, int]

    def are_read(self, kind: bytes) -> list[int]:
        """The days of those rows of a kind of holds that a look reads, in order."""
        return [day for of, day in self.days if of == kind and day >= _day(self.passed_ms)]

    def waiting(self) -> list[int]:
        """The numbers of those rows of what is parked that a look reads, in order."""
        return [number for number, change in sorted(self.changed.items()) if self.landed.get(number, 0) < change]


class _Held(NamedTuple):
    """Columns of holds that may not have passed, by kind. `put_off` also has the first of what is parked, at least."""

    put_off: list[bytes]
    refills: list[bytes]
    fanouts: list[bytes]


def _watermark(settled: int, held: _Held) -> int:
    return min([settled, *(since for holds in _still_held(settled, held) for _, since in holds)])


def _still_held(settled: int, held: _Held) -> list[set[tuple[int, int]]]:
    """The holds (until, since) of each kind that still keep the watermark back.

    A hold is released once everything before its `until` has landed. If other work from before that `until` was itself
    put off, by a hold that ends later or because it is parked, then the first hold stays as long as the other: it may
    wait for that very work. No unfollow waits for the refill of another one, and no fanout for the ranges of another: a
    stream of them would hold the watermark back for ever. An action that was dated again has a hold that waits for the
    refill, or the ranges, of its new date.
    """
    found: list[set[tuple[int, int]]] = [set() for _ in held]
    least_put_off = least = settled + 1
    holds = [(*_times(column), kind) for kind, columns in enumerate(held) for column in columns]
    for until, since, kind in sorted(holds, reverse=True):
        is_put_off = _HOLDS[kind] == _PUT_OFF
        if until < min(settled, least if is_put_off else least_put_off):
            continue
        least = min(least, since)
        if is_put_off:
            least_put_off = min(least_put_off, since)
        found[kind].add((until, since))
    return found


def _waiting_for_parked(still_held: set[tuple[int, int]], before_ms: int) -> set[tuple[int, int]]:
    """The holds (until, since), of those that end before a time, that stay at least until what is parked has landed."""
    parked = min((since for until, since in still_held if until >= _EACH), default=_EACH)
    return {hold for hold in still_held if parked <= hold[0] < before_ms}


def _times(column: bytes) -> tuple[int, int]:
    """The (until, since) of a hold, or of what is parked: its `until` is later than any tick."""
    until, since = _HOLD.unpack(column)
    return until, since if until < _EACH else until - _EACH


class State(NamedTuple):
    """How far a cluster is, and what keeps it back.

    watermark: None if it is unknown.
    settled: the watermark as it would be without holds and without what is parked.
    heard: the settled time that has come through each partition; those that none has come through are missing.
    put_off, refills, fanouts: the `since` of each action that keeps the watermark back, in no order.
    parked: the same for each note on what is parked. It may lack some: it has those that one look has read, which are
        the oldest.
    """

    watermark: int | None
    settled: int | None
    heard: Mapping[int, int]
    put_off: Sequence[int]
    refills: Sequence[int]
    fanouts: Sequence[int]
    parked: Sequence[int]


def _by_kind(settled: int, held: _Held) -> tuple[list[int], list[int], list[int], list[int]]:
    """The commit times of actions that hold the watermark back: put off, refills, fanouts, and parked."""
    put_off, *apart = _still_held(settled, held)
    refills, fanouts = ([since for _, since in holds] for holds in apart)
    parked = [_times(column)[1] for column in held.put_off if _is_parked(column)]
    return [since for until, since in put_off if until < _EACH], refills, fanouts, parked


class Progress:
    """Reads and writes a cluster's progress table."""

    def __init__(self, store: WideColumnStore) -> None:
        self._store = store
        self._made_ms: int | None = None
        self._times: int | None = None

    def watermark(self) -> int | None:
        """The cluster's watermark; None if nothing is known of it yet. Raises UnavailableError."""
        self._times = None  # looked up again: readers run while it changes
        # Holds are read after the ticks: a hold is written before any tick that could pass it.
        settled = noted_ticks(self._store.cells(self._row(_TICKS))).through_all()
        return None if settled is None else _watermark(settled, self._held())

    def landed_before(self, settled_ms: int) -> int:
        """The watermark as it would be if a tick of a settled time had come through everything. The caller has looked
        at the queue, and knows that nothing from before that time is on its way. Raises UnavailableError.
        """
        return _watermark(settled_ms, self._held())

    def state(self) -> "State":
        """How far the cluster is, and what keeps it back. Raises UnavailableError."""
        self._times = None  # as for the watermark, and in the same order
        heard = noted_ticks(self._store.cells(self._row(_TICKS)))
        settled, held = heard.through_all(), self._held()
        watermark = None if settled is None else _watermark(settled, held)
        return State(watermark, settled, heard.settled, *_by_kind(settled or 0, held))

    def advance(self, settled: Mapping[Through, int]) -> None:
        """Notes the settled times that have come through some partitions, and until when all holds have passed."""
        row = self._row(_TICKS)
        self._store.apply([Put([(row, ms)], [_TICK.pack(*through, 0)]) for through, ms in settled.items()])
        slowest = noted_ticks(self._store.cells(row)).through_all()
        if slowest is None:
            return
        bounds = self._bounds()
        held = self._held(bounds)
        noted: dict[tuple[int, int], int] = {}
        if any(held):
            still_held = {hold for holds in _still_held(slowest, held) for hold in holds}
            waiting = _waiting_for_parked(still_held, bounds.closed_ms)
            if len(waiting) > _WAITING_MAX:
                # In an outage of hours each look would read all that were noted since it began. The one hold is put
                # off, so that whatever keeps one of them back keeps it back.
                self.hold([(min(since for _, since in waiting), bounds.closed_ms)])
                still_held -= waiting
            # The bound was read before the holds: a hold that was noted since ends after it, so none is overlooked.
            ends = (until for until, _ in still_held)
            noted |= {_PASSED: min(bounds.closed_ms, *ends, slowest), _CLOSED: slowest}
        # The changes were read before the rows: a row that has changed since is read again.
        first = min((_ten_minutes(_times(each)[1]) for each in held.put_off if _is_parked(each)), default=_LANDED)
        noted |= {(0, _LANDED + each): bounds.changed[each] for each in bounds.waiting() if each < first}
        if noted:
            row = self._row(_BOUNDS)
            self._store.apply([Put([(row, 1 + number)], [_POSITION.pack(*key)]) for key, number in noted.items()])

    def hold(self, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds (since_ms, until_ms): durable before the message that causes them is committed. A hold that would
        begin after its end, because a clock was ahead when it began, begins at its end.
        """
        self._note(_PUT_OFF, holds)

    def hold_for_refills(self, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds of unfollows, as `hold` does. since_ms: the unfollow's. until_ms: its refill's request."""
        self._note(_REFILLS, holds)

    def hold_for_fanouts(self, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds of fanouts, as `hold` does. since_ms: the pin's. until_ms: when its ranges were published."""
        self._note(_FANOUTS, holds)

    def _note(self, kind: bytes, holds: Iterable[tuple[int, int]]) -> None:
        """Notes holds of a kind. A hold that would end before `closed_ms`, because its message was parked, ends at
        `closed_ms`: other holds can prolong it there as well. The bound is read once the hold is durable, because it
        may have been raised meanwhile.
        """
        left = list(holds)
        closed_ms = 0
        while left:
            noted = [(min(since, until), max(until, closed_ms)) for since, until in left]
            puts = [self._named(kind, {_day(until) for _, until in noted})]
            puts += [Put([(self._row(kind, _day(until)), until)], [_HOLD.pack(until, since)]) for since, until in noted]
            self._store.apply(puts)
            closed_ms = self._bounds().closed_ms
            left = [(since, until) for since, until in noted if until < closed_ms]

    def park(self, since_ms: Iterable[int], until: Mapping[tuple[int, int], int]) -> None:
        """Notes what is parked: durable before its messages count as done. since_ms: when its actions committed. until:
        offsets by (topic, partition), as for `note_applied`: its copies are before them. The watermark stays at or
        below each `since_ms`, and up to ten seconds below the first, until all of these offsets are applied.
        """
        slots = {ms - ms % _SLOT_MS for ms in since_ms}
        puts: list[Put] = []
        for slot in slots:
            row = self._row(_PARKED, _ten_minutes(slot))
            puts += [Put([(row, 1 + end)], [_WAITS.pack(slot, *key)]) for key, end in until.items()]
        if not puts:
            return
        self._store.apply(puts)
        self._note_change({_ten_minutes(slot) for slot in slots})

    def _note_change(self, numbers: Iterable[int]) -> None:
        """Makes looks read rows of what is parked, whose notes are durable. The number of the change is larger than any
        that a process can have read before these notes: so no process counts the rows as landed without reading them.
        """
        change = 1 + max(self._bounds().changed.values(), default=0)
        columns = [_POSITION.pack(0, _CHANGED + number) for number in sorted({*numbers})]
        self._store.apply([Put([(self._row(_BOUNDS), 1 + change)], columns)])

    def awaited(self) -> int:
        """The largest offset in any note on what is parked, in any partition of any topic; 0 if there is none."""
        rows = [row for row, _ in self._store.scan(*_OF_PARKED)]
        return max((cell.timestamp - 1 for cells in self._store.cells_of(rows) for cell in cells), default=0)

    def lift(self, parked: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Lifts notes of an earlier version (since_ms, id), because the message of each has landed or is held in
        another way. What was lifted stays lifted, however often it is noted. now_ms: the store's time, from which it
        counts how long the lifting is remembered.
        """
        lifted = list(parked)
        at_ms = max([now_ms, *(since for since, _ in lifted)])
        columns = [_HOLD.pack(_EACH + since, number) for since, number in lifted]
        self._store.apply([DeleteColumns([(self._row(_PUT_OFF), at_ms)], [column]) for column in columns])

    def lift_all(self, now_ms: int) -> None:
        """Lifts all notes of earlier versions: what they parked is gone and will not land, and something else keeps the
        watermark back. now_ms: the store's time, from which it counts how long the lifting is remembered.
        """
        for page in self._pages(self._row(_PUT_OFF), _before(_EACH)):
            self.lift([(until - _EACH, number) for until, number in map(_HOLD.unpack, page)], now_ms)

    def partitions(self) -> int:
        """The largest number of partitions of a topic that ticks came through; 0 if no tick came."""
        ways = [_TICK.unpack(cell.column) for cell in self._store.cells(self._row(_TICKS))]
        return max((max(partitions, sources or third) for _, partitions, third, sources in ways), default=0)

    def refuse_unwritable(self) -> None:
        """Checks that holds can be written, by a delete marker without effect. Raises UnavailableError if not."""
        self._store.apply([DeleteColumns([(self._row(_PUT_OFF), 1)], [_HOLD.pack(0, 0)])])

    def part_landed(self, follower: int, ts: int, part: int, parts: int) -> bool:
        """Notes that one part of a follower's purge at `ts` has landed; True if that makes all of them.

        Two writers that land the last two parts at once may both be told so: what follows is idempotent.
        """
        row = _ROW(b"p", follower)
        self._store.apply([Put([(row, ts)], [_PART.pack(ts, parts, part)])])
        landed = self._store.read(row, _PART.pack(ts, parts, 0), parts)
        return landed == [_PART.pack(ts, parts, number) for number in range(1, parts + 1)]

    def sent_back_after(self, read_ms: Mapping[bytes, int]) -> set[bytes]:
        """The identities of those actions that were sent back to the expander after their deliveries were read.

        read_ms: when the newest delivery was read, by the identity of its action: 16 bytes that name it.
        """
        rows = [_sent_back(identity) for identity in read_ms]
        found: set[bytes] = set()
        noted = self._store.cells_of([row for row, _ in rows])
        for (identity, ms), (_, rest), cells in zip(read_ms.items(), rows, noted, strict=True):
            if any(
                before_ms > ms and of == rest for before_ms, of in (_SENT_BACK.unpack(each.column) for each in cells)
            ):
                found.add(identity)
        return found

    def note_sent_back(self, identities: Iterable[bytes], before_ms: int) -> None:
        """Notes that actions were sent back to the expander: late deliveries of them that were read before a time need
        not be sent back any more.

        Call it once the tasks, and the holds that wait for them, are durable: a reader of the note then publishes no
        task and notes no hold.
        """
        rows = [_sent_back(identity) for identity in identities]
        self._store.apply([Put([(row, before_ms)], [_SENT_BACK.pack(before_ms, rest)]) for row, rest in rows])

    def forget(self, before_ms: int) -> None:
        """Drops the notes on parts of purges, and on what was sent back, that are older than a time. No part from
        before that time, and nothing late, can arrive any more. Also drops the rows of holds, and of what was parked,
        that no look reads any more.
        """
        for start, stop in _FORGOTTEN:
            for row, columns in self._store.scan(start, stop):
                times = [(column, int.from_bytes(column[:8])) for column in columns]
                self._drop(row, [Cell(column, ms) for column, ms in times if ms < before_ms])
        bounds = self._bounds()
        for kind, day in bounds.days:
            if day not in bounds.are_read(kind):
                row = self._row(kind, day)
                for page in self._pages(row, None):
                    self._drop(row, [Cell(column, _times(column)[0]) for column in page])
                self._drop(self._row(_BOUNDS), [Cell(_name_of(kind, day), 1)])
        self._forget_landed(bounds)

    def _forget_landed(self, bounds: _Bounds) -> None:
        waiting, applied = {*bounds.waiting()}, self.applied()
        for row, _ in self._store.scan(*_OF_PARKED):
            if int.from_bytes(row[1:]) // _NUMBERS not in waiting:
                self._drop(row, [cell for cell in self._store.cells(row) if _has_landed(cell, applied)])
        # The last change stays: the next one must have a larger number than all that are removed.
        last = max(bounds.changed.values(), default=0)
        for number, change in bounds.landed.items():
            if number not in waiting and change < last:
                for first in _CHANGED, _LANDED:  # in this order: a row of which only the first is removed is not read
                    self._drop(self._row(_BOUNDS), [Cell(_POSITION.pack(0, first + number), 1 + change)])

    def made(self, at_ms: int) -> None:
        """Notes that the cluster was created again at a time. What was read before that time is late (rule 8): markers
        that would mask it may be gone with the old cluster.
        """
        self._store.apply([Put([(self._row(_MADE), at_ms)], [_HOLD.pack(at_ms, 0)])])

    def made_ms(self) -> int:
        """When the cluster was created again; 0 if it never was. Looked up once: see `renewals`."""
        if self._made_ms is None:
            self._made_ms = max((cell.timestamp for cell in self._store.cells(self._row(_MADE))), default=0)
        return self._made_ms

    def renewals(self) -> tuple[int, int]:
        """Changes if the cluster is created again, or its times are brought back. What was read or noted before counts
        in the earlier cluster, or by the earlier times. A `Progress` holds some of it: make another one.
        """
        times, made = self._store.cells_of([_TIMES, self._row(_MADE)])
        return max((cell.timestamp for cell in times), default=0), max((cell.timestamp for cell in made), default=0)

    def began(self) -> bool:
        """Whether the cluster is not new: a tick has come through, or it was created again."""
        return bool(self._store.cells(self._row(_TICKS)) or self._store.cells(self._row(_MADE)))

    def name(self) -> str | None:
        """The name that the cluster was first written under; None if it is new, or an earlier version noted no name."""
        parts = sorted((cell.timestamp, cell.column) for cell in self._store.cells(_NAME))
        return b"".join(column for _, column in parts).rstrip(b"\0").decode() or None

    def note_name(self, name: str) -> None:
        """Notes the cluster's name, 31 bytes at most. It must not have another name yet."""
        # The last part ends with a zero, so that no two parts are the same column.
        padded = name.encode().ljust(2 * _NAME_BYTES, b"\0")
        parts = (padded[:_NAME_BYTES], padded[_NAME_BYTES:])
        self._store.apply([Put([(_NAME, number)], [part]) for number, part in enumerate(parts, 1)])

    def applied(self) -> dict[tuple[int, int], int]:
        """The offset for each (topic, partition) before which everything has been applied to this cluster. A partition
        without a note is left out. The numbers of topics are those of `note_applied`.
        """
        return self._positions(_APPLIED)

    def note_applied(self, positions: Mapping[tuple[int, int], int], witness: int | None = None) -> None:
        """Notes positions by (topic, partition): everything before them is durable here. A position below the one that
        is noted changes nothing. witness: the number that every witness has reached.
        """
        notes = _positions(_APPLIED, positions)
        if witness is not None:
            notes.append(Put([(_WITNESS, witness)], [_POSITION.pack(0, 0)]))
        self._store.apply(notes)

    def topics(self) -> set[tuple[int, bytes]]:
        """The number and the id of each topic whose messages were applied, as far as ids are noted."""
        return {(cell.timestamp, cell.column) for cell in self._store.cells(_TOPICS)}

    def note_topics(self, ids: Mapping[int, bytes]) -> None:
        """Notes the ids of topics, 16 bytes each, by their numbers. A topic keeps every id that was noted."""
        self._store.apply([Put([(_TOPICS, number)], [topic_id]) for number, topic_id in ids.items()])

    def covered(self) -> dict[tuple[int, int], int]:
        """The offset for each (topic, partition) before which everything is in the tables too, if their witnesses have
        the number that is noted. Empty if an earlier version wrote all that is here.
        """
        return self._positions(_COVERED)

    def note_covered(self, positions: Mapping[tuple[int, int], int]) -> None:
        """Notes what was applied before the witnesses got the number that is noted. A position below the one that is
        noted changes nothing.
        """
        self._store.apply(_positions(_COVERED, positions))

    def witness(self) -> int:
        """The number that every witness has reached; 0 before the first."""
        return max((cell.timestamp for cell in self._store.cells(_WITNESS)), default=0)

    def bring_back(self, to_ms: int) -> bool:
        """Replaces times after `to_ms` by `to_ms`, because the clock of the follow store was ahead and has been brought
        back. Returns False if there are none. No process may write the cluster meanwhile.

        Ticks of such times are dropped: until others have come through every partition, the watermark is unknown. What
        is parked keeps its place, and keeps the watermark back if it was parked before `to_ms`.

        If it is interrupted, nothing has changed: call it again. Raises UnavailableError.
        """
        ticks, made = self._store.cells(self._row(_TICKS)), self._store.cells(self._row(_MADE))
        of_earlier = [
            Cell(column, _times(column)[1])
            for page in self._pages(self._row(_PUT_OFF), _before(_EACH))
            for column in page
        ]
        parked = {number: self._store.cells(self._row(_PARKED, number)) for number in self._bounds().waiting()}
        holds = [[_HOLD.unpack(column) for column in columns if not _is_parked(column)] for columns in self._held()]
        of_holds = itertools.chain.from_iterable(itertools.chain.from_iterable(holds))
        latest = [*(cell.timestamp for cell in (*ticks, *made)), *of_holds]
        if max(latest, default=0) <= to_ms:
            return False
        self._times = 1 + self._times_in_use()
        try:
            for kind, some in zip(_HOLDS, holds, strict=True):
                self._note(kind, {(min(since, to_ms), min(until, to_ms)) for until, since in some})
            self._copy(self._row(_PUT_OFF), of_earlier)
            for number, cells in parked.items():
                self._copy(self._row(_PARKED, number), cells)
            if parked:
                self._note_change(parked)
            self._copy(self._row(_TICKS), [tick for tick in ticks if tick.timestamp <= to_ms])
            if made:
                self.made(min(to_ms, max(cell.timestamp for cell in made)))
            self._store.apply([Put([(_TIMES, self._times)], [_POSITION.pack(0, 0)])])
        except BaseException:
            self._times = None  # looked up again: later writes go where the cluster says
            raise
        return True

    def _row(self, kind: bytes, number: int = 0) -> bytes:
        return _ROW(kind, number * _NUMBERS + self._times_in_use())

    def _times_in_use(self) -> int:
        """The number of the times in use. Looked up once, except for a watermark: see `renewals`."""
        if self._times is None:
            self._times = max((cell.timestamp for cell in self._store.cells(_TIMES)), default=0)
        return self._times

    def _pages(self, row: bytes, after: bytes | None) -> Iterator[list[bytes]]:
        while page := self._store.read(row, after, _READ_AT_ONCE):
            yield page
            after = page[-1]

    def _positions(self, row: bytes) -> dict[tuple[int, int], int]:
        return {_POSITION.unpack(cell.column): cell.timestamp - 1 for cell in self._store.cells(row)}

    def _bounds(self) -> _Bounds:
        noted = {_POSITION.unpack(cell.column): cell.timestamp - 1 for cell in self._store.cells(self._row(_BOUNDS))}
        passed_ms, closed_ms = noted.pop(_PASSED, 0), noted.pop(_CLOSED, 0)
        changed: dict[int, int] = {}
        landed: dict[int, int] = {}
        days: list[tuple[bytes, int]] = []
        for kind, number in sorted(noted):
            if kind > len(_HOLDS):
                raise UnavailableError("a later version has written the notes of this cluster: update this program")
            if kind:
                days.append((_HOLDS[kind - 1], number))
            elif number < _LANDED:
                changed[number - _CHANGED] = noted[kind, number]
            else:
                landed[number - _LANDED] = noted[kind, number]
        return _Bounds(passed_ms, closed_ms, days, changed, landed)

    def _held(self, bounds: _Bounds | None = None) -> _Held:
        # What is parked is read first, and then the bounds again: it may become a hold, of a day that had none.
        bounds = bounds or self._bounds()
        waiting = bounds.waiting()
        parked = self._not_landed(waiting)
        if waiting:
            bounds = self._bounds()
        # A hold that is noted later ends after these bounds, and the caller need not know its day.
        after = _before(bounds.passed_ms)
        # `_PUT_OFF` is read before the other kinds: such a hold may pass once the one for its refill, or its ranges,
        # has been noted.
        found = {_PUT_OFF: parked + self._put_off(after), _REFILLS: [], _FANOUTS: []}
        for kind, columns in found.items():
            for day in ([] if kind == _PUT_OFF else [0]) + bounds.are_read(kind):
                columns.extend(itertools.chain.from_iterable(self._pages(self._row(kind, day), after)))
        return _Held(*found.values())

    def _not_landed(self, numbers: Sequence[int]) -> list[bytes]:
        """What is parked, as columns of holds: all of the first row that has not landed. Later rows committed later."""
        if not numbers:
            return []
        applied = self.applied()  # before the notes: what is noted later may be applied then, and counts all the same
        for number in numbers:
            cells = self._store.cells(self._row(_PARKED, number))
            if found := [cell for cell in cells if not _has_landed(cell, applied)]:
                return [_HOLD.pack(_EACH + _WAITS.unpack(cell.column)[0], 0) for cell in found]
        return []

    def _put_off(self, after: bytes) -> list[bytes]:
        """What earlier versions noted: the columns of all holds that have no day, and at least the first of what they
        parked. This is one look at the row if there are fewer than _READ_AT_ONCE such holds.
        """
        found: list[bytes] = []
        for page in self._pages(self._row(_PUT_OFF), after):
            found += page
            if len(page) < _READ_AT_ONCE or _is_parked(page[-1]):
                break
        return found

    def _named(self, kind: bytes, days: Iterable[int]) -> Put:
        """Names rows of a kind of holds in the row of bounds, so that looks read them."""
        return Put([(self._row(_BOUNDS), 1)], [_name_of(kind, day) for day in sorted({*days})])

    def _copy(self, row: bytes, cells: Sequence[Cell]) -> None:
        self._store.apply([Put([(row, cell.timestamp)], [cell.column]) for cell in cells])

    def _drop(self, row: bytes, cells: Sequence[Cell]) -> None:
        self._store.apply([DeleteColumns([(row, cell.timestamp)], [cell.column]) for cell in cells])


def _sent_back(identity: bytes) -> tuple[bytes, int]:
    """The row of an action's notes, and the half of its identity that is in their columns."""
    first, rest = _SENT_BACK.unpack(identity)
    return _ROW(b"s", first), rest


def _positions(row: bytes, positions: Mapping[tuple[int, int], int]) -> list[Put]:
    return [Put([(row, 1 + offset)], [_POSITION.pack(*key)]) for key, offset in positions.items()]


def _day(until: int) -> int:
    """The number of the row in which a hold is. Times later than any clock should show all count as the last day."""
    return 1 + min(until // _DAY_MS, _NUMBER_MAX)


def _ten_minutes(since: int) -> int:
    """The number of the row in which a note on what is parked is. Times that no clock should show count as the last."""
    return min(since // _PARKED_MS, _NUMBER_MAX // 2)


def _name_of(kind: bytes, day: int) -> bytes:
    """The column in the row of bounds that names a row of holds."""
    return _POSITION.pack(1 + _HOLDS.index(kind), day)


def _has_landed(note: Cell, applied: Mapping[tuple[int, int], int]) -> bool:
    _, topic, partition = _WAITS.unpack(note.column)
    return applied.get((topic, partition), 0) >= note.timestamp - 1


def _before(until: int) -> bytes:
    """A column that sorts behind all holds that end before a time, and before all others."""
    return _HOLD.pack(max(0, until - 1), 2**64 - 1)


def _is_parked(column: bytes) -> bool:
    until: int = _HOLD.unpack(column)[0]
    return until >= _EACH
