"""The wire format, against the examples of its own description and against what is cut off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.widecolumn.hbase.protobuf import delimited, fields, number, text, undelimited

NUMBERS = st.integers(1, 2**29 - 1)
FIELDS = st.lists(st.tuples(NUMBERS, st.integers(0, 2**63 - 1) | st.binary(max_size=300)), max_size=5)


def encoded(some: list[tuple[int, int | bytes]]) -> bytes:
    return b"".join(text(at, value) if isinstance(value, bytes) else number(at, value) for at, value in some)


def test_the_examples_of_its_description():
    """https://protobuf.dev/programming-guides/encoding/"""
    assert number(1, 150) == bytes.fromhex("089601")
    assert text(2, b"testing") == bytes.fromhex("120774657374696e67")
    assert text(3, number(1, 150)) == bytes.fromhex("1a03089601")


@given(FIELDS)
def test_what_is_written_is_read(some: list[tuple[int, int | bytes]]):
    message = encoded(some)
    assert list(fields(message)) == some
    assert undelimited(b"x" + delimited(message) + b"y", 1) == (message, len(delimited(message)) + 1)


@given(FIELDS.filter(bool), st.data())
def test_a_message_that_is_cut_off_is_refused(some: list[tuple[int, int | bytes]], data: st.DataObject):
    message = delimited(encoded(some))
    with pytest.raises(ValueError, match=r"ends after|does not end"):
        undelimited(message[: data.draw(st.integers(0, len(message) - 1))], 0)


@pytest.mark.parametrize("message", [b"\x09" + b"\0" * 8, b"\x0d" + b"\0" * 4, b"\x08" + b"\xff" * 11])
def test_other_kinds_of_fields_are_refused(message: bytes):
    with pytest.raises(ValueError, match=r"wire type|does not end"):
        list(fields(message))
