"""The arithmetic of sequences, compared with what it is to mean."""

import itertools
import random
from decimal import Decimal
from functools import cache

import pytest

from feedstore.boards import SPACING, Mark, Place, Spacing, Spot, between, cursors, room
from feedstore.domain import MAX_ID
from feedstore.domain.cursors import MalformedCursorError

IN_2286 = 9_999_999_999_999
TINY = Spacing(unit=64, step=1, last_id=63, ceiling=64 * 64, threshold=2, restored=3)


def drops(gap: int, *, into_the_larger: bool) -> int:
    """How many pins fit, one after the other, each at the middle of one of the two gaps that the last one left."""
    above, below, count = gap, 0, 0
    while (middle := between(above, below)) is not None:
        count += 1
        if (above - middle > middle - below) == into_the_larger:
            below = middle
        else:
            above = middle
    return count


@cache
def fewest_drops(gap: int) -> int:
    """By brute force: whichever of the two gaps each next drop chooses."""
    if gap < 2:
        return 0
    half = gap // 2
    return 1 + min(fewest_drops(half), fewest_drops(gap - half))


def test_room_is_the_number_of_drops_that_a_gap_takes_at_least() -> None:
    assert [room(gap) for gap in range(1, 600)] == [fewest_drops(gap) for gap in range(1, 600)]
    assert room(0) == -1


def test_eight_seconds_apart_three_bisections_as_integers_of_seconds_had_it() -> None:
    assert room(8) == 3


def test_pins_one_millisecond_apart_take_83_drops_for_certain_and_84_at_best() -> None:
    gap = SPACING.unit
    assert room(gap) == 83
    assert drops(gap, into_the_larger=False) == 83
    assert drops(gap, into_the_larger=True) == 84


@pytest.mark.parametrize(("upper", "lower"), [(1, MAX_ID), (MAX_ID, 1), (5, 5)])
def test_one_millisecond_apart_is_83_whatever_the_ids(upper: int, lower: int) -> None:
    gap = SPACING.virtual(1_700_000_000_001, upper) - SPACING.virtual(1_700_000_000_000, lower)
    assert room(gap) >= 83
    assert drops(gap, into_the_larger=False) >= 83


def test_adjacent_ids_of_one_millisecond_take_13_drops() -> None:
    gap = SPACING.virtual(1_700_000_000_000, 8) - SPACING.virtual(1_700_000_000_000, 9)
    assert room(gap) == 13
    assert drops(gap, into_the_larger=False) == 13


def test_the_step_is_the_largest_power_of_ten_that_keeps_83() -> None:
    def worst(step: int) -> int:
        spacing = Spacing(step=step)
        return room(max(0, spacing.virtual(2, MAX_ID) - spacing.virtual(1, 1)))

    assert [worst(10**power) for power in (4, 5, 6, 7)] == [83, 82, 79, -1]


