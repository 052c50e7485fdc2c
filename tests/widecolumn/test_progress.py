"""Rule 10: the watermark never claims what has not landed, and moves when nothing happens."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.widecolumn import Mutation, UnavailableError
from feedstore.widecolumn.progress import Progress, Through, progress_table
from tests.widecolumn.memory_store import MemoryStore

DAY_MS = 86_400_000
Holds = Callable[[Progress, Iterable[tuple[int, int]]], None]
IN_STREAMS = pytest.mark.parametrize("hold", [Progress.hold_for_refills, Progress.hold_for_fanouts])
"""Holds that do not prolong each other."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(progress_table(purge_window_ms=1_000_000))


@pytest.fixture
def progress(store: MemoryStore) -> Progress:
    return Progress(store)


def advance(progress: Progress, ms: int, partition: int = 0, partitions: int = 1, source: int = 0, sources: int = 1):
    progress.advance({Through(partition, partitions, source, sources): ms})


def test_rule_10_nothing_is_claimed_before_the_first_tick(progress: Progress):
    assert progress.watermark() is None


def test_rule_10_the_watermark_is_the_tick_that_came_through(progress: Progress):
    advance(progress, 1_000)
    assert progress.watermark() == 1_000
    advance(progress, 2_000)
    assert progress.watermark() == 2_000


def test_rule_10_a_tick_that_comes_late_does_not_turn_the_watermark_back(progress: Progress):
    advance(progress, 2_000)
    advance(progress, 1_000)
    assert progress.watermark() == 2_000


def test_rule_10_the_watermark_waits_for_every_partition_and_every_source(progress: Progress):
    places = list(itertools.product(range(3), range(2)))
    for partition, source in places[:-1]:
        advance(progress, 1_000 + partition, partition, 3, source, 2)
        assert progress.watermark() is None
    partition, source = places[-1]
    advance(progress, 5_000, partition, 3, source, 2)
    assert progress.watermark() == 1_000


@pytest.fixture
def ahead(store: MemoryStore, progress: Progress) -> Progress:
    """A cluster of a store whose clock was ahead: 1,000 is now."""
    progress.hold([(400, 900_000)])
    progress.park([(500, 7), (800_000, 8)])
    progress.made(800_000)
    advance(progress, 900_500)
    assert progress.watermark() == 400
    return progress


def test_rule_10_a_cluster_that_is_brought_back_knows_nothing_until_a_tick_has_come(
    store: MemoryStore, ahead: Progress
):
    reader = Progress(store)
    assert reader.watermark() == 400
    assert ahead.bring_back(1_000)
    assert [ahead.watermark(), reader.watermark(), Progress(store).watermark()] == [None, None, None]
    writer = Progress(store)
    assert writer.made_ms() == 1_000
    advance(writer, 1_000)
    assert reader.watermark() == 400, "what is held waits for a later tick"
    advance(writer, 1_001)
    assert reader.watermark() == 400, "what is parked has not landed, and the hold waits for it"
    writer.lift([(500, 7), (800_000, 8)], 1_001)
    assert reader.watermark() == 1_001
    assert not writer.bring_back(1_001)


@pytest.mark.parametrize("written", range(4))
def test_rule_10_a_cluster_that_could_not_be_brought_back_is_as_before(
    store: MemoryStore, ahead: Progress, written: int, monkeypatch: pytest.MonkeyPatch
):
    apply, left = store.apply, iter(range(written))

    def full(batch: Sequence[Mutation]) -> None:
        if next(left, None) is None:
            raise UnavailableError("no space")
        apply(batch)

    monkeypatch.setattr(store, "apply", full)
    with pytest.raises(UnavailableError):
        ahead.bring_back(1_000)
    monkeypatch.undo()

    advance(ahead, 900_600)
    ahead.lift([(500, 7)], 900_600)
    assert (ahead.made_ms(), ahead.watermark()) == (800_000, 400)
    assert [at_ms for _, at_ms in Progress(store).state().heard] == [900_600]
    assert ahead.bring_back(1_000)


def test_rule_10_holds_of_each_kind_are_brought_back(progress: Progress):
    advance(progress, 300)
    progress.hold_for_refills([(400, 900_000)])
    progress.hold_for_fanouts([(500, 900_000)])
    assert progress.bring_back(1_000)
    advance(progress, 1_000)
    assert (progress.state().refills, progress.state().fanouts) == ([400], [500])
    advance(progress, 1_001)
    assert progress.watermark() == 1_001


