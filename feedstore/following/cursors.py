"""Cursors: where the next page of a feed begins. The body, 24 bytes: how many entries were returned so far (8), the
column of the last one (16).
"""

import struct

import msgspec

from feedstore.domain import check_id
from feedstore.domain.cursors import sealed, unsealed

_BODY = struct.Struct(">Q16s")
_USER = struct.Struct(">Q").pack


class Cursor(msgspec.Struct, frozen=True):
    """returned: how many entries the pages so far held; it lets the cap hold across pages. last: the column they
    ended with.
    """

    returned: int
    last: bytes


def encode_cursor(user: int, cursor: Cursor) -> str:
    return sealed(_USER(user), _BODY.pack(cursor.returned, cursor.last))


def decode_cursor(user: int, text: str) -> Cursor:
    """Raises MalformedCursorError where `text` is not a cursor of this user's feed."""
    check_id("user", user)
    return Cursor(*_BODY.unpack(unsealed(_USER(user), text, _BODY.size)))
