"""Cursors are opaque, and refused when malformed or another user's."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.domain import MAX_ID, InvalidValueError
from feedstore.domain.cursors import MalformedCursorError
from feedstore.following import Cursor, decode_cursor, encode_cursor

ids = st.integers(1, MAX_ID)
cursors = st.builds(Cursor, st.integers(0, 2**64 - 1), st.binary(min_size=16, max_size=16))

GOOD = encode_cursor(7, Cursor(25, bytes(range(16))))


@given(ids, cursors)
def test_a_cursor_comes_back(user: int, cursor: Cursor):
    assert decode_cursor(user, encode_cursor(user, cursor)) == cursor


def test_a_cursor_fits_a_query_string_as_it_is():
    assert GOOD.isascii()
    assert set(GOOD) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(cursors, ids, ids)
def test_a_cursor_of_another_user_is_refused(cursor: Cursor, one: int, other: int):
    if one != other:
        with pytest.raises(MalformedCursorError, match="another user"):
            decode_cursor(other, encode_cursor(one, cursor))


@pytest.mark.parametrize("position", range(len(GOOD)))
def test_a_cursor_with_one_character_changed_is_refused(position: int):
    changed = "A" if GOOD[position] != "A" else "B"
    with pytest.raises(MalformedCursorError):
        decode_cursor(7, GOOD[:position] + changed + GOOD[position + 1 :])


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str):
    with pytest.raises(MalformedCursorError):
        decode_cursor(7, text)


def test_another_version_is_refused_by_name():
    raw = bytearray(base64.urlsafe_b64decode(GOOD + "="))
    raw[0] = 2
    with pytest.raises(MalformedCursorError, match="unknown version 2"):
        decode_cursor(7, base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


def test_a_user_that_is_no_id_is_refused():
    with pytest.raises(InvalidValueError):
        decode_cursor(0, GOOD)