def test_a_cluster_that_nothing_is_ahead_in_stays_as_it_is(progress: Progress):
    assert not progress.bring_back(1_000)
    progress.hold([(400, 900)])
    progress.park([(500, 1)])
    advance(progress, 1_000)
    assert not progress.bring_back(1_000)
    assert progress.watermark() == 400


def test_rule_10_of_several_partitions_those_that_are_not_ahead_keep_their_ticks(progress: Progress):
    advance(progress, 900, 0, 2)
    advance(progress, 900_000, 1, 2)
    assert progress.bring_back(1_000)
    assert progress.watermark() is None
    advance(progress, 1_100, 1, 2)
    assert progress.watermark() == 900


def test_rule_10_where_partitions_were_added_the_new_ones_count(progress: Progress):
    advance(progress, 1_000, 0, 1)
    advance(progress, 9_000, 0, 2)
    assert progress.watermark() is None
    advance(progress, 8_000, 1, 2)
    assert progress.watermark() == 8_000


def test_rule_10_a_hold_keeps_the_watermark_back_until_what_was_put_off_has_landed(progress: Progress):
    progress.hold([(1_500, 3_000)])
    advance(progress, 1_000)
    assert progress.watermark() == 1_000
    advance(progress, 3_000)
    assert progress.watermark() == 1_500
    advance(progress, 3_001)
    assert progress.watermark() == 3_001


def test_rule_10_the_earliest_of_several_holds_counts(progress: Progress):
    progress.hold([(1_500, 3_000), (1_200, 4_000), (4_500, 9_000)])
    advance(progress, 2_000)
    assert progress.watermark() == 1_200
    advance(progress, 5_000)
    assert progress.watermark() == 4_500
    advance(progress, 9_001)
    assert progress.watermark() == 9_001


def test_rule_10_a_hold_of_a_clock_that_is_far_ahead_lasts(progress: Progress):
    progress.hold([(1_500, 2**62)])
    for ms in (2_000, 3_000):
        advance(progress, ms)
        progress.forget(before_ms=ms)
    assert progress.watermark() == 1_500
    advance(progress, 2**62 + 1)
    assert progress.watermark() == 2**62 + 1


def test_rule_10_what_was_put_off_twice_is_held_until_the_second_time(progress: Progress):
    progress.hold([(1_500, 3_000)])
    progress.hold([(3_000, 6_000), (2_500, 8_000)])
    for settled_ms in (2_000, 3_001, 6_001, 8_000):
        advance(progress, settled_ms)
        assert progress.watermark() == 1_500
    advance(progress, 8_001)
    assert progress.watermark() == 8_001


class Asked(MemoryStore):
    """versions: how many its reads of rows came to, visible or not: what they cost HBase, but for what is visible and
    sorts before them. meanwhile: what other processes do before each of the next writes.
    """

    def __init__(self) -> None:
        super().__init__(progress_table(purge_window_ms=10**9))
        self.versions = 0
        self.meanwhile: list[Callable[[], object]] = []

    def apply(self, batch: Sequence[Mutation]) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        super().apply(batch)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        shown = {each.column for each in self.cells(row)}
        skipped = {column for column in shown if after is not None and column <= after}
        self.versions += sum(each.column not in skipped for each in self._rows.get(row, ()))
        return super().read(row, after, limit, deadline_s)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.mark.parametrize("hold", [Progress.hold, Progress.hold_for_refills, Progress.hold_for_fanouts])
def test_rule_10_what_a_look_costs_does_not_depend_on_the_holds_that_have_passed(asked: Asked, hold: Holds):
    """HBase walks over all that was removed, for as long as it keeps delete markers."""
    progress = Progress(asked)
    began = 5 * DAY_MS - 50_000
    for ms in range(began, began + 100_000, 100):
        hold(progress, [(ms, ms + 300)])
        advance(progress, ms + 301)
    for process in progress, Progress(asked):  # also one that has just begun
        asked.versions = 0
        assert process.watermark() == began + 100_201
        assert process.state().settled == began + 100_201
        assert asked.versions < 20
    progress.forget(before_ms=began + 100_000)
    asked.versions = 0
    advance(progress, began + 100_301)
    assert progress.watermark() == began + 100_301
    assert asked.versions < 20


