"""Rule 10: the watermark never claims what has not landed, and moves when nothing happens."""

import itertools
from collections.abc import Callable, Iterable, Sequence

import pytest

from feedstore.widecolumn import Mutation, UnavailableError
from feedstore.widecolumn.progress import Progress, Through, progress_table
from tests.widecolumn.memory_store import MemoryStore

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


def test_rule_10_what_was_put_off_twice_is_held_until_the_second_time(progress: Progress):
    progress.hold([(1_500, 3_000)])
    progress.hold([(3_000, 6_000), (2_500, 8_000)])
    for settled_ms in (2_000, 3_001, 6_001, 8_000):
        advance(progress, settled_ms)
        assert progress.watermark() == 1_500
    advance(progress, 8_001)
    assert progress.watermark() == 8_001


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
    assert not progress.sent_back_after(one, 1)
    progress.note_sent_back([one], 500)
    progress.note_sent_back([one, other], 300)
    assert progress.sent_back_after(one, 499)
    assert not progress.sent_back_after(one, 500)
    assert progress.sent_back_after(other, 299)
    assert not progress.sent_back_after(other, 300)
    assert not progress.sent_back_after(same_row, 1)


def test_what_was_sent_back_is_forgotten_once_it_is_old(progress: Progress, store: MemoryStore):
    progress.note_sent_back([b"1" * 16], 199)
    progress.note_sent_back([b"2" * 16], 200)
    progress.hold([(1, 2)])
    progress.forget(before_ms=200)
    assert not progress.sent_back_after(b"1" * 16, 1)
    assert progress.sent_back_after(b"2" * 16, 1)
    assert len(list(store.scan())) == 2


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
