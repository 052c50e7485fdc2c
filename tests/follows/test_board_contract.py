"""The promises of the port of boards, on every adapter, with one shard and with three."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from board_tools import (
    BOARD,
    OWNER,
    a_board,
    asked,
    delete,
    narrowest,
    numbers,
    pages,
    relay,
    respace,
    rows_written,
    save,
    shown,
    shown_upwards,
)
from follow_places import NOW, FakeClock, Place

from feedstore.boards import (
    SPACING,
    BoardCrowdedError,
    Boards,
    Mark,
    Move,
    ReorderRefusedError,
    RoomSpread,
    Spot,
    cursors,
    room,
)
from feedstore.boards import Place as BoardPlace
from feedstore.boards.store import LOOK
from feedstore.domain import DeletePin, InvalidValueError, Pin, PinSaved, RespaceAsked, SavePin, board
from feedstore.follows.arranging import Arranged, BoardRows, LineKey, PinAt, PlacedRow, Way
from feedstore.follows.port import MAX_PAGE, Request
from feedstore.follows.store import FollowStore
from tests.simulation.boards import past_a_hole

MINUTE = 60_000


def refused(boards: Boards, move: Move) -> ReorderRefusedError:
    with pytest.raises(ReorderRefusedError) as caught:
        boards.reorder(move)
    return caught.value


# Reorders
# --------------------------------------------------------------------------------------------------------------------


def test_an_untouched_board_is_in_feed_order(store: FollowStore):
    pins = [(5, NOW - 3), (3, NOW - 1), (4, NOW - 1), (9, NOW - 2), (1, NOW - 2)]
    save(store, pins)
    boards = Boards(store)
    in_feed_order = [state.pin.pin for state in store.newest_pins([board(BOARD)], 10)[board(BOARD)]]
    assert shown(boards) == in_feed_order == [3, 4, 1, 9, 5]
    assert [pin.sequence // SPACING.unit for pin in pages(boards)] == [NOW - 1, NOW - 1, NOW - 2, NOW - 2, NOW - 3]
    assert {pin.moved_ms for pin in pages(boards)} == {0}


@pytest.mark.alone  # it looks at counters of the whole server
@pytest.mark.parametrize(
    ("move", "then"),
    [
        (Move(BOARD, 1, before=5, after=4), [6, 5, 1, 4, 3, 2]),
        (Move(BOARD, 6, before=3, after=2), [5, 4, 3, 6, 2, 1]),
        (Move(BOARD, 6, before=3), [5, 4, 3, 6, 2, 1]),
        (Move(BOARD, 2, after=5), [6, 2, 5, 4, 3, 1]),
        (Move(BOARD, 2, after=6), [2, 6, 5, 4, 3, 1]),
        (Move(BOARD, 5, before=1), [6, 4, 3, 2, 1, 5]),
        (Move(BOARD, 3, to="top"), [3, 6, 5, 4, 2, 1]),
        (Move(BOARD, 3, to="bottom"), [6, 5, 4, 2, 1, 3]),
        (Move(BOARD, 4, before=6, after=5), [6, 4, 5, 3, 2, 1]),
        (Move(BOARD, 5, before=4, after=3), [6, 4, 5, 3, 2, 1]),
    ],
    ids=str,
)
def test_a_reorder_moves_one_pin_and_writes_one_row(store: FollowStore, move: Move, then: list[int]):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 6, to="bottom"))  # the first one may write the row that later ones lock
    boards.reorder(Move(BOARD, 6, to="top"))
    before = {pin.pin: pin.sequence for pin in pages(boards)}
    relay(store)
    assert rows_written(store, lambda: boards.reorder(move)) == 1
    assert shown(boards) == then
    assert {pin.pin for pin in pages(boards) if pin.sequence != before[pin.pin]} == {move.pin}
    assert store.unrelayed(10) == []


def test_the_answer_says_where_the_pin_is(store: FollowStore, clock: FakeClock):
    boards = a_board(store)
    placed = boards.reorder(Move(BOARD, 1, before=5, after=4))
    upper, pin, lower = pages(boards)[1:4]
    assert (placed.board, placed.pin, placed.sequence) == (BOARD, 1, pin.sequence)
    assert placed.changed
    assert placed.moved_ms == pin.moved_ms == clock()
    assert placed.room == room(min(upper.sequence - pin.sequence, pin.sequence - lower.sequence)) == 82


@pytest.mark.alone  # it looks at counters of the whole server
def test_a_repeated_reorder_changes_nothing(store: FollowStore, clock: FakeClock):
    boards = a_board(store)
    for move in (
        Move(BOARD, 1, before=5, after=4),
        Move(BOARD, 2, before=6),
        Move(BOARD, 3, after=4),
        Move(BOARD, 4, to="top"),
        Move(BOARD, 5, to="bottom"),
    ):
        first = boards.reorder(move)
        order = shown(boards)
        clock.advance(MINUTE)
        again = []
        assert rows_written(store, lambda move=move, again=again: again.append(boards.reorder(move))) == 0
        assert again == [first._replace(changed=False, room=again[0].room)]
        assert shown(boards) == order


def test_every_move_of_a_pin_has_a_later_time_whatever_the_clock_says(store: FollowStore, clock: FakeClock):
    boards = a_board(store)
    times = []
    for number, step in enumerate((0, 0, -MINUTE, 5, -5)):
        clock.advance(step)
        times.append(boards.reorder(Move(BOARD, 1, before=6 if number % 2 else 4)).moved_ms)
    assert times == sorted(set(times))


def test_what_is_saved_later_is_above_what_was_moved_to_the_top(store: FollowStore, clock: FakeClock):
    boards = a_board(store)
    for pin in range(1, 7):
        boards.reorder(Move(BOARD, pin, to="top"))
    assert shown(boards) == [6, 5, 4, 3, 2, 1]
    clock.advance(1)
    save(store, [(100, clock())])
    assert shown(boards)[0] == 100
    boards.reorder(Move(BOARD, 1, to="top"))
    assert shown(boards)[:2] == [1, 100]


def test_boards_do_not_know_of_each_other(store: FollowStore):
    boards = a_board(store)
    save(store, [(pin, NOW - 100 + pin) for pin in range(11, 15)], board=10)
    boards.reorder(Move(10, 11, to="top"))
    boards.reorder(Move(BOARD, 1, to="top"))
    assert shown(boards) == [1, 6, 5, 4, 3, 2]
    assert shown(boards, board=10) == [11, 14, 13, 12]
    assert shown(boards, board=11) == []


def test_feeds_know_nothing_of_a_board_s_order(store: FollowStore):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 1, to="top"))
    assert [state.pin.pin for state in store.newest_pins([board(BOARD)], 10)[board(BOARD)]] == [6, 5, 4, 3, 2, 1]


# Refusals
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["pin", "before", "after"])
def test_pins_that_cannot_be_are_refused(store: FollowStore, role: str):
    boards = a_board(store)
    save(store, [(50, NOW)], board=10)
    delete(store, 3)
    for wrong, reason in ((99, "pin_unknown"), (50, "pin_elsewhere"), (3, "pin_deleted")):
        named = {"pin": 1, "before": 6, "after": 5} | {role: wrong}
        error = refused(boards, Move(BOARD, **named))
        assert (error.reason, error.pin, error.between) == (reason, wrong, ())
    assert shown(boards) == [6, 5, 4, 2, 1]


def test_neighbours_that_are_not_next_to_each_other_are_refused_with_those_between(store: FollowStore):
    boards = a_board(store, 20)
    error = refused(boards, Move(BOARD, 17, before=20, after=14))
    assert (error.reason, error.between) == ("neighbours_apart", (19, 18, 16, 15))
    error = refused(boards, Move(BOARD, 17, before=20, after=1))
    assert error.between == (19, 18, 16, 15, 14, 13, 12, 11, 10, 9)
    error = refused(boards, Move(BOARD, 17, before=14, after=20))
    assert (error.reason, error.between) == ("neighbours_reversed", (19, 18, 16, 15))
    error = refused(boards, Move(BOARD, 17, before=3, after=4))
    assert (error.reason, error.between) == ("neighbours_reversed", ())
    assert shown(boards) == list(range(20, 0, -1))


@pytest.mark.alone  # it looks at counters of the whole server
def test_a_refusal_writes_nothing(store: FollowStore):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 1, to="top"))
    assert rows_written(store, lambda: refused(boards, Move(BOARD, 2, before=6, after=3))) == 0


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"before": 1},
        {"before": 2, "after": 2},
        {"to": "middle"},
        {"to": "top", "before": 2},
        {"before": 0},
        {"after": 2**63},
    ],
    ids=str,
)
def test_a_move_without_one_place_cannot_be_made(named: dict[str, object]):
    with pytest.raises(InvalidValueError):
        Move(BOARD, 1, **named)  # type: ignore[arg-type]


# Handlers that are behind, or at the same time
# --------------------------------------------------------------------------------------------------------------------


def test_a_pin_that_its_handler_has_not_entered_yet_can_be_moved_and_named(store: FollowStore):
    boards = a_board(store)
    save(store, [(8, NOW - 5), (9, NOW - 4), (10, NOW - 3)], indexed=False)
    boards.reorder(Move(BOARD, 8, before=5, after=4))
    assert shown(boards) == [6, 5, 8, 4, 3, 2, 1]
    boards.reorder(Move(BOARD, 1, after=9))
    assert shown(boards) == [1, 9, 6, 5, 8, 4, 3, 2]
    store.index(pins=[PinSaved(Pin(pin, OWNER, BOARD, NOW - 13 + pin), NOW) for pin in (8, 9, 10)])
    assert shown(boards) == [10, 1, 9, 6, 5, 8, 4, 3, 2] or shown(boards)[:3] == [1, 10, 9]
    assert sorted(shown(boards)) == [1, 2, 3, 4, 5, 6, 8, 9, 10]


def test_a_refused_reorder_enters_no_line(store: FollowStore):
    boards = a_board(store)
    save(store, [(8, NOW - 5)], indexed=False)
    refused(boards, Move(BOARD, 8, before=5, after=1))
    assert 8 not in shown(boards)


def test_a_deleted_pin_leaves_the_board_with_its_place(store: FollowStore):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 2, before=6))
    delete(store, 2)
    assert shown(boards) == [6, 5, 4, 3, 1]
    findings = boards.check(BOARD, None)
    assert (findings.pins, findings.dead) == (5, [])
    assert refused(boards, Move(BOARD, 2, to="top")).reason == "pin_deleted"


def test_a_deletion_is_decided_on_the_board_s_shard(store: FollowStore):
    """The record said that the pin lived; its deletion and the handler came before the transaction."""
    boards = a_board(store)

    real = store.pins

    def early(pins: list[int]) -> object:
        states = real(pins)
        delete(store, 2)
        return states

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "pins", early)
        assert refused(boards, Move(BOARD, 2, before=6)).reason == "pin_deleted"
    assert refused(boards, Move(BOARD, 1, before=2)).reason == "pin_deleted"
    assert boards.check(BOARD, None).dead == []
    assert shown(boards) == [6, 5, 4, 3, 1]


def test_a_deletion_whose_handler_is_late_takes_the_row_then(store: FollowStore):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 2, before=6))
    late = delete(store, 2, indexed=False)
    assert shown(boards) == [6, 2, 5, 4, 3, 1]
    store.index(deletions=[late])
    assert shown(boards) == [6, 5, 4, 3, 1]
    assert boards.check(BOARD, None).dead == []


def test_a_save_that_meets_the_number_of_a_placed_pin_is_next_to_it(store: FollowStore):
    """Saved with a time in the past: of two pins with one number, the smaller id is above."""
    save(store, [(1_000, NOW - 1_000), (2_000, NOW - 999), (3_000, NOW - 1)])
    boards = Boards(store)
    boards.reorder(Move(BOARD, 3_000, before=2_000, after=1_000))
    between = next(pin.sequence for pin in pages(boards) if pin.pin == 3_000)
    for twin in (2_999, 3_001):
        row = SPACING.row(3_000, SPACING.virtual(NOW - 500, twin), NOW - 1, NOW)
        put(store, row)
        save(store, [(twin, NOW - 500)])
    assert between > 0
    assert shown(boards) == [2_999, 3_000, 3_001, 2_000, 1_000]
    assert boards.check(BOARD, None).ties == [(3_000, 3_001)]
    assert shown(boards, limit=1) == shown(boards, limit=2) == shown(boards)
    boards.reorder(Move(BOARD, 1_000, before=3_000, after=3_001))
    assert shown(boards) == [2_999, 3_000, 1_000, 3_001, 2_000]


def _dead(store: FollowStore, pin: int, sequence: int = 10**37) -> LineKey:
    """Deletes a pin, and gives it a place all the same."""
    key = LineKey(delete(store, pin).pin.created_ms, pin)
    put(store, SPACING.row(pin, sequence, key.created_ms, 5))
    return key


def put(store: FollowStore, *placed: PlacedRow) -> None:
    """Gives pins these places, whatever they are."""

    def decide(_: int, rows: BoardRows) -> tuple[Arranged, None]:
        rows.pins([LineKey(row.created_ms, row.pin) for row in placed])
        return Arranged(placed=placed), None

    store.arrange(BOARD, (), decide)


# Numbers of 38 digits
# --------------------------------------------------------------------------------------------------------------------

LARGEST = SPACING.ceiling - 1
EDGES = sorted(
    {near for power in range(1, 38) for near in (10**power - 1, 10**power, 10**power + 1)}
    | {near for bits in (8, 31, 32, 53, 63, 64, 65, 96, 120, 126) for near in (2**bits - 1, 2**bits, 2**bits + 1)}
    | {1, 2, 3, LARGEST - 2, LARGEST - 1, LARGEST}
)
"""Where a number gets another digit, byte or width, with its neighbours on both sides."""


def place(store: FollowStore, sequences: dict[int, int]) -> Boards:
    """A board of these pins, each placed at a sequence."""
    boards = a_board(store, len(sequences))
    states = store.pins(list(sequences))
    rows = (SPACING.row(pin, sequence, states[pin].pin.created_ms, NOW + pin) for pin, sequence in sequences.items())
    put(store, *rows)
    return boards


@pytest.mark.parametrize("limit", [7, 500])
def test_sequences_keep_every_digit_and_their_order(store: FollowStore, limit: int):
    rng = random.Random(38)
    values = EDGES + [rng.randrange(1, LARGEST) for _ in range(100)]
    rng.shuffle(values)
    sequences = dict(enumerate(values, 1))
    boards = place(store, sequences)
    shown_pins = pages(boards, limit)
    assert [pin.sequence for pin in shown_pins] == sorted(values, reverse=True)
    assert {pin.pin: pin.sequence for pin in shown_pins} == sequences
    assert shown_upwards(boards, limit) == [pin.pin for pin in shown_pins]


def test_a_page_begins_at_a_sequence_of_38_digits_and_not_next_to_it(store: FollowStore):
    values = [LARGEST, LARGEST - 1, LARGEST - 2, 10**37 + 1, 10**37, 10**37 - 1, 3, 2, 1]
    pins = list(range(1, len(values) + 1))
    boards = place(store, dict(zip(pins, values, strict=True)))
    for number, sequence in enumerate(values):
        below, above = BoardPlace(Spot(sequence, pins[number])), BoardPlace(Spot(sequence, pins[number]), (), "up")
        assert numbers(boards.page(BOARD, 20, below)) == pins[number + 1 :]
        assert numbers(boards.page(BOARD, 20, above)) == pins[:number]


@pytest.mark.parametrize("lower", [LARGEST - 2, 10**37 - 1, 2**64 - 1, 1])
def test_the_last_number_between_two_is_found_and_then_they_make_room(store: FollowStore, lower: int):
    boards = place(store, {1: lower + 2, 2: lower, 3: 10**20, 4: 10**20 - 1, 5: 10**36})
    assert boards.reorder(Move(BOARD, 3, before=1, after=2)).sequence == lower + 1
    left = {1: lower + 2, 2: lower, 3: lower + 1, 4: 10**20 - 1, 5: 10**36}
    assert {pin.pin: pin.sequence for pin in pages(boards)} == left
    boards.reorder(Move(BOARD, 4, before=1, after=3))
    order = [pin for pin in sorted(left, key=lambda pin: -left[pin]) if pin != 4]
    order.insert(order.index(3), 4)
    assert shown(boards) == order
    assert boards.check(BOARD, None).ties == []


# Pages
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 8, 9, 500])
def test_a_walk_shows_each_pin_once(store: FollowStore, limit: int):
    boards = a_board(store, 40)
    rng = random.Random(limit)
    order = list(range(40, 0, -1))
    for _ in range(60):
        pin, neighbour = rng.sample(range(1, 41), 2)
        boards.reorder(Move(BOARD, pin, before=neighbour))
        order.remove(pin)
        order.insert(order.index(neighbour) + 1, pin)
    assert shown(boards, limit) == order
    assert shown_upwards(boards, limit) == order


def test_a_page_says_where_those_below_and_above_it_begin(store: FollowStore):
    boards = a_board(store, 12)
    boards.reorder(Move(BOARD, 2, before=9, after=8))  # 12 11 10 9 2 8 7 6 5 4 3 1
    first = boards.page(BOARD, 4, None)
    assert first.above is None
    second = boards.page(BOARD, 4, first.after)
    third = boards.page(BOARD, 4, second.after)
    assert numbers(third) == [5, 4, 3, 1]
    assert numbers(boards.page(BOARD, 4, third.above)) == numbers(second) == [2, 8, 7, 6]
    up = boards.page(BOARD, 4, second.above)
    assert (numbers(up), up.above) == ([12, 11, 10, 9], None)
    assert numbers(boards.page(BOARD, 4, up.after)) == numbers(second)
    last = boards.page(BOARD, 4, BoardPlace(SPACING.bottom, (), "up"))
    assert (numbers(last), last.after) == ([5, 4, 3, 1], None)
    assert third.after is None
    end = boards.page(BOARD, 4, BoardPlace(third.pins[-1].spot))
    assert (end.pins, end.after) == ([], None)
    assert numbers(boards.page(BOARD, 4, end.above)) == [5, 4, 3, 1]


def test_a_walk_upwards_continues_where_the_last_pin_that_stayed_is(store: FollowStore):
    boards = a_board(store, 12)
    page = boards.page(BOARD, 4, BoardPlace(SPACING.bottom, (), "up"))
    assert numbers(page) == [4, 3, 2, 1]
    boards.reorder(Move(BOARD, 4, after=11))  # it was shown, and is above now
    boards.reorder(Move(BOARD, 3, to="bottom"))
    boards.reorder(Move(BOARD, 8, after=2))
    page = boards.page(BOARD, 4, page.above)
    assert numbers(page) == [7, 6, 5, 8]
    assert page.above is not None
    assert len(page.above.marks) == 8
    assert numbers(boards.page(BOARD, 9, page.above)) == [12, 11, 10, 9]


@pytest.mark.parametrize("pins", [0, 1])
def test_the_bottom_of_a_board_may_be_its_top(store: FollowStore, pins: int):
    boards = a_board(store, pins) if pins else Boards(store)
    page = boards.page(BOARD, 4, BoardPlace(SPACING.bottom, (), "up"))
    assert (len(page.pins), page.after, page.above) == (pins, None, None)


def test_the_limits_of_a_page(store: FollowStore):
    boards = a_board(store)
    for limit in (0, 501):
        with pytest.raises(InvalidValueError, match="1 to 500"):
            boards.page(BOARD, limit, None)
    with pytest.raises(InvalidValueError):
        boards.page(0, 10, None)


def test_a_page_continues_where_the_last_pin_that_stayed_is(store: FollowStore):
    boards = a_board(store, 12)
    page = boards.page(BOARD, 4, None)
    assert [pin.pin for pin in page.pins] == [12, 11, 10, 9]
    boards.reorder(Move(BOARD, 9, before=2))  # it was shown, and is below now
    boards.reorder(Move(BOARD, 10, to="top"))
    boards.reorder(Move(BOARD, 5, before=11))
    page = boards.page(BOARD, 4, page.after)
    assert [pin.pin for pin in page.pins] == [5, 8, 7, 6]
    assert [pin.pin for pin in boards.page(BOARD, 9, page.after).pins] == [4, 3, 2, 1]


def test_a_page_continues_at_the_recorded_place_if_all_that_it_knows_were_moved_or_deleted(store: FollowStore):
    boards = a_board(store, 6)
    page = boards.page(BOARD, 2, None)
    boards.reorder(Move(BOARD, 6, to="bottom"))
    delete(store, 5)
    assert [pin.pin for pin in boards.page(BOARD, 9, page.after).pins] == [4, 3, 2, 1]


def test_a_cursor_is_of_any_store_of_the_board(store: FollowStore, place: Place):
    boards = a_board(store, 30)
    boards.reorder(Move(BOARD, 3, before=20))
    page = boards.page(BOARD, 12, None)
    assert page.after is not None
    last = boards.page(BOARD, 12, BoardPlace(SPACING.bottom, (), "up"))
    assert last.above is not None
    for there in (page.after, last.above):
        again = cursors.decode(BOARD, cursors.encode(BOARD, there))
        assert again == there
        assert boards.page(BOARD, 100, again) == boards.page(BOARD, 100, there)


def test_a_hole_of_moved_pins_makes_short_pages_and_loses_none(store: FollowStore):
    boards = a_board(store, 500)
    now = SPACING.virtual(NOW, 1)
    put(store, *(SPACING.row(pin, now + pin, NOW - 1_000_000 + pin, 1) for pin in range(51, 451)))
    assert shown(boards, 5) == [*range(450, 50, -1), *range(500, 450, -1), *range(50, 0, -1)]
    assert shown_upwards(boards, 5) == [*range(450, 50, -1), *range(500, 450, -1), *range(50, 0, -1)]
    page = boards.page(BOARD, 5, BoardPlace(Spot(SPACING.virtual(NOW - 1_000_000 + 451, 451), 451)))
    assert page.pins == []
    assert page.after is not None
    assert page.above is not None
    assert numbers(boards.page(BOARD, 5, page.above))[-1:] == [451]
    assert boards.reorder(Move(BOARD, 1, before=451, after=50)).changed
    assert boards.reorder(Move(BOARD, 2, after=50)).changed
    assert shown(boards, 40) == [*range(450, 50, -1), *range(500, 450, -1), 1, 2, *range(50, 2, -1)]


@pytest.mark.parametrize("way", ["down", "up"])
@pytest.mark.parametrize("bare", [1, 2])
def test_re_spacing_next_to_a_hole_hides_no_pin_of_a_walk_and_shows_none_twice(store: FollowStore, way: Way, bare: int):
    def respaced(boards: Boards, request: RespaceAsked) -> None:
        assert respace(boards, request) > 0

    seen, order = past_a_hole(store, NOW, way, bare, respaced)
    assert seen == order
    assert shown(Boards(store)) == order


def test_many_marks_do_not_hide_pins(store: FollowStore):
    boards = a_board(store, 30)
    page = boards.page(BOARD, 8, None)
    for pin in range(23, 30):
        boards.reorder(Move(BOARD, pin, before=22))
    assert [pin.pin for pin in boards.page(BOARD, 22, page.after).pins] == list(range(22, 0, -1))
    assert page.after is not None
    assert len(page.after.marks) == 8
    assert page.after.marks[-1] == Mark(23, NOW - 1_000_000 + 23, 0)


# Re-spacing
# --------------------------------------------------------------------------------------------------------------------


def drop_at_one_spot(boards: Boards, times: int) -> list[int]:
    """Drops the lowest pin directly below the second, again and again; returns the order that this makes."""
    order = shown(boards)
    for _ in range(times):
        pin = order.pop()
        boards.reorder(Move(BOARD, pin, before=order[1], after=order[2]))
        order.insert(2, pin)
    return order


def test_a_gap_that_becomes_narrow_asks_for_room_in_the_same_transaction(store: FollowStore):
    boards = a_board(store)
    relay(store)
    order = drop_at_one_spot(boards, 60)
    while not asked(store):
        assert boards.check(BOARD, None).narrow == []
        order = drop_at_one_spot(boards, 1)
    assert asked(store) == [RespaceAsked(BOARD, order[2], NOW)]
    assert boards.check(BOARD, None).narrow


@pytest.mark.parametrize(("rows", "forgetful"), [(1, False), (2, True), (512, False)])
def test_re_spacing_gives_room_and_changes_no_order(store: FollowStore, rows: int, forgetful: bool):
    boards = a_board(store)
    relay(store)
    order = drop_at_one_spot(boards, 60)
    while not asked(store):
        order = drop_at_one_spot(boards, 1)
    times = {pin.pin: pin.moved_ms for pin in pages(boards)}
    top = pages(boards)[0]
    assert respace(boards, asked(store)[0], rows, forgetful=forgetful) > 0
    assert shown(boards) == order
    assert {pin.pin: pin.moved_ms for pin in pages(boards)} == times
    assert pages(boards)[0] == top
    assert narrowest(boards) >= (SPACING.restored if rows == 512 else SPACING.threshold)
    assert respace(boards, asked(store)[0], rows) == 0


def test_a_pin_that_is_saved_with_the_number_of_the_topmost_one_gets_room(store: FollowStore):
    """Ids that are close, of one millisecond: the middle of two is the number of a pin between them."""
    at_ms = NOW - 1_000
    save(store, [(100, at_ms), (102, at_ms), (50, at_ms - 1)])
    boards = Boards(store)
    boards.reorder(Move(BOARD, 50, before=100, after=102))
    delete(store, 100)
    save(store, [(101, at_ms)])
    assert boards.check(BOARD, None).ties == [(50, 101)]
    topmost, *_ = pages(boards)
    respace(boards, RespaceAsked(BOARD, 101, NOW))
    assert shown(boards) == [50, 101, 102]
    assert pages(boards)[0] == topmost
    assert boards.check(BOARD, None).narrow == []


def test_a_request_that_is_late_repeated_or_of_a_pin_that_is_gone_does_nothing(store: FollowStore):
    boards = a_board(store)
    save(store, [(50, NOW)], board=10)
    delete(store, 3)
    for request in (
        RespaceAsked(BOARD, 4, 1),
        RespaceAsked(BOARD, 3, NOW),
        RespaceAsked(BOARD, 99, NOW),
        RespaceAsked(BOARD, 50, NOW),
        RespaceAsked(77, 4, NOW),
    ):
        assert boards.respace(request).done
    with pytest.raises(InvalidValueError):
        boards.respace(RespaceAsked(BOARD, 4, 1), 513)


def test_a_gap_without_any_room_gets_it_in_the_reorder_s_own_transaction(store: FollowStore):
    boards = a_board(store)
    order = drop_at_one_spot(boards, 120)  # nothing is re-spaced meanwhile
    assert shown(boards) == order
    assert pages(boards)[0].sequence == SPACING.virtual(NOW - 1_000_000 + 6, 6)
    save(store, [(100, NOW - 1_000_000 + 7)])
    assert shown(boards) == [100, *order]


def test_a_thousand_adjacent_ids_of_one_millisecond_take_drops_anywhere(store: FollowStore):
    save(store, [(pin, NOW - 5) for pin in range(1, 1_001)])
    boards = Boards(store)
    relay(store)
    order = list(range(1, 1_001))
    for number in range(40):
        boards.reorder(Move(BOARD, order[-1 - number], before=500, after=order[order.index(500) + 1]))
        pin = order.pop(-1 - number)
        order.insert(order.index(500) + 1, pin)
        if number == 20:
            for request in asked(store):
                respace(boards, request, 100)
            relay(store)
    assert shown(boards) == order
    for request in asked(store):
        respace(boards, request, 100)
    findings = boards.check(BOARD, None)
    assert findings.narrow == []


@pytest.mark.parametrize("enters", ["a handler", "a drop", "a reset"])
def test_what_enters_a_run_of_one_millisecond_that_is_re_spaced_keeps_its_place(store: FollowStore, enters: str):
    """Among the lines of the pins that were moved already, which re-spacing does not look at again."""
    run = NOW - 500
    save(store, [(5_000, NOW - 1), (6_000, NOW - 900), *((pin, run) for pin in range(2, 402, 2))])
    boards = Boards(store)
    relay(store)
    for pin in range(380, 392, 2):
        boards.reorder(Move(BOARD, pin, before=200))
    request = asked(store)[-1]
    order = shown(boards)
    going: RoomSpread | None = None
    for number in range(60):
        step = boards.respace(request, 8, going)
        assert shown(boards) == order, f"after step {number}"
        if step.done:
            break
        going = step.going
        if number % 7 == 3:
            late = 8 * number + 1
            if enters == "a reset":
                boards.reset(BOARD, 8)
            else:
                save(store, [(late, run)], indexed=enters == "a handler")
            if enters == "a drop":
                boards.reorder(Move(BOARD, 6_000, before=late))
            order = shown(boards)
    assert number > 10


def test_re_spacing_can_be_asked_for(store: FollowStore):
    boards = a_board(store)
    relay(store)
    boards.ask_respace(BOARD, 4)
    assert asked(store) == [RespaceAsked(BOARD, 4, NOW)]


def test_where_no_room_can_be_made_at_once_it_is_asked_for(store: FollowStore):
    """Three hundred pins at adjacent numbers: more than a reorder moves."""
    boards = a_board(store, 302, apart_ms=1_000)
    low = SPACING.virtual(NOW - 900_000_000, 1)
    put(store, *(SPACING.row(pin, low + pin, NOW - 1_000_000 + pin * 1_000, 1) for pin in range(1, 303)))
    relay(store)
    order = shown(boards)
    with pytest.raises(BoardCrowdedError):
        boards.reorder(Move(BOARD, 1, before=152, after=151))
    assert shown(boards) == order
    (request,) = asked(store)
    respace(boards, request, 50)
    assert shown(boards) == order
    assert boards.reorder(Move(BOARD, 1, before=152, after=151)).room >= 30


def test_directly_below_the_topmost_pin_there_is_room_for_millions(store: FollowStore):
    boards = a_board(store)
    relay(store)
    order = shown(boards)
    for _ in range(120):
        pin = order.pop()
        boards.reorder(Move(BOARD, pin, before=order[0], after=order[1]))
        order.insert(1, pin)
    assert shown(boards) == order
    assert asked(store) == []
    top, second, third = pages(boards)[:3]
    assert room(top.sequence - second.sequence) > SPACING.restored
    assert room(second.sequence - third.sequence) >= SPACING.restored


# Reset and check
# --------------------------------------------------------------------------------------------------------------------


def test_a_reset_brings_back_the_order_of_time(store: FollowStore):
    boards = a_board(store, 30)
    for pin in range(1, 20):
        boards.reorder(Move(BOARD, pin, to="top"))
    assert [boards.reset(BOARD, 10) for _ in range(3)] == [False, True, True]
    assert shown(boards) == list(range(30, 0, -1))
    assert {pin.moved_ms for pin in pages(boards)} == {0}


def test_a_check_walks_the_whole_board(store: FollowStore):
    boards = a_board(store, 30)
    boards.reorder(Move(BOARD, 1, before=20))
    after, pins = None, 0
    while True:
        part = boards.check(BOARD, after, 7)
        pins, after = pins + part.pins, part.after
        assert (part.narrow, part.ties, part.dead) == ([], [], [])
        if after is None:
            break
    assert pins == 30
    assert narrowest(boards) == 82


def test_a_check_measures_gaps_from_pin_to_pin_wherever_its_parts_end(store: FollowStore):
    """A part that has looked at very many lines ends at the line of a pin that was moved away or deleted."""
    boards = a_board(store, 140)
    ends_at = 139 - (2 + LOOK) + 1  # the last line that a part of one pin looks at, after the topmost one
    row = SPACING.row(1, SPACING.virtual(NOW - 1_000_000 + ends_at, ends_at) - 1, NOW - 1_000_000 + 1, NOW)
    put(store, row)
    store.index(deletions=[delete(store, pin, indexed=False) for pin in range(ends_at, 140)])
    assert shown(boards)[:2] == [140, 1]
    parts, after = [], None
    for _ in range(3):
        part = boards.check(BOARD, after, 1)
        parts.append((part.pins, part.narrow))
        after = part.after
    assert parts == [(1, []), (0, []), (1, [])]


def test_a_check_finds_gaps_between_its_parts(store: FollowStore):
    ms = 10**28
    boards = place(store, {3: ms, 2: ms, 1: ms - 1})
    after, narrow, ties = None, [], []
    for _ in range(3):
        part = boards.check(BOARD, after, 1)
        narrow, ties, after = [*narrow, *part.narrow], [*ties, *part.ties], part.after
    assert narrow == boards.check(BOARD, None).narrow == [3, 1]
    assert ties == boards.check(BOARD, None).ties == [(2, 3)]


def test_a_check_finds_a_row_without_a_living_pin(store: FollowStore):
    """No transaction leaves one: it is written by hand."""
    boards = a_board(store)
    dead = _dead(store, 2)
    findings = boards.check(BOARD, None)
    assert (findings.pins, findings.dead) == (5, [dead])
    assert boards.drop_dead(BOARD, [*findings.dead, LineKey(NOW - 1_000_000 + 1, 1)]) == 1
    assert shown(boards) == [6, 5, 4, 3, 1]
    assert boards.check(BOARD, None).dead == []
    with pytest.raises(InvalidValueError, match="at most"):
        boards.drop_dead(BOARD, [dead] * 501)


def test_a_row_without_a_living_pin_is_dropped_by_the_re_spacing_that_meets_it(store: FollowStore):
    boards = a_board(store)
    dead = _dead(store, 2, 10**37 - 1)
    for pin, sequence in ((6, 10**37), (5, 10**37 - 2), (4, 10**37 - 3)):
        put(store, SPACING.row(pin, sequence, NOW - 1_000_000 + pin, 5))
    for _ in range(2):  # it ends where it has dropped the row
        respace(boards, RespaceAsked(BOARD, 5, NOW))
    findings = boards.check(BOARD, None)
    assert (findings.dead, findings.narrow) == ([], [])
    assert dead.pin not in shown(boards)


def test_a_check_finds_a_row_without_a_line(store: FollowStore, monkeypatch: pytest.MonkeyPatch):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 2, before=6))
    assert boards.check(BOARD, None).dead == []
    monkeypatch.setattr(store, "board_pins", lambda *_: [])
    assert [key.pin for key in boards.check(BOARD, None).dead] == [2]


def test_a_check_does_not_name_a_pin_that_is_deleted_meanwhile(store: FollowStore, monkeypatch: pytest.MonkeyPatch):
    boards = a_board(store)
    boards.reorder(Move(BOARD, 2, before=6))
    real = store.board_pins

    def late(board: int, keys: list[LineKey]) -> list[PinAt]:
        delete(store, 2)
        return real(board, keys)

    monkeypatch.setattr(store, "board_pins", late)
    assert boards.check(BOARD, None).dead == []


def test_where_pins_of_a_board_are(store: FollowStore):
    boards = a_board(store)
    before = pages(boards)
    moved = boards.reorder(Move(BOARD, 2, before=6))
    delete(store, 3)
    keys = [*(LineKey(pin.created_ms, pin.pin) for pin in before), LineKey(NOW, 9)]
    found = store.board_pins(BOARD, keys)
    assert {pin.pin: (pin.alive, pin.sequence) for pin in found} == {
        **dict.fromkeys((6, 5, 4, 1), (True, None)),
        2: (True, moved.sequence),
        3: (False, None),
    }
    assert store.board_pins(BOARD, []) == []
    with pytest.raises(InvalidValueError, match="at most"):
        store.board_pins(BOARD, [LineKey(1, 1)] * (MAX_PAGE + 1))


# At the same time
# --------------------------------------------------------------------------------------------------------------------


def test_drops_of_many_clients_into_one_gap_are_all_there(shared_place: Place):
    """Half of them name both neighbours, and are refused if another was faster; the others name one."""
    store = shared_place.open()
    boards = a_board(store, 20)
    refusals: list[ReorderRefusedError] = []

    def client(pin: int) -> None:
        mine = Boards(shared_place.open())
        for _ in range(5):
            try:
                mine.reorder(Move(BOARD, pin, before=20, after=19 if pin % 2 else None))
            except ReorderRefusedError as refusal:
                refusals.append(refusal)
            mine.reorder(Move(BOARD, pin, to="bottom"))
            mine.reorder(Move(BOARD, pin, before=20))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(1, 17)))
    assert {(each.reason, bool(each.between)) for each in refusals} <= {("neighbours_apart", True)}
    order = shown(boards)
    assert order[0] == 20
    assert order[-3:] == [19, 18, 17]
    assert sorted(order) == list(range(1, 21))
    findings = boards.check(BOARD, None)
    assert (findings.ties, findings.dead) == ([], [])


def test_saves_deletions_and_drops_at_the_same_time(shared_place: Place):
    store = shared_place.open()
    boards = a_board(store, 40)
    refusals: list[ReorderRefusedError] = []

    def dropping(seed: int) -> None:
        rng, mine = random.Random(seed), Boards(shared_place.open())
        for _ in range(40):
            pin, neighbour = rng.sample(range(1, 41), 2)
            try:
                mine.reorder(Move(BOARD, pin, before=neighbour))
            except ReorderRefusedError as refusal:
                refusals.append(refusal)

    def deleting() -> None:
        mine = shared_place.open()
        for pin in range(1, 41, 2):
            delete(mine, pin)
            save(mine, [(100 + pin, NOW - 5)])

    with ThreadPoolExecutor(5) as pool:
        for each in [*(pool.submit(dropping, seed) for seed in range(4)), pool.submit(deleting)]:
            each.result()
    assert {each.reason for each in refusals} <= {"pin_deleted"}
    assert sorted(shown(boards, 7)) == [*range(2, 41, 2), *range(101, 141, 2)]
    findings = boards.check(BOARD, None)
    assert (findings.pins, findings.ties, findings.dead) == (40, [], [])


def test_recording_takes_no_lock_of_a_board_s_order(store: FollowStore):
    """A save during a reorder of its board does not wait for it."""
    boards = a_board(store)
    boards.reorder(Move(BOARD, 1, to="top"))
    assert store.record([Request(SavePin(Pin(200, OWNER, BOARD, NOW - 1)))])
    assert store.record([Request(DeletePin(200))])
    assert shown(boards) == [1, 6, 5, 4, 3, 2]
