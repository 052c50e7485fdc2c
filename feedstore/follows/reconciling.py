"""A walk through a store that makes the two rows of each edge and each pin agree; `copies` says which is right.

The row that may correct the other is read first: an index's row before its record, and later a record before its rows
in the indexes. An action that is recorded in between only makes the other row newer, and then nothing is corrected.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeVar

from feedstore.follows import copies, recording
from feedstore.follows.copies import LostRecords
from feedstore.follows.port import MAX_PAGE, Reconciled
from feedstore.follows.recording import Claims
from feedstore.follows.shard import EdgeRow, FollowerRow, PinIndexRow, PinRow, Shard, Wanted
from feedstore.follows.watched import Shards

_Row = TypeVar("_Row", bound=tuple[Any, ...])

_FIRST: Final = (-1, 0, 0, 0)
"""Before the key of every row: kinds and ids are never negative."""


def walk(shards: Shards, *, write: bool) -> Iterator[Reconciled]:
    """As `FollowStore.reconcile`.

    The indexes come first: the records that they bring back are compared with the other indexes afterwards.
    """
    every = range(len(shards))
    for number in every:
        for followers in _pages(shards, number, lambda shard, after: shard.all_followers_after(after[:3], MAX_PAGE), 3):
            yield _of_followers(shards, followers, write=write)
        for lines in _pages(shards, number, lambda shard, after: shard.all_lines_after(after, MAX_PAGE), 4):
            yield _of_lines(shards, number, lines, write=write)
    for number in every:
        for edges in _pages(
            shards, number, lambda shard, after: shard.all_edges_after(after[:3], MAX_PAGE, tombstones=True), 3
        ):
            yield _of_edges(shards, edges, write=write)
        for pins in _pages(shards, number, lambda shard, after: shard.pins_after(after[0], MAX_PAGE), 1):
            yield _of_pins(shards, pins, write=write)


def _pages(
    shards: Shards, number: int, read: Callable[[Shard, Any], Sequence[_Row]], key: int
) -> Iterator[Sequence[_Row]]:
    """The rows of a table of a shard. read: reads a page after a place. key: how many columns make a place."""
    after: tuple[Any, ...] = _FIRST
    while page := shards.on(number, lambda shard, after=after: read(shard, after)):  # type: ignore[misc]  # bound now
        yield page
        after = page[-1][:key]


def _of_followers(shards: Shards, rows: Sequence[FollowerRow], *, write: bool) -> Reconciled:
    keys = ((follower, kind, followee) for kind, followee, follower, *_ in rows)
    found = shards.on_those_of(keys, itemgetter(0), lambda shard, mine: shard.edges(mine))
    edges = copies.lost_edges(rows, {row[:3]: row for row in chain.from_iterable(found)})
    if write:
        _bring_back(shards, edges=edges)
    return Reconciled(len(rows), edges=len(edges))


def _of_lines(shards: Shards, number: int, lines: Sequence[PinIndexRow], *, write: bool) -> Reconciled:
    found = shards.on_those_of({line[3] for line in lines}, lambda pin: pin, lambda shard, mine: shard.pins(mine))
    stored = {row[0]: row for row in chain.from_iterable(found)}
    pins = copies.lost_pins(lines, stored)
    strayed = copies.strayed(lines, stored, shards.on(number, lambda shard: shard.now_ms()))
    if write:
        _bring_back(shards, pins=pins)
        if strayed:
            shards.on(number, lambda shard: shard.index_pins(strayed))
    return Reconciled(len(lines), pins=len({row[0] for row in pins}), index_rows=len(strayed))


def _of_edges(shards: Shards, rows: Sequence[EdgeRow], *, write: bool) -> Reconciled:
    keys = ((kind, followee, follower) for follower, kind, followee, *_ in rows)
    found = shards.on_those_of(keys, itemgetter(1), lambda shard, mine: shard.follower_rows(mine))
    behind = copies.unindexed_edges(rows, {row[:3]: row for row in chain.from_iterable(found)})
    if write:
        shards.on_those_of(behind, itemgetter(1), lambda shard, mine: shard.index_followers(mine))
    return Reconciled(len(rows), index_rows=len(behind))


def _of_pins(shards: Shards, rows: Sequence[PinRow], *, write: bool) -> Reconciled:
    found = shards.on_those_of(copies.line_keys(rows), itemgetter(1), lambda shard, mine: shard.lines(mine))
    behind = copies.unindexed_pins(rows, {row[:4]: row for row in chain.from_iterable(found)})
    owners = {board: owner for _, owner, board, *_ in rows}
    claimed = shards.on_those_of(owners, lambda board: board, lambda shard, mine: shard.board_owners(mine))
    known = dict(chain.from_iterable(each.items() for each in claimed))
    free = {board: owner for board, owner in owners.items() if board not in known}
    if write:
        shards.on_those_of(behind, itemgetter(1), lambda shard, mine: shard.index_pins(mine))
        shards.on_those_of(
            free, lambda board: board, lambda shard, mine: _claim(shard, {board: free[board] for board in mine})
        )
    disputed = {
        (board, known[board], owner) for _, owner, board, *_ in rows if board in known and known[board] != owner
    }
    return Reconciled(len(rows), boards=len(free), index_rows=len(behind), disputed=tuple(sorted(disputed)))


def _claim(shard: Shard, boards: dict[int, int]) -> None:
    shard.transact(Wanted(boards=list(boards)), lambda _, standing: recording.claim(Claims(boards, {}), standing))


def _bring_back(shards: Shards, *, edges: Sequence[EdgeRow] = (), pins: Sequence[PinRow] = ()) -> None:
    """Writes records on the shards that they belong to, unless what is stored there is newer by now."""
    edges_of, pins_of = shards.by_shard(edges, itemgetter(0)), shards.by_shard(pins, itemgetter(0))
    work = {
        number: LostRecords(edges_of.get(number, []), pins_of.get(number, [])) for number in {**edges_of, **pins_of}
    }
    shards.on_each(
        work,
        lambda shard, mine: shard.transact(mine.wanted(), lambda _, standing: (copies.restored(mine, standing), None)),
    )