def test_virtual_sequences_are_in_feed_order_and_never_equal() -> None:
    rng = random.Random(1)
    pins = [(1, 1), (1, MAX_ID), (IN_2286, 1), (IN_2286, MAX_ID)]
    pins += [(rng.choice((7, 8, rng.randint(1, IN_2286))), rng.randint(1, MAX_ID)) for _ in range(100_000)]
    pins = list(dict.fromkeys(pins))
    in_feed_order = sorted(pins, key=lambda pin: (-pin[0], pin[1]))
    sequences = [SPACING.virtual(*pin) for pin in in_feed_order]
    assert all(upper > lower for upper, lower in itertools.pairwise(sequences))
    assert all(0 < sequence < SPACING.ceiling for sequence in sequences)
    assert [sequence // SPACING.unit for sequence in sequences] == [created_ms for created_ms, _ in in_feed_order]


def test_38_digits_are_enough_until_2286() -> None:
    assert len(str(SPACING.virtual(IN_2286, 1))) == 38
    assert SPACING.ceiling.bit_length() <= 127


def test_neither_floats_nor_decimals_could_hold_a_sequence() -> None:
    upper, lower = SPACING.virtual(1_700_000_000_000, 8), SPACING.virtual(1_700_000_000_000, 9)
    assert float(upper) == float(lower)
    assert Decimal(upper) + Decimal(lower) != upper + lower  # 28 digits, by default


# The ends of a board
# --------------------------------------------------------------------------------------------------------------------


def test_the_top_is_as_if_saved_now() -> None:
    top = SPACING.virtual(1_700_000_000_000, 5)
    placed = SPACING.above_all(1_700_000_500_000, top)
    assert placed is not None
    assert top < placed
    for pin in (1, MAX_ID - 1):
        assert placed < SPACING.virtual(1_700_000_500_001, pin)


def test_a_thousand_pins_moved_to_the_top_in_one_millisecond_are_below_the_next_that_is_saved() -> None:
    now_ms, top = 1_700_000_000_000, SPACING.virtual(1_600_000_000_000, 5)
    for _ in range(1_000):
        above = SPACING.above_all(now_ms, top)
        assert above is not None
        assert above > top
        assert room(above - top) >= SPACING.restored
        top = above
    assert top < SPACING.virtual(now_ms + 1, MAX_ID)


def test_the_top_may_be_dated_ahead() -> None:
    top = SPACING.virtual(1_700_000_120_000, 5)
    placed = SPACING.above_all(1_700_000_000_000, top)
    assert placed == top + SPACING.lift


def test_near_the_ceiling_the_middle_is_taken_until_there_is_none() -> None:
    top, count = SPACING.ceiling - SPACING.lift, 0
    while (above := SPACING.above_all(1, top)) is not None:
        assert top < above < SPACING.ceiling
        top, count = above, count + 1
    assert count >= SPACING.restored
    assert top == SPACING.ceiling - 1


def test_the_bottom_ends_above_zero() -> None:
    bottom, count = 3 * SPACING.lift, 0
    while (below := SPACING.below_all(bottom)) is not None:
        assert 0 < below < bottom
        bottom, count = below, count + 1
    assert count >= SPACING.restored
    assert bottom == 1


def test_the_oldest_pin_that_can_be_takes_as_many_moves_to_the_bottom_as_the_newest_to_the_top() -> None:
    assert SPACING.virtual(1, MAX_ID) // SPACING.lift > 10**12
    assert (SPACING.ceiling - SPACING.virtual(IN_2286 - 1, 1)) // SPACING.lift > 10**12


# Where reading starts
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3])
def test_a_reading_starts_directly_past_its_place(step: int) -> None:
    spacing = Spacing(unit=64, step=step, last_id=63 // step, ceiling=4 * 64, threshold=2, restored=3)
    lines = [(created_ms, pin) for created_ms in range(1, 4) for pin in range(1, spacing.last_id + 1)]
    for sequence in range(64, 4 * 64):
        for pin in (1, 2, 5, 17, spacing.last_id):
            spot = Spot(sequence, pin)
            spots = {line: Spot(spacing.virtual(*line), line[1]) for line in lines}
            down, up = spacing.start("down", spot), spacing.start("up", spot)
            below = [line for line in lines if spots[line].order() > spot.order()]
            above = [line for line in lines if spots[line].order() < spot.order()]
            assert below == [line for line in lines if (-line[0], line[1]) > (-down.created_ms, down.line)], spot
            assert above == [line for line in lines if (-line[0], line[1]) < (-up.created_ms, up.line)], spot


def test_every_start_fits_a_signed_64_bit_integer() -> None:
    for spot in (SPACING.top, SPACING.bottom, Spot(SPACING.virtual(IN_2286, MAX_ID), MAX_ID)):
        for way in ("down", "up"):
            start = SPACING.start(way, spot)
            assert all(0 <= each <= MAX_ID for each in (start.pin, start.created_ms, start.line))


# Cursors
# --------------------------------------------------------------------------------------------------------------------


def test_a_cursor_brings_its_place_back() -> None:
    marks = tuple(Mark(MAX_ID - number, IN_2286, 1_700_000_000_000 + number) for number in range(8))
    for place in (Place(SPACING.top), Place(Spot(1, MAX_ID), marks), Place(Spot(SPACING.ceiling - 1, 7), marks[:3])):
        text = cursors.encode(9, place)
        assert len(text) == 252
        assert cursors.decode(9, text) == place


def test_a_cursor_of_another_board_or_a_damaged_one_is_refused() -> None:
    text = cursors.encode(9, Place(SPACING.top))
    for board, wrong in ((8, text), (9, text[:-1]), (9, text[:-2] + "BA"), (9, "")):
        with pytest.raises(MalformedCursorError):
            cursors.decode(board, wrong)
