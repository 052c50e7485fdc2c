"""A shard of the follow store in plain dictionaries: a simulation makes thousands of them. The rules are not here but
in `feedstore.follows.recording` and `store`, which run as they are.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

from feedstore.follows.arranging import Arrange, Arranged, LineKey, PinAt, PlacedRow, Run, Start, Way
from feedstore.follows.port import Backlog, RecordCounts
from feedstore.follows.shard import (
    BoardRow,
    Changes,
    Decide,
    EdgeKey,
    EdgeRow,
    FollowerRow,
    NewestFrom,
    OutboxKey,
    PinIndexRow,
    PinRow,
    Place,
    RefillRow,
    Result,
    SavedFrom,
    SavedRow,
    Standing,
    UnrelayedRow,
    Wanted,
    outbox_rows,
    reaching,
)


class MemoryShard:
    """Implements `feedstore.follows.shard.Shard`; agrees with the SQLite shard, seed by seed."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._latest_ms = 0
        self._clocks: dict[int, int] = {}
        self._edges: dict[EdgeKey, EdgeRow] = {}
        self._boards: dict[int, int] = {}
        self._pins: dict[int, PinRow] = {}
        self._keys: dict[str, tuple[bytes, bytes | None, int]] = {}
        self._refills: dict[tuple[int, str], int] = {}
        self._served: dict[tuple[int, str], int] = {}
        self._outbox: dict[int, tuple[int, int, bytes]] = {}
        self._unrelayed: dict[int, None] = {}
        self._next_id = 1
        self._followers: dict[Place, dict[int, FollowerRow]] = {}
        self._pin_index: dict[Place, dict[int, PinIndexRow]] = {}
        self._placed: dict[int, dict[int, PlacedRow]] = {}
        self._quiet: dict[int, int] = {}
        self._quiet_numbers = itertools.count(1)

    def now_ms(self) -> int:
        return max(self._clock(), self._latest_ms)

    def _standing(self, wanted: Wanted) -> Standing:
        return Standing(
            clocks={key: self._clocks[key] for key in wanted.clocks if key in self._clocks},
            edges={key: self._edges[key] for key in wanted.edges if key in self._edges},
            boards={key: self._boards[key] for key in wanted.boards if key in self._boards},
            pins={key: self._pins[key] for key in wanted.pins if key in self._pins},
            keys={key: self._keys[key][:2] for key in wanted.keys if key in self._keys},
            refills={key: self._refills[key] for key in wanted.refills if key in self._refills},
        )

    def look(self, wanted: Wanted) -> tuple[int, Standing]:
        return self.now_ms(), self._standing(wanted)

    def transact(self, wanted: Wanted, decide: Decide[Result]) -> Result:
        now_ms = self.now_ms()
        changes, result = decide(now_ms, self._standing(wanted))
        if any(changes):
            self._latest_ms = now_ms
        self._write(changes, now_ms)
        return result

    def _write(self, changes: Changes, now_ms: int) -> None:
        self._clocks |= changes.clocks
        self._edges |= changes.edges
        self._boards |= changes.boards
        self._pins |= changes.pins
        for key, row in changes.keys.items():
            committed_ms = self._keys[key][2] if key in self._keys else now_ms
            self._keys[key] = (*row, committed_ms)
        self._refills |= changes.refills
        for row in outbox_rows(changes.outbox):
            self._outbox[self._next_id] = (now_ms, *row)
            self._unrelayed[self._next_id] = None
            self._next_id += 1

    def settled_ms(self) -> int:
        self._latest_ms = now_ms = max(self._clock(), self._latest_ms + (self._clock() < self._latest_ms))
        oldest = next(iter(self._unrelayed), None)
        return now_ms if oldest is None else min(now_ms, self._outbox[oldest][0])

    def refill_times(self, keys: Sequence[tuple[int, str]]) -> list[RefillRow]:
        return [(*key, self._refills[key], self._served.get(key, 0)) for key in keys if key in self._refills]

    def mark_refills_served(self, served: Mapping[tuple[int, str], int]) -> None:
        for key, before_ms in served.items():
            if key in self._refills:
                self._served[key] = max(before_ms, self._served.get(key, 0))

    def unrelayed(self, limit: int) -> list[UnrelayedRow]:
        first = [(row, *self._outbox[row]) for row in itertools.islice(self._unrelayed, limit)]
        return first[: reaching([number for *_, number, _ in first], limit)]

    def mark_relayed(self, rows: Sequence[OutboxKey]) -> None:
        for row, committed_ms in rows:
            if row in self._unrelayed and self._outbox[row][0] == committed_ms:
                del self._unrelayed[row]

    def may_relay(self) -> bool:
        return True

    def outbox_is_whole(self) -> bool:
        return self._next_id == 1 or 1 in self._outbox

    def backlog(self) -> Backlog:
        rows = [self._outbox[row] for row in self._unrelayed]
        return Backlog(len(rows), sum(row[1] for row in rows), rows[0][0] if rows else None)

    def index_followers(self, rows: Sequence[FollowerRow]) -> None:
        for row in rows:
            index = self._followers.setdefault(row[:2], {})
            held = index.get(row[2])
            if held is None or row[3] > held[3]:
                index[row[2]] = row

    def index_pins(self, rows: Sequence[PinIndexRow]) -> None:
        for row in rows:
            index = self._pin_index.setdefault(row[:2], {})
            held = index.get(row[3])
            if held is not None:
                saved_ms = max(row[6], held[6])
                deleted_ms = max(row[7] or 0, held[7] or 0) or None
                row = (*row[:6], saved_ms, deleted_ms)  # noqa: PLW2901 - the merged row takes its place
            index[row[3]] = row
            if row[0] == 0:
                self._changed(row[1])
                if row[7] is not None:
                    self._drop_placed(row[1], row[3])

    def _changed(self, board: int) -> None:
        self._quiet.pop(board, None)

    def quiet(self, board: int) -> int | None:
        return self._quiet.setdefault(board, next(self._quiet_numbers))

    def _drop_placed(self, board: int, pin: int) -> None:
        self._placed.get(board, {}).pop(pin, None)

    def followers(self, places: Sequence[EdgeKey], limit: int, *, tombstones: bool) -> list[FollowerRow]:
        rows: list[FollowerRow] = []
        for after, kind, followee in places:
            index = self._followers.get((kind, followee), {})
            rows += [index[each] for each in sorted(index) if each > after and (tombstones or index[each][4])]
        return rows[:limit]

    def edges(self, keys: Sequence[EdgeKey]) -> list[EdgeRow]:
        return [self._edges[key] for key in keys if key in self._edges]

    def _edges_of(self, follower: int) -> list[EdgeRow]:
        return [self._edges[key] for key in sorted(self._edges) if key[0] == follower]

    def active_edges_after(self, places: Sequence[EdgeKey], limit: int) -> list[EdgeRow]:
        found = [row for follower, *after in places for row in self._edges_of(follower) if row[1:3] > tuple(after)]
        return [row for row in found if row[4]][:limit]

    def ended_edges_after(self, follower: int, since_ms: int, after: Place, limit: int) -> list[EdgeRow]:
        ended = [row for row in self._edges_of(follower) if not row[4] and row[5] >= since_ms]
        return [row for row in ended if row[1:3] > after][:limit]

    def _live(self, place: Place) -> list[PinRow]:
        rows = self._pin_index.get(place, {}).values()
        return [
            (pin, owner, board, created, saved, None) for _, _, created, pin, owner, board, saved, d in rows if not d
        ]

    def newest_pins(self, places: Sequence[NewestFrom], *, saved_before_ms: int) -> list[list[PinRow]]:
        return [
            sorted(
                (
                    row
                    for row in self._live((place.kind, place.followee))
                    if row[4] < saved_before_ms
                    and row[3] >= place.created_from_ms
                    and (row[3] < place.created_ms or (row[3] == place.created_ms and row[0] > place.pin))
                ),
                key=lambda row: (-row[3], row[0]),
            )[: place.limit]
            for place in places
        ]

    def pins_saved_since(self, places: Sequence[SavedFrom], since_ms: int, limit: int) -> list[SavedRow]:
        rows: list[SavedRow] = []
        for kind, followee, saved_ms, pin in places:
            rows += sorted(
                (kind, followee, saved, each, owner, board, created)
                for each, owner, board, created, saved, _ in self._live((kind, followee))
                if saved >= since_ms and (saved, each) > (saved_ms, pin)
            )
        return rows[:limit]

    def pins(self, pins: Sequence[int]) -> list[PinRow]:
        return [self._pins[pin] for pin in sorted(pins) if pin in self._pins]  # as the real one answers

    def deletions(self, pins: Sequence[int]) -> dict[int, int]:
        rows = [self._pins[pin] for pin in sorted(set(pins)) if pin in self._pins]
        return {row[0]: row[5] for row in rows if row[5] is not None}

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        return {board: self._boards[board] for board in boards if board in self._boards}

    def boards_of(self, owners: Sequence[int], after: BoardRow, limit: int) -> list[BoardRow]:
        rows = sorted((owner, board) for board, owner in self._boards.items() if owner in owners)
        return [row for row in rows if row > after][:limit]

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        sign = 1 if way == "down" else -1
        lines, rows = self._pin_index.get((0, board), {}), self._placed.get(board, {})

        def alive(pin: int) -> bool:
            return pin in lines and lines[pin][7] is None

        placed = sorted(rows.values(), key=lambda row: (-sign * row.sequence, sign * row.pin))
        from_placed = (-sign * start.sequence, sign * start.pin)
        placed = [row for row in placed if (-sign * row.sequence, sign * row.pin) > from_placed][:limit]
        order = sorted((-sign * row[2], sign * row[3]) for row in lines.values())
        looked = [each for each in order if each > (-sign * start.created_ms, sign * start.line)][:look]
        keys = [LineKey(-sign * created, sign * pin) for created, pin in looked]
        found = [key for key in keys if alive(key.pin) and key.pin not in rows][:limit]
        return Run(
            placed,
            found,
            keys[-1] if len(keys) == look and len(found) < limit else None,
            self.board_pins(board, marked),
        )

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        lines, rows = self._pin_index.get((0, board), {}), self._placed.get(board, {})
        found: list[PinAt] = []
        for created_ms, pin in keys:
            if pin in lines and lines[pin][2] == created_ms:
                row = rows.get(pin)
                sequence, moved_ms = (None, 0) if row is None else (row.sequence, row.moved_ms)
                found.append(PinAt(pin, created_ms, lines[pin][7] is None, sequence, moved_ms))
        return found

    def sync_arranged(self) -> None:
        pass

    def arrange(
        self, board: int, named: Sequence[PinIndexRow], decide: Arrange[Result], *, synced: bool = True
    ) -> Result:
        del synced
        now_ms = self.now_ms()
        index = self._pin_index.setdefault((0, board), {})
        entered = [row for row in named if row[3] not in index]
        index |= {row[3]: row for row in entered}
        if entered:
            self._changed(board)
        arranged, result = decide(now_ms, _Rows(self, board))
        if arranged is None:
            for row in entered:
                del index[row[3]]
            return result
        self._arrange(board, arranged)
        if arranged.outbox:
            self._latest_ms = now_ms
            self._write(Changes.none()._replace(outbox=list(arranged.outbox)), now_ms)
        return result

    def _arrange(self, board: int, arranged: Arranged) -> None:
        rows = self._placed.setdefault(board, {})
        rows |= {row.pin: row for row in arranged.placed}
        if arranged.dropped:
            self._changed(board)
        for pin in arranged.dropped:
            rows.pop(pin, None)

    def next_arranged_board(self, after: int) -> int | None:
        return min((board for board, rows in self._placed.items() if rows and board > after), default=None)

    def all_edges_after(self, after: EdgeKey, limit: int, *, tombstones: bool) -> list[EdgeRow]:
        return [row for key, row in sorted(self._edges.items()) if (tombstones or row[4]) and key > after][:limit]

    def expire(self, purge_window_ms: int, limit: int) -> int:
        before_ms = self.now_ms() - purge_window_ms
        gone = 0
        for index in self._followers.values():
            for key in [key for key, row in index.items() if not row[4] and row[3] < before_ms][: limit - gone]:
                del index[key]
                gone += 1
        for pins in self._pin_index.values():
            for key in [key for key, row in pins.items() if row[7] and row[7] < before_ms][: limit - gone]:
                del pins[key]
                gone += 1
        for name in [name for name, key in self._keys.items() if key[2] < before_ms][: limit - gone]:
            del self._keys[name]
            gone += 1
        for asked in [asked for asked, ms in self._refills.items() if ms < before_ms][: limit - gone]:
            del self._refills[asked]
            self._served.pop(asked, None)
            gone += 1
        old = [row for row, (ms, *_) in self._outbox.items() if ms < before_ms and row not in self._unrelayed]
        for row in old[: reaching([self._outbox[row][1] for row in old], limit - gone)]:
            gone += self._outbox.pop(row)[1]
        return gone

    def bring_back(self, to_ms: int) -> int:
        ahead_ms = self._latest_ms - to_ms
        if ahead_ms <= 0:
            return 0
        self._latest_ms = to_ms
        self._outbox = {row: (min(ms, to_ms), *rest) for row, (ms, *rest) in self._outbox.items()}
        self._keys = {key: (*row[:2], min(row[2], to_ms)) for key, row in self._keys.items()}
        for asked in [key for key, ms in self._refills.items() if max(ms, self._served.get(key, 0)) > to_ms]:
            del self._refills[asked]
            self._served.pop(asked, None)
        return ahead_ms

    def counts(self) -> RecordCounts:
        active = sum(1 for row in self._edges.values() if row[4])
        deleted = sum(1 for row in self._pins.values() if row[5] is not None)
        return RecordCounts(
            active, len(self._edges) - active, len(self._boards), len(self._pins), deleted, self.backlog().actions
        )

    def close(self) -> None:
        pass


class _Rows:
    """Implements `BoardRows`: nothing else happens meanwhile."""

    def __init__(self, shard: MemoryShard, board: int) -> None:
        self._shard = shard
        self._board = board

    def pins(self, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        return {pin.pin: pin for pin in self._shard.board_pins(self._board, keys)}

    def run(self, way: Way, start: Start, limit: int, look: int) -> Run:
        return self._shard.board_run(self._board, way, start, limit, look, ())

    def quiet(self) -> int | None:
        return self._shard.quiet(self._board)
