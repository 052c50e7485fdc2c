"""Dead letters go: the old ones, and the oldest of too many; each that went is logged."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from workers.following.housekeeping import LettersKept, expire_letters
from workers.following.topics import ACTIONS
from workers.queue.embedded import EmbeddedDeadLetters, open_dead_letters
from workers.queue.port import DeadLetter, DeadLetters

DAY = 86_400_000


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[EmbeddedDeadLetters]:
    with closing(open_dead_letters(tmp_path / "dead.db")) as letters:
        yield letters


def _bury(dead: DeadLetters, *died_ms: int) -> None:
    for number, at_ms in enumerate(died_ms):
        dead.bury(ACTIONS, "expander", f"malformed-{number}", "detail", at_ms, b"%d" % number)


Gone = list[tuple[int, str, str]]


def _expired(dead: DeadLetters, kept: LettersKept, now_ms: int) -> tuple[Gone, list[int]]:
    """What was told of those that went, and the ids of those that stay."""
    gone: Gone = []

    def told(letter: DeadLetter, why: str) -> None:
        assert dead.letter(letter.id) is None  # told of what went, not of what another process may drop first
        gone.append((letter.id, letter.reason, why))

    expire_letters(dead, kept, now_ms, told)
    return gone, [each.id for each in dead.letters(0, 10_000)]


def test_what_is_older_than_its_age_goes_and_is_told_with_its_id_and_reason(dead: EmbeddedDeadLetters) -> None:
    _bury(dead, 1 * DAY, 2 * DAY, 9 * DAY)

    gone, left = _expired(dead, LettersKept(5 * DAY, 100), 10 * DAY)

    assert gone == [(1, "malformed-0", "too old"), (2, "malformed-1", "too old")]
    assert left == [3]
    assert _expired(dead, LettersKept(5 * DAY, 100), 10 * DAY) == ([], [3])


def test_of_too_many_the_oldest_go(dead: EmbeddedDeadLetters) -> None:
    _bury(dead, *range(1, 251))

    gone, left = _expired(dead, LettersKept(DAY, 10), 300)

    assert [letter for letter, _, _ in gone] == list(range(1, 241))
    assert {why for _, _, why in gone} == {"too many"}
    assert left == list(range(241, 251))


def test_a_letter_of_a_time_to_come_stays(dead: EmbeddedDeadLetters) -> None:
    _bury(dead, 10 * DAY)

    assert _expired(dead, LettersKept(DAY, 10), 2 * DAY) == ([], [1])


def test_nothing_to_expire_in_an_empty_file(dead: EmbeddedDeadLetters) -> None:
    assert _expired(dead, LettersKept(1, 1), 10 * DAY) == ([], [])


def test_two_at_once_keep_as_many_as_are_to_be_kept_and_tell_each_once(dead: EmbeddedDeadLetters) -> None:
    _bury(dead, *range(1, 251))
    kept = LettersKept(DAY, 10)
    gone: list[int] = []

    def told(letter: DeadLetter, _: str) -> None:
        gone.append(letter.id)
        if len(gone) == 1:
            expire_letters(dead, kept, 300, told)

    expire_letters(dead, kept, 300, told)

    assert [each.id for each in dead.letters(0, 10_000)] == list(range(241, 251))
    assert gone == list(range(1, 241))
