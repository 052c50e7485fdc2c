"""The promises of DeadLetters, on every adapter."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.embedded import open_dead_letters
from workers.queue.port import DeadLetter, DeadLetters


def test_a_letter_keeps_everything_that_was_said(letters: DeadLetters) -> None:
    letters.bury(DELIVERIES, "writer-a", "malformed", "line 1\n\u2026", 123, b"\x00\xff")
    (letter,) = letters.letters(0, 10)
    assert letter == DeadLetter(letter.id, DELIVERIES.name, "writer-a", "malformed", "line 1\n\u2026", 123, b"\x00\xff")
    assert letters.letter(letter.id) == letter
    assert letters.letter(letter.id + 1) is None


def test_burying_twice_keeps_the_first_letter(letters: DeadLetters) -> None:
    for reason, died_ms in (("first", 1), ("second", 2)):
        letters.bury(ACTIONS, "a", reason, "", died_ms, b"x")
    assert [(letter.reason, letter.died_ms) for letter in letters.letters(0, 10)] == [("first", 1)]


def test_another_topic_group_or_value_is_another_letter(letters: DeadLetters) -> None:
    letters.bury(ACTIONS, "a", "r", "", 1, b"x")
    letters.bury(DELIVERIES, "a", "r", "", 1, b"x")
    letters.bury(ACTIONS, "b", "r", "", 1, b"x")
    letters.bury(ACTIONS, "a", "r", "", 1, b"")
    assert letters.count() == 4


def test_letters_come_in_pages_by_ascending_id(letters: DeadLetters) -> None:
    for number in range(25):
        letters.bury(ACTIONS, "a", "r", "", 1, b"%d" % number)
    pages, last = [], 0
    while page := letters.letters(last, 10):
        pages.append(page)
        last = page[-1].id
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [letter.value for page in pages for letter in page] == [b"%d" % number for number in range(25)]
    with pytest.raises(ValueError, match="limit"):
        letters.letters(0, 0)


def test_a_dropped_letter_is_gone_and_its_id_is_never_used_again(letters: DeadLetters) -> None:
    assert not letters.drop(1)
    letters.bury(ACTIONS, "a", "r", "", 1, b"x")
    (first,) = letters.letters(0, 10)
    assert letters.drop(first.id)
    assert not letters.drop(first.id)
    assert letters.letter(first.id) is None
    assert letters.count() == 0
    letters.bury(ACTIONS, "a", "again", "", 2, b"x")
    (second,) = letters.letters(0, 10)
    assert (second.id > first.id, second.reason) == (True, "again")


def test_threads_bury_at_once(letters: DeadLetters) -> None:
    def bury(number: int) -> None:
        letters.bury(ACTIONS, "a", "r", "", 1, b"%d" % (number % 20))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(bury, range(60)))
    assert letters.count() == 20


def test_letters_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "letters.db"
    letters = open_dead_letters(path)
    letters.bury(ACTIONS, "a", "r", "", 1, b"x")
    letters.close()
    letters = open_dead_letters(path)
    assert letters.count() == 1
    letters.close()
