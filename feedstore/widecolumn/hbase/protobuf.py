"""The wire format of Protocol Buffers, as far as messages to HBase and from it need it: whole numbers, and bytes.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

_NUMBER, _BYTES = 0, 2


def number(field: int, value: int) -> bytes:
    """A field that holds a whole number, from 0."""
    return _varint(field << 3 | _NUMBER) + _varint(value)


def text(field: int, value: bytes) -> bytes:
    """A field that holds bytes, or a message."""
    return _varint(field << 3 | _BYTES) + delimited(value)


def delimited(message: bytes) -> bytes:
    """A message behind its length."""
    return _varint(len(message)) + message


def undelimited(data: bytes, at: int) -> tuple[bytes, int]:
    """The message behind the length at a place, and where it ends. Raises ValueError if it is not all there."""
    size, at = _read_varint(data, at)
    if at + size > len(data):
        raise ValueError(f"a message of {size} bytes ends after {len(data) - at}")
    return data[at : at + size], at + size


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in their order, each with its number. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value: int | bytes
        if key & 7 == _NUMBER:
            value, at = _read_varint(message, at)
        elif key & 7 == _BYTES:
            value, at = undelimited(message, at)
        else:
            raise ValueError(f"field {key >> 3}: expected a whole number or bytes, got wire type {key & 7}")
        yield key >> 3, value


def _varint(value: int) -> bytes:
    if value <= 0x7F:  # most of them
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")
