"""The record that pages of the real servers are checked against, by itself."""

import pytest

from feedstore.domain import Entry, Followed, Pin, PinDeleted, PinSaved, Unfollowed, user
from tests.stack.history import History, Shown, is_in_order

READER, OWNER = 1, 2


@pytest.fixture
def history() -> History:
    """Pins 1 to 3 are saved at 1,000, 2,000 and 3,000; pin 1 is deleted at 4,000. Nothing is followed from 5,000 on."""
    history = History()
    history.edge(Followed(READER, user(OWNER), 500, 500))
    for pin in (1, 2, 3):
        history.saved(PinSaved(_pin(pin), 1_000 * pin))
    history.deleted(PinDeleted(_pin(1), 4_000))
    history.edge(Unfollowed(READER, user(OWNER), 5_000, 5_000))
    return history


def _pin(number: int) -> Pin:
    return Pin(number, OWNER, OWNER, 100 + number)


def _is_wrong(history: History, since_ms: int, came_ms: int, *pins: int, is_last: bool = True, after: int = 0) -> bool:
    """Of a page that admits to be as old as `since_ms`."""
    entries = [Entry(pin, 100 + pin) for pin in pins]
    before = Entry(after, 100 + after) if after else None
    shown = Shown(READER, came_ms, came_ms, before, entries, is_last, "a", came_ms - since_ms)
    return bool(history.wrong([shown]))


def test_a_page_shows_all_that_was_committed_before_the_time_that_it_admits(history: History):
    assert not _is_wrong(history, 2_001, 2_500, 2, 1)
    assert _is_wrong(history, 2_001, 2_500, 1)
    assert _is_wrong(history, 2_001, 2_500, 2)
    assert not _is_wrong(history, 2_000, 2_500, 1), "what was committed at that time may be missing"


def test_of_what_was_committed_later_it_shows_any_part(history: History):
    for pins in ((1,), (2, 1), (3, 1), (3, 2, 1)):
        assert not _is_wrong(history, 1_500, 3_500, *pins)
    assert _is_wrong(history, 1_500, 2_500, 3, 1), "it came before pin 3 was saved"
    assert _is_wrong(history, 1_500, 3_500, 9, 1), "there is no such pin"


def test_what_is_gone_by_then_is_not_shown(history: History):
    assert not _is_wrong(history, 4_001, 4_500, 3, 2)
    assert _is_wrong(history, 4_001, 4_500, 3, 2, 1)
    assert not _is_wrong(history, 5_001, 6_000)
    assert _is_wrong(history, 5_001, 6_000, 3)
    assert not _is_wrong(history, 3_500, 6_000, 3), "it may be going just now"


def test_only_what_lies_between_two_pages_is_missed(history: History):
    assert not _is_wrong(history, 3_500, 3_900, 3, is_last=False)
    assert not _is_wrong(history, 3_500, 3_900, 2, 1, after=3)
    assert _is_wrong(history, 3_500, 3_900, 1, after=3)
    assert _is_wrong(history, 3_500, 3_900, 3, 1, is_last=False)


def test_a_page_of_an_unknown_age_may_be_as_old_as_it_likes(history: History):
    assert not history.wrong([Shown(READER, 3_900, 3_900, None, [], True, "a", None)])
    unknown = Shown(READER, 3_900, 3_900, None, [Entry(9, 109)], True, "a", None)
    assert [wrong.extra for wrong in history.wrong([unknown])] == [[Entry(9, 109)]]


def test_entries_come_newest_first_and_once():
    assert is_in_order([Entry(1, 7), Entry(2, 7), Entry(9, 3)])
    assert not is_in_order([Entry(2, 7), Entry(1, 7)])
    assert not is_in_order([Entry(1, 7), Entry(1, 7)])
