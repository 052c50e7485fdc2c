"""The text of cursors: opaque to users, versioned, refused if malformed or of another list.

Version 1, in URL-safe base64: version (1), CRC-32 (4) of the owner and the body, body. The checksum detects damage and
mix-ups; it is not a signature.
"""

import base64
import binascii
import struct
from zlib import crc32

_VERSION = 1
_HEAD = struct.Struct(">BI")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class MalformedCursorError(ValueError):
    """A cursor that no page of this list gave out: begin again from the first page. why: what is wrong with it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cursor: {why}: start again without one")


def sealed(owner: bytes, body: bytes) -> str:
    """The text for `body` in the list of `owner`; it is invalid in any other."""
    raw = _HEAD.pack(_VERSION, crc32(owner + body)) + body
    return binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def unsealed(owner: bytes, text: str, body_bytes: int) -> bytes:
    """The body that `sealed` was given. Raises MalformedCursorError."""
    length = -(-4 * (_HEAD.size + body_bytes) // 3)
    if len(text) != length:
        raise MalformedCursorError(f"expected {length} characters, got {len(text)}")
    try:
        raw = base64.b64decode(text + "=" * (-length % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedCursorError("not URL-safe base64") from error
    if raw[0] != _VERSION:
        raise MalformedCursorError(f"unknown version {raw[0]}")
    body = raw[_HEAD.size :]
    if raw[: _HEAD.size] != _HEAD.pack(_VERSION, crc32(owner + body)):
        raise MalformedCursorError("it is damaged, or it is from another list, such as the feed of another user")
    if sealed(owner, body) != text:
        raise MalformedCursorError("it is not in its canonical form")
    return body