def test_holds_of_days_that_no_look_reads_are_forgotten(progress: Progress, store: MemoryStore):
    for day in range(1, 6):
        progress.hold_for_refills([(day * DAY_MS, day * DAY_MS + 2), (day * DAY_MS + 1, day * DAY_MS + 3)])
        advance(progress, day * DAY_MS + 10)
    assert sum(row[:1] == b"r" for row, _ in store.scan()) == 5
    progress.forget(before_ms=1)
    assert sum(row[:1] == b"r" for row, _ in store.scan()) == 2, "of the last, and of the one that may still be read"
    assert progress.watermark() == 5 * DAY_MS + 10


@pytest.mark.parametrize("hold", [Progress.hold, Progress.hold_for_refills, Progress.hold_for_fanouts])
def test_rule_10_a_hold_that_is_noted_late_counts_if_what_it_waits_for_is_parked(asked: Asked, hold: Holds):
    """Its own message was parked; other processes advance just before it is durable."""
    progress, other = Progress(asked), Progress(asked)
    pass_through(other, 5_000, 6_000)
    progress.park([(1_500, 3)])
    asked.meanwhile = [lambda: pass_through(other, 10_000, 11_000, 12_000)]
    hold(progress, [(1_000, 2_000)])
    assert progress.watermark() == 1_000
    progress.lift([(1_500, 3)], 12_000)
    advance(progress, 13_000)
    assert progress.watermark() == 13_000


def test_rule_10_a_hold_that_is_noted_while_another_process_advances_is_not_passed_over(asked: Asked):
    """It is noted when that process has read the holds, and before it notes which have passed."""
    progress, other = Progress(asked), Progress(asked)
    pass_through(other, 5_000, 6_000)
    progress.park([(6_200, 1)])
    other.hold_for_refills([(6_000, 6_100)])
    asked.meanwhile = [int, lambda: progress.hold_for_fanouts([(6_100, 6_600)])]
    advance(other, 7_000)
    assert not asked.meanwhile
    for ms in (7_000, 8_000):
        assert progress.watermark() == 6_100
        advance(other, ms)


def pass_through(progress: Progress, *times: int) -> None:
    """Holds that pass: the bound of what is noted follows."""
    for ms in times:
        progress.hold([(ms, ms)])
        advance(progress, ms + 1)


class Hold(NamedTuple):
    until: int
    since: int
    kind: int


def standing(holds: set[Hold], parked: set[int], settled: int) -> set[Hold]:
    """The holds that keep the watermark back, by their definition: taken one by one until no other one does."""
    found: set[Hold] = set()

    def stays(each: Hold) -> bool:
        later = [other.since for other in found if other > each and 0 in (each.kind, other.kind)]
        return each.until >= settled or any(since <= each.until for since in (*parked, *later))

    while more := {each for each in holds - found if stays(each)}:
        found |= more
    return found


@given(data=st.data())
def test_rule_10_a_look_finds_every_hold_that_keeps_the_watermark_back(data: st.DataObject):
    store = MemoryStore(progress_table(purge_window_ms=10**9))
    writers = [Progress(store), Progress(store)]
    holds: set[Hold] = set()  # without those that have passed
    noted: set[Hold] = set()
    notes: dict[int, int] = {}  # what is parked, by its number: what was lifted stays lifted
    numbers = itertools.count(1)
    settled = 1_000_000
    advance(writers[0], settled)
    ahead, back = st.sampled_from([0, 1, 500, 70_000, 150_000]), st.sampled_from([0, 1, 700, 90_000, 200_000, 700_000])
    for _ in range(data.draw(st.integers(4, 16))):
        writer = data.draw(st.sampled_from(writers))
        match data.draw(st.sampled_from(["hold", "hold", "hold", "park", "lift", "advance", "advance"])):
            case "hold":
                until = settled + data.draw(ahead)
                each = Hold(until, until - data.draw(back), data.draw(st.integers(0, 2)))
                note = (writer.hold, writer.hold_for_refills, writer.hold_for_fanouts)[each.kind]
                note([(each.since, each.until)])
                holds.add(each)
                noted.add(each)
            case "park":
                number = next(numbers)
                notes[number] = settled - data.draw(back)
                writer.park([(notes[number], number)])
            case "lift" if notes:
                number = data.draw(st.sampled_from(sorted(notes)))
                writer.lift([(notes.pop(number), number)], settled)
            case "lift" | "advance":
                settled += data.draw(ahead)
                advance(writer, settled)
                holds &= standing(holds, {*notes.values()}, settled)  # what has passed is dropped
        parked = {*notes.values()}
        expected = min([settled, *parked, *(each.since for each in standing(holds, parked, settled))])
        # One that has just passed may count once more, for what is parked that is older.
        at_least = min([settled, *parked, *(each.since for each in standing(noted, parked, settled))])
        assert at_least <= (Progress(store).watermark() or 0) <= expected
    writers[0].lift([(since, number) for number, since in notes.items()], settled)
    advance(writers[1], settled + 200_000)
    assert Progress(store).watermark() == settled + 200_000


