"""Cursors of boards: where the next page begins. The body: the spot (sequence 16, pin 8), then MAX_MARKS marks of pin
(8), created_ms (6) and moved_ms (6), filled up with zeros, then `Place.seen` as another spot, if there is one. The
first bit of the first spot's pin, which is 0 in every id, is set if the page goes up.
"""

import struct

from feedstore.boards.port import MAX_MARKS, BoardPage, Mark, Place
from feedstore.boards.sequences import Spot
from feedstore.domain import MAX_ID, check_id
from feedstore.domain.cursors import MalformedCursorError, sealed, unsealed

_SPOT = struct.Struct(">16sQ")
_MARK = struct.Struct(">Q6s6s")
_UP = 1 << 63
_BYTES = _SPOT.size + MAX_MARKS * _MARK.size
_CHARACTERS = len(sealed(b"", bytes(_BYTES)))


def encode(board: int, place: Place) -> str:
    """The cursor of a place of this board: 252 characters, or 284 with `seen`."""
    marks = b"".join(
        _MARK.pack(mark.pin, mark.created_ms.to_bytes(6, "big"), mark.moved_ms.to_bytes(6, "big"))
        for mark in place.marks
    )
    body = _spot(place.spot, _UP if place.way == "up" else 0) + marks
    seen = b"" if place.seen is None else _spot(place.seen)
    return sealed(_owner(board), body.ljust(_BYTES, b"\0") + seen)


def decode(board: int, text: str) -> Place:
    """The place in a cursor. Raises MalformedCursorError if `text` is no cursor of this board."""
    check_id("board", board)
    body = unsealed(_owner(board), text, _BYTES + (_SPOT.size if len(text) > _CHARACTERS else 0))
    sequence, pin = _SPOT.unpack_from(body)
    marks = [
        Mark(marked, int.from_bytes(created, "big"), int.from_bytes(moved, "big"))
        for marked, created, moved in _MARK.iter_unpack(body[_SPOT.size : _BYTES])
        if marked
    ]
    way, pin = pin & _UP, pin & ~_UP
    seen = [Spot(int.from_bytes(at, "big"), last) for at, last in _SPOT.iter_unpack(body[_BYTES:])]
    if max(pin, *(mark.pin for mark in marks), *(spot.pin for spot in seen), 0) > MAX_ID:
        raise MalformedCursorError("no pin has such an id")
    spot = Spot(int.from_bytes(sequence, "big"), pin)
    return Place(spot, tuple(marks), "up" if way else "down", seen[0] if seen else None)


def _spot(spot: Spot, way: int = 0) -> bytes:
    return _SPOT.pack(spot.sequence.to_bytes(16, "big"), spot.pin | way)


def around(board: int, page: BoardPage) -> tuple[str | None, str | None]:
    """The cursors of the pages below and above a page; None if there is none."""
    below, above = (None if place is None else encode(board, place) for place in (page.after, page.above))
    return below, above


def _owner(board: int) -> bytes:
    return b"board:%d" % board
