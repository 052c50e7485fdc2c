"""Which of a fact's two records is out of date, as pure functions from rows to rows.

The store keeps some facts twice, on two shards: an edge with its follower and in the follower index of its followee, a
pin by itself and in the indexes of its owner and of its board. The record is written first, the index once the action
is expanded. If a shard is brought back from a copy, its rows are older than those of the others, and an action that was
not expanded when the copy was taken is in no index. Neither repairs itself: nothing writes those rows again.

Each row says when it was written, and the later one is right: a record is older than its index only if a newer state of
it was lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from feedstore.follows.shard import (
    KIND_CODES,
    Changes,
    EdgeKey,
    EdgeRow,
    FollowerKey,
    FollowerRow,
    PinIndexKey,
    PinIndexRow,
    PinRow,
    Standing,
    Wanted,
)

_BOARD: Final = KIND_CODES["board"]
_USER: Final = KIND_CODES["user"]


class LostRecords(NamedTuple):
    """Records that the indexes know, and that the record's own shard lacks or has in an older state."""

    edges: list[EdgeRow]
    pins: list[PinRow]

    def wanted(self) -> Wanted:
        """The keys of the stored records that `restored` needs."""
        return Wanted(
            clocks=[row[0] for row in self.edges],
            edges=[row[:3] for row in self.edges],
            pins=[row[0] for row in self.pins],
        )


def unindexed_edges(edges: Sequence[EdgeRow], indexed: Mapping[FollowerKey, FollowerRow]) -> list[FollowerRow]:
    """The rows to write into the follower indexes, where an edge has an older row, or none. An ended edge needs
    none.
    """
    rows = []
    for follower, kind, followee, ts, active, _ in edges:
        held = indexed.get((kind, followee, follower))
        if active if held is None else held[3] < ts:
            rows.append((kind, followee, follower, ts, active))
    return rows


def lost_edges(followers: Sequence[FollowerRow], stored: Mapping[EdgeKey, EdgeRow]) -> list[EdgeRow]:
    """The edges to write, because the stored ones are missing, or older than these rows of an index. An index does not
    have the time of the commit, so the edge's own time is used: it is the same, or a little later (rule 2).
    """
    rows = []
    for kind, followee, follower, ts, active in followers:
        held = stored.get((follower, kind, followee))
        if held is None or held[3] < ts:
            rows.append((follower, kind, followee, ts, active, ts))
    return rows


def line_keys(pins: Sequence[PinRow]) -> Iterator[PinIndexKey]:
    """The keys of the lines that these pins have in the indexes, one for the board and one for the owner."""
    for pin, owner, board, created_ms, *_ in pins:
        yield _BOARD, board, created_ms, pin
        yield _USER, owner, created_ms, pin


def unindexed_pins(pins: Sequence[PinRow], indexed: Mapping[PinIndexKey, PinIndexRow]) -> list[PinIndexRow]:
    """The lines to write into the pin indexes, where a pin has an older line, or none. Deleted pins need none."""
    lines = []
    for row in pins:
        _, owner, board, _, saved_ms, deleted_ms = row
        for key in line_keys([row]):
            line = (*key, owner, board, saved_ms, deleted_ms)
            held = indexed.get(key)
            if deleted_ms is None if held is None else _is_behind(held, line):
                lines.append(line)
    return lines


def _is_behind(held: PinIndexRow, line: PinIndexRow) -> bool:
    return held[6] < line[6] or (held[7] or 0) < (line[7] or 0)


def lost_pins(lines: Sequence[PinIndexRow], stored: Mapping[int, PinRow]) -> list[PinRow]:
    """The pins to write, because the stored ones are missing, or lack a deletion that these lines of an index have. A
    line with another owner, board or time than the pin's record is left to `strayed`.
    """
    rows = []
    for _, _, created_ms, pin, owner, board, saved_ms, deleted_ms in lines:
        held = stored.get(pin)
        if held is None:
            rows.append((pin, owner, board, created_ms, saved_ms or (deleted_ms or 0), deleted_ms))
        elif held[1:4] == (owner, board, created_ms) and (held[5] or 0) < (deleted_ms or 0):
            rows.append((*held[:5], deleted_ms))
    return rows


def strayed(lines: Sequence[PinIndexRow], stored: Mapping[int, PinRow], now_ms: int) -> list[PinIndexRow]:
    """The lines that disagree with the records of their pins, marked deleted. Such a pin was lost, and saved again with
    another owner, board or time before the shards agreed: the record is right.
    """
    return [
        (*line[:7], now_ms)
        for line in lines
        if line[7] is None and line[3] in stored and line[:4] not in line_keys([stored[line[3]]])
    ]


def restored(records: LostRecords, standing: Standing) -> Changes:
    """The writes that bring these records back, unless what is stored is newer by now."""
    changes = Changes.none()
    for edge in records.edges:
        held = standing.edges.get(edge[:3])
        if held is None or held[3] < edge[3]:
            changes.edges[edge[:3]] = edge
        changes.clocks[edge[0]] = max(edge[3], changes.clocks.get(edge[0], standing.clocks.get(edge[0], 0)))
    for pin in records.pins:
        stored = changes.pins.get(pin[0], standing.pins.get(pin[0]))
        if stored is None:
            changes.pins[pin[0]] = pin
        elif stored[1:4] == pin[1:4]:
            deleted_ms = max(stored[5] or 0, pin[5] or 0) or None
            changes.pins[pin[0]] = (*stored[:4], max(stored[4], pin[4]), deleted_ms)
    return changes
