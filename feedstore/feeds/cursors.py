"""Cursors: where the next page of a feed begins. Opaque to users, versioned, refused when malformed or another
user's.

Version 1, 29 bytes in URL-safe base64: version (1), CRC-32 (4) of the user id and the rest, how many entries were
returned so far (8),
the column of the last one (16). The checksum finds damage and mix-ups; it is no signature.
"""

import base64
import binascii
import struct
from zlib import crc32

import msgspec

from feedstore.domain import check_id

_VERSION = 1
_HEAD = struct.Struct(">BI")
_BODY = struct.Struct(">Q16s")
_USER = struct.Struct(">Q").pack
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class MalformedCursorError(ValueError):
    """A cursor that no page of this list gave out: begin again from the first page."""


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


def sealed(owner: bytes, body: bytes) -> str:
    """The text that stands for `body` in the list of `owner`, and in no other."""
    raw = _HEAD.pack(_VERSION, crc32(owner + body)) + body
    return binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def unsealed(owner: bytes, text: str, body_bytes: int) -> bytes:
    """What `sealed` was given. Raises MalformedCursorError."""
    length = -(-4 * (_HEAD.size + body_bytes) // 3)
    if len(text) != length:
        raise MalformedCursorError(f"cursor: expected {length} characters, got {len(text)}")
    try:
        raw = base64.b64decode(text + "=" * (-length % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedCursorError("cursor: not URL-safe base64") from error
    if raw[0] != _VERSION:
        raise MalformedCursorError(f"cursor: unknown version {raw[0]}")
    body = raw[_HEAD.size :]
    if raw[: _HEAD.size] != _HEAD.pack(_VERSION, crc32(owner + body)):
        raise MalformedCursorError("cursor: damaged, or of something else, such as the feed of another user")
    if sealed(owner, body) != text:
        raise MalformedCursorError("cursor: not in its canonical form")
    return body
