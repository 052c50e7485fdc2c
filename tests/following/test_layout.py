"""The cell layout: order, round trips, and the golden vectors that the Java side reads too."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from feedstore.domain import MAX_ID, Entry
from feedstore.following import columns, entries_of, pins_and_times, row_key
from feedstore.following.layout import bucket_range, column, golden_vectors, pins_of

VECTORS = Path(__file__).parents[2] / "schemas" / "cell-layout.json"
ids = st.integers(1, MAX_ID)
entries = st.builds(Entry, ids, ids)


def test_the_golden_vectors_are_current():
    assert VECTORS.read_text(encoding="utf-8") == golden_vectors()


def test_the_golden_vectors_hold():
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    for vector in vectors["rows"]:
        assert row_key(vector["user"]).hex() == vector["row"]
    for vector in vectors["columns"]:
        assert column(vector["pin"], vector["created_ms"]).hex() == vector["column"]


@given(ids)
def test_a_row_key_is_nine_bytes_and_leads_back_to_its_user(user: int):
    assert len(row_key(user)) == 9
    assert int.from_bytes(row_key(user)[1:]) == user


@given(st.lists(entries))
def test_columns_lead_back_to_their_entries(some: list[Entry]):
    assert entries_of(columns([(entry.pin, entry.created_ms) for entry in some])) == some


@given(st.lists(entries))
def test_pins_and_times_are_those_of_the_entries(some: list[Entry]):
    cells = columns([(entry.pin, entry.created_ms) for entry in some])
    assert pins_and_times(cells) == [number for entry in some for number in (entry.pin, entry.created_ms)]
    assert pins_of(cells) == [entry.pin.to_bytes(8, "big") for entry in some]


@given(entries, entries)
def test_columns_sort_newest_first_then_by_ascending_pin(one: Entry, other: Entry):
    by_rule = (-one.created_ms, one.pin) < (-other.created_ms, other.pin)
    assert (column(one.pin, one.created_ms) < column(other.pin, other.created_ms)) == by_rule


def test_sequential_users_spread_evenly_over_the_buckets():
    counts = [0] * 256
    for user in range(1, 256 * 100 + 1):
        counts[row_key(user)[0]] += 1
    assert min(counts) >= 80
    assert max(counts) <= 120


@given(ids, ids)
def test_a_bucket_range_holds_exactly_its_users_from_one_on(user: int, first: int):
    row = row_key(user)
    start, stop = bucket_range(row[0], first)
    assert (start <= row and (stop is None or row < stop)) == (user >= first)