@IN_STREAMS
def test_rule_10_a_stream_of_holds_does_not_keep_the_watermark_back_for_ever(progress: Progress, hold: Holds):
    """Each waits 300 ms for its refill or its ranges, and before that the next one has come."""
    for ms in range(1_000, 21_000, 100):
        hold(progress, [(ms, ms + 300)])
        advance(progress, ms)
        assert progress.watermark() == max(1_000, ms - 300)
    advance(progress, 30_000)
    assert progress.watermark() == 30_000


def test_rule_10_a_fanout_of_which_a_range_was_put_off_waits_for_it(progress: Progress):
    """What a reader of both sees: one of the two holds is there at any time."""
    progress.hold_for_fanouts([(1_500, 3_000)])
    progress.hold([(1_500, 6_000)])
    advance(progress, 5_000)
    assert progress.state().fanouts == [1_500]
    advance(progress, 6_001)
    assert progress.watermark() == 6_001
    assert progress.state().fanouts == []


@pytest.mark.parametrize("put_off_ms", [2_000, 3_000])
def test_rule_10_an_unfollow_waits_for_its_refill_if_that_was_put_off(progress: Progress, put_off_ms: int):
    progress.hold_for_refills([(1_500, 3_000), (2_500, 4_000)])
    progress.hold([(put_off_ms, 6_000)])
    for settled_ms in (3_001, 4_001, 6_000):
        advance(progress, settled_ms)
        assert progress.watermark() == 1_500
    advance(progress, 6_001)
    assert progress.watermark() == 6_001


def test_rule_10_an_unfollow_waits_for_its_refill_if_that_is_parked(progress: Progress):
    progress.hold_for_refills([(1_500, 3_000)])
    progress.park([(3_000, 7)])
    advance(progress, 9_000)
    assert progress.watermark() == 1_500
    progress.lift([(3_000, 7)], 9_000)
    assert progress.watermark() == 9_000


@IN_STREAMS
def test_rule_10_what_was_dated_again_waits_for_the_refill_or_the_ranges_of_its_new_date(
    progress: Progress, hold: Holds
):
    progress.hold([(1_500, 3_000)])
    hold(progress, [(3_000, 5_000), (3_500, 6_000)])
    advance(progress, 5_000)
    assert progress.watermark() == 1_500
    advance(progress, 5_001)
    assert progress.watermark() == 3_500
    advance(progress, 6_001)
    assert progress.watermark() == 6_001


def test_rule_10_what_is_parked_keeps_the_watermark_back_until_it_is_lifted(progress: Progress):
    advance(progress, 1_000)
    progress.park([(800, 7), (900, 8), (800, 9)])
    for settled_ms in (2_000, 2**40):
        advance(progress, settled_ms)
        assert progress.watermark() == 800
    progress.lift([(800, 7)], 1_000)
    assert progress.watermark() == 800
    progress.lift([(800, 9)], 1_000)
    assert progress.watermark() == 900
    progress.lift([(900, 8)], 1_000)
    assert progress.watermark() == 2**40


@pytest.mark.parametrize("now_ms", [1, 800, 5_000], ids=["clock behind", "same ms", "later"])
def test_rule_10_what_was_lifted_stays_lifted_whatever_is_noted_later(progress: Progress, now_ms: int):
    """A copy of it may be parked once more, and a note may come late: what has landed has landed."""
    advance(progress, 1_000)
    progress.lift([(800, 7)], now_ms)
    progress.park([(800, 7)])
    assert progress.watermark() == 1_000


def test_rule_10_a_hold_waits_for_what_is_parked_before_its_end(progress: Progress):
    """The delivery that a hold is for may itself have been parked."""
    progress.hold([(1_500, 3_000)])
    progress.park([(3_000, 7)])
    advance(progress, 9_000)
    assert progress.watermark() == 1_500
    progress.lift([(3_000, 7)], 9_000)
    assert progress.watermark() == 9_000


