"""Cursors: where the next page of a feed begins. Opaque to users, versioned, refused when malformed or another
user's.

Version 1, 29 bytes in URL-safe base64: version (1), CRC-32 (4) of the user id and the rest, how many entries were
returned so far (8),
the column of the last one (16). The checksum finds damage and mix-ups; it is no signature.
"""

import base64
import binascii
import struct
from typing import NamedTuple
from zlib import crc32

from feedstore.domain import check_id

_VERSION = 1
_HEAD = struct.Struct(">BI").pack
_BODY = struct.Struct(">Q16s")
_USER = struct.Struct(">Q").pack
_BYTES = 29
_TEXT_LENGTH = 39  # 29 bytes in unpadded base64
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class MalformedCursorError(ValueError):
    """A cursor that no page of this user's feed gave out: begin again from the first page."""


class Cursor(NamedTuple):
    """returned: how many entries the pages so far held; it lets the cap hold across pages. last: the column they
    ended with.
    """

    returned: int
    last: bytes


def encode_cursor(user: int, cursor: Cursor) -> str:
    body = _BODY.pack(cursor.returned, cursor.last)
    raw = _HEAD(_VERSION, crc32(_USER(user) + body)) + body
    return binascii.b2a_base64(raw, newline=False)[:_TEXT_LENGTH].translate(_URL_SAFE).decode()


def decode_cursor(user: int, text: str) -> Cursor:
    """Raises MalformedCursorError where `text` is not a cursor of this user's feed."""
    check_id("user", user)
    if len(text) != _TEXT_LENGTH:
        raise MalformedCursorError(f"cursor: expected {_TEXT_LENGTH} characters, got {len(text)}")
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedCursorError("cursor: not URL-safe base64") from error
    if raw[0] != _VERSION:
        raise MalformedCursorError(f"cursor: unknown version {raw[0]}")
    body = raw[5:_BYTES]
    if raw[:5] != _HEAD(_VERSION, crc32(_USER(user) + body)):
        raise MalformedCursorError("cursor: damaged, or from the feed of another user")
    cursor = Cursor(*_BODY.unpack(body))
    if encode_cursor(user, cursor) != text:
        raise MalformedCursorError("cursor: not in its canonical form")
    return cursor
