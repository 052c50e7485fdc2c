"""How values are written where msgspec does not do it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from feedstore.domain import MAX_ID
from feedstore.following import columns
from feedstore.following.wire import EntryLine, entry_lines

numbers = st.integers(1, MAX_ID)


@given(st.lists(st.tuples(numbers, numbers)))
def test_the_lines_of_a_page_are_what_msgspec_makes_of_them(pins: list[tuple[int, int]]):
    lines = [EntryLine(str(pin), created_ms) for pin, created_ms in pins]
    assert bytes(entry_lines(columns(pins))) == msgspec.json.encode(lines)