def test_rule_10_a_hold_that_ended_before_what_is_parked_waits_for_nothing(progress: Progress):
    progress.hold([(1_500, 3_000)])
    progress.park([(3_001, 7)])
    advance(progress, 9_000)
    assert progress.watermark() == 3_001


def test_rule_10_the_first_that_is_parked_counts_behind_any_number_of_holds(progress: Progress):
    progress.hold([(5_000 + number, 9_000 + number) for number in range(2_500)])
    progress.park([(4_000 + number, 1) for number in range(2_500)])
    advance(progress, 20_000)
    assert progress.watermark() == 4_000
    progress.lift([(4_000 + number, 1) for number in range(2_400)], 20_000)
    assert progress.watermark() == 5_000  # its hold ended after what is still parked began
    progress.lift([(4_000 + number, 1) for number in range(2_400, 2_500)], 20_000)
    assert progress.watermark() == 20_000


def test_what_was_parked_and_lifted_leaves_nothing_once_markers_are_old(progress: Progress, store: MemoryStore):
    progress.refuse_unwritable()
    progress.park([(800, 7)])
    progress.lift([(800, 7)], 1_000)
    store.sweep(1_000 + 1_000_001)
    assert store._rows == {}


def test_a_cluster_that_takes_nothing_says_so(progress: Progress, store: MemoryStore):
    progress.refuse_unwritable()
    assert list(store.scan()) == []
    store.close()
    with pytest.raises(UnavailableError):
        progress.refuse_unwritable()


def test_a_purge_is_finished_by_the_last_of_its_parts_whatever_their_order(progress: Progress):
    for number, order in enumerate(itertools.permutations(range(1, 4)), 1):
        landed = [progress.part_landed(5, 100 + number, part, 3) for part in order]
        assert landed == [False, False, True]
    assert progress.part_landed(5, 101, 2, 3)  # delivered again: what follows is idempotent


def test_parts_of_another_follower_or_of_another_cut_do_not_count(progress: Progress):
    assert not progress.part_landed(5, 100, 1, 2)
    assert not progress.part_landed(6, 100, 2, 2)
    assert not progress.part_landed(5, 101, 2, 2)
    assert not progress.part_landed(5, 100, 2, 3)
    assert progress.part_landed(5, 100, 2, 2)


def test_parts_are_forgotten_once_they_are_old(progress: Progress, store: MemoryStore):
    progress.part_landed(5, 100, 1, 2)
    progress.part_landed(5, 200, 1, 2)
    progress.forget(before_ms=200)
    assert [len(columns) for _, columns in store.scan()] == [1]


def test_what_was_sent_back_counts_for_what_was_read_before(progress: Progress):
    one, same_row, other = b"1234567890123456", b"12345678abcdefgh", b"abcdefgh12345678"
    assert not progress.sent_back_after({one: 1})
    progress.note_sent_back([one], 500)
    progress.note_sent_back([one, other], 300)
    assert progress.sent_back_after({one: 499})
    assert not progress.sent_back_after({one: 500})
    assert progress.sent_back_after({other: 299})
    assert not progress.sent_back_after({other: 300})
    assert progress.sent_back_after({one: 499, other: 300, same_row: 1}) == {one}


def test_what_was_sent_back_is_forgotten_once_it_is_old(progress: Progress, store: MemoryStore):
    progress.note_sent_back([b"1" * 16], 199)
    progress.note_sent_back([b"2" * 16], 200)
    progress.hold([(1, 2)])
    progress.forget(before_ms=200)
    assert not progress.sent_back_after({b"1" * 16: 1})
    assert progress.sent_back_after({b"2" * 16: 1})
    assert progress.watermark() is None
    assert [row[:1] for row, _ in store.scan()] == [b"b", b"h", b"s"]


def test_a_cluster_that_was_never_made_anew_was_made_before_everything(progress: Progress, store: MemoryStore):
    assert progress.made_ms() == 0
    Progress(store).made(700)
    assert Progress(store).made_ms() == 700


def test_when_a_cluster_was_made_is_looked_up_once(progress: Progress, store: MemoryStore):
    progress.made(700)
    assert progress.made_ms() == 700
    store.close()
    assert progress.made_ms() == 700


def test_a_closed_cluster_has_no_watermark(store: MemoryStore):
    store.close()
    with pytest.raises(UnavailableError):
        Progress(store).watermark()
