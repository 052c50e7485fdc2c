"""Rule 10: the watermark never claims what has not landed, and moves when nothing happens."""

import itertools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.widecolumn import Cell, Mutation, Put, UnavailableError
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


def advance(progress: Progress, ms: int, partition: int = 0, partitions: int = 1, sources: int = 1):
    progress.advance({Through(partition, partitions, sources): ms})


def note_pair(store: MemoryStore, ms: int, partition: int, partitions: int, source: int, sources: int):
    """Notes a tick of one source as versions did that noted each pair of a partition and a source."""
    store.apply([Put([(b"t" + bytes(8), ms)], [struct.pack(">IIII", partition, partitions, source, sources)])])


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


def test_rule_10_the_watermark_waits_for_every_partition(progress: Progress):
    progress.hold([(500, 900)])
    for partition in range(2):
        advance(progress, 1_000 + partition, partition, 3)
        assert progress.watermark() is None
    advance(progress, 5_000, 2, 3)
    assert progress.watermark() == 1_000


def test_rule_10_ticks_of_earlier_versions_wait_for_every_partition_and_every_source(
    store: MemoryStore, progress: Progress
):
    places = list(itertools.product(range(3), range(2)))
    for partition, source in places[:-1]:
        note_pair(store, 1_000 + partition, partition, 3, source, 2)
        assert progress.watermark() is None
    note_pair(store, 5_000, 2, 3, 1, 2)
    assert progress.watermark() == 1_000
    assert progress.partitions() == 3


def test_rule_10_writers_of_an_earlier_version_may_run_while_others_are_updated(store: MemoryStore, progress: Progress):
    for partition, source in itertools.product(range(2), range(3)):
        note_pair(store, 1_000 + source, partition, 2, source, 3)
    advance(progress, 9_000, 0, 2, 3)
    assert progress.watermark() == 1_000, "the other partition has an earlier writer"
    note_pair(store, 4_000, 1, 2, 0, 3)
    assert progress.watermark() == 1_001
    for source in range(3):
        note_pair(store, 8_000, 1, 2, source, 3)
    assert (progress.watermark(), progress.partitions()) == (8_000, 3)
    advance(progress, 10_000, 1, 2, 3)
    assert progress.watermark() == 9_000, "what earlier versions noted stays, and holds nothing back"


def test_rule_10_a_source_that_is_added_does_not_make_a_watermark_unknown(progress: Progress):
    advance(progress, 1_000, sources=1)
    advance(progress, 2_000, sources=2)
    assert (progress.watermark(), progress.partitions()) == (2_000, 2)
    advance(progress, 1_500, sources=1)
    assert progress.watermark() == 2_000


def park(progress: Progress, since_ms: int, end: int, partition: int = 0) -> None:
    progress.park([since_ms], {(2, partition): end})


def land(progress: Progress, end: int, partition: int = 0) -> None:
    """All that was parked before an offset has landed."""
    progress.note_applied({(2, partition): end})


def bounds(store: MemoryStore) -> list[tuple[int, int]]:
    """The columns of the row of bounds."""
    return [struct.unpack(">QQ", column) for column in store.read(b"b" + bytes(8), None, 10_000)]


def park_each(store: MemoryStore, *noted: tuple[int, int]) -> None:
    """Notes (since, id) as versions did that noted each message they parked."""
    for since, number in noted:
        store.apply([Put([(b"h" + bytes(8), since)], [struct.pack(">QQ", 2**63 + since, number)])])


@pytest.fixture
def ahead(store: MemoryStore, progress: Progress) -> Progress:
    """A cluster of a store whose clock was ahead: 101,000 is now."""
    progress.hold([(100_400, 900_000)])
    progress.park([100_500, 800_000], {(2, 0): 2})
    park_each(store, (100_500, 7), (800_000, 8))
    progress.made(800_000)
    advance(progress, 900_500)
    assert progress.watermark() == 100_000
    return progress


def test_rule_10_a_cluster_that_is_brought_back_knows_nothing_until_a_tick_has_come(
    store: MemoryStore, ahead: Progress
):
    reader, looker = Progress(store), Progress(store)
    assert reader.watermark() == looker.state().watermark == 100_000
    assert ahead.bring_back(101_000)
    assert [ahead.watermark(), reader.watermark(), Progress(store).watermark()] == [None, None, None]
    assert looker.state().watermark is None
    writer = Progress(store)
    assert writer.made_ms() == 101_000
    advance(writer, 101_001)
    assert reader.watermark() == 100_000, "what is parked has not landed"
    land(writer, 2)
    assert reader.watermark() == 100_400, "nor has what an earlier version parked, and the hold waits for it"
    writer.lift([(100_500, 7), (800_000, 8)], 101_001)
    assert reader.watermark() == 101_001
    assert not writer.bring_back(101_001)


def test_rule_10_a_hold_that_is_brought_back_waits_for_a_later_tick(store: MemoryStore, ahead: Progress):
    assert ahead.bring_back(101_000)
    land(ahead, 2)
    ahead.lift([(100_500, 7), (800_000, 8)], 101_001)
    advance(ahead, 101_000)
    assert Progress(store).watermark() == 100_400
    advance(ahead, 101_001)
    assert Progress(store).watermark() == 101_001


def test_rule_10_a_cluster_is_brought_back_as_often_as_a_clock_was_ahead(store: MemoryStore, progress: Progress):
    for number in range(1, 4):
        advance(progress, number * 900_000)
        assert progress.bring_back(number * 1_000)
        assert (progress.watermark(), Progress(store).watermark()) == (None, None)
        advance(progress, number * 1_000 + 1)
        assert Progress(store).watermark() == number * 1_000 + 1


@pytest.mark.parametrize("written", range(6))
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
        ahead.bring_back(101_000)
    monkeypatch.undo()

    advance(ahead, 900_600)
    ahead.lift([(100_500, 7)], 900_600)
    assert (ahead.made_ms(), ahead.watermark()) == (800_000, 100_000)
    assert Progress(store).state().heard == {0: 900_600}
    assert ahead.bring_back(101_000)


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
    progress.hold([(10_400, 20_900)])
    park(progress, 10_500, 1)
    advance(progress, 21_000)
    assert not progress.bring_back(21_000)
    assert progress.watermark() == 10_000


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
    """versions: what its reads of holds and of what is parked came to, visible or not: what they cost HBase, but for
    what is visible and sorts before them. meanwhile: what other processes do before each of the next writes.
    """

    def __init__(self) -> None:
        super().__init__(progress_table(purge_window_ms=10**9))
        self.versions = 0
        self.before_applied: list[Callable[[], object]] = []
        self.meanwhile: list[Callable[[], object]] = []

    def apply(self, batch: Sequence[Mutation]) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        super().apply(batch)

    def cells(self, row: bytes) -> list[Cell]:
        if row.startswith(b"a") and self.before_applied:
            self.before_applied.pop(0)()
        if row.startswith(b"k"):
            self.versions += len({each.column for each in self.versions_of(row)})
        return super().cells(row)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        before = self.versions
        shown = {each.column for each in super().cells(row)}
        skipped = {column for column in shown if after is not None and column <= after}
        found = super().read(row, after, limit, deadline_s)
        self.versions = before + sum(each.column not in skipped for each in self.versions_of(row))
        return found


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


def test_rule_10_what_a_look_costs_does_not_depend_on_what_was_parked_and_has_landed(asked: Asked):
    progress = Progress(asked)
    began = 5 * DAY_MS
    for end, ms in enumerate(range(began, began + 4_000_000, 10_000), 1):
        park(progress, ms, end)
        assert progress.state().parked == [ms - ms % 10_000]
        land(progress, end)
        advance(progress, ms + 1)
    for process in progress, Progress(asked):
        asked.versions = 0
        assert process.watermark() == began + 3_990_001
        assert asked.versions < 70
    progress.forget(before_ms=1)
    assert sum(row[:1] == b"k" for row, _ in asked.scan()) == 0
    advance(progress, began + 5_000_000)
    asked.versions = 0
    assert progress.watermark() == began + 5_000_000
    assert asked.versions < 10
    progress.forget(before_ms=1)
    assert sum(row[:1] == b"k" for row, _ in asked.scan()) == 0
    assert len(bounds(asked)) == 2, "of what was parked only the last change"
    assert progress.watermark() == began + 5_000_000


def test_rule_10_what_has_landed_is_not_read_again_while_a_hold_keeps_the_watermark_back(asked: Asked):
    """As while a cluster is rebuilt: its watermark is at the beginning of time."""
    progress = Progress(asked)
    progress.hold([(1, DAY_MS * 3)])
    for end, ms in enumerate(range(DAY_MS, DAY_MS + 40_000_000, 10_000), 1):
        park(progress, ms, end)
        land(progress, end)
    advance(progress, DAY_MS + 40_000_000)
    asked.versions = 0
    assert progress.watermark() == 1
    assert asked.versions < 70


def test_rule_10_what_is_parked_counts_if_a_process_wakes_up_that_slept_while_the_watermark_was_turned_back(
    asked: Asked,
):
    progress, sleeper = Progress(asked), Progress(asked)
    advance(progress, 1_000_000)
    park(progress, 1_000_000, 1)
    land(progress, 1)

    def rewound() -> None:
        progress.hold([(1_000_000, 6_000_000)])
        park(progress, 1_500_000, 2)

    asked.meanwhile = [int, rewound]
    advance(sleeper, 5_000_000)
    assert not asked.meanwhile
    advance(progress, 6_000_001)
    assert progress.watermark() == 1_000_000
    land(progress, 2)
    assert progress.watermark() == 6_000_001


def test_rule_10_a_hold_that_comes_of_what_is_parked_counts_in_a_look_that_has_begun(asked: Asked):
    """It is the first of its kind on this day, so that its row had no name when the look began."""
    progress, reader = Progress(asked), Progress(asked)
    advance(progress, DAY_MS)
    park(progress, DAY_MS + 10_000, 1)
    advance(progress, DAY_MS + 90_000)

    def landed() -> None:
        progress.hold_for_refills([(DAY_MS + 10_500, DAY_MS + 100_000)])
        land(progress, 1)

    asked.before_applied = [landed]
    assert reader.watermark() == DAY_MS + 10_500
    assert not asked.before_applied


def test_notes_whose_writer_died_before_looks_read_their_row_are_forgotten(asked: Asked):
    def dies() -> None:
        raise UnavailableError("dead")

    progress = Progress(asked)
    asked.meanwhile = [int, dies]
    with pytest.raises(UnavailableError):
        park(progress, 1_500_000, 2)
    assert [row for row, _ in asked.scan() if row[:1] == b"k"]
    land(progress, 2)
    progress.forget(1)
    assert not [row for row, _ in asked.scan() if row[:1] == b"k"]


def test_programs_from_before_rows_of_what_is_parked_know_every_kind_in_the_row_of_bounds(
    progress: Progress, store: MemoryStore
):
    """They take the number of a kind, from 0, as the place in a tuple of three. What they find there is empty."""
    park(progress, 1_700_000_000_000, 1)
    park(progress, 2**62, 1)
    land(progress, 1)
    advance(progress, 1_700_000_000_000)
    named = bounds(store)
    assert len(named) == 4
    assert all(kind == 0 and number < 2**32 for kind, number in named)


def test_rule_10_an_outage_of_hours_has_a_note_for_each_ten_seconds_and_a_look_reads_the_first(asked: Asked):
    progress = Progress(asked)
    for second in range(0, 4 * 3_600, 3):
        progress.park([1_000_000 + second * 1_000 + rest for rest in (0, 300, 2_999)], {(2, 0): second, (2, 1): 7})
    advance(progress, 20_000_000)
    asked.versions = 0
    state = progress.state()
    assert (state.watermark, len(state.parked)) == (1_000_000, 2 * 20)
    assert asked.versions < 150


@pytest.mark.parametrize("hold", [Progress.hold, Progress.hold_for_refills, Progress.hold_for_fanouts])
def test_rule_10_what_a_look_costs_does_not_depend_on_the_holds_of_an_outage(asked: Asked, hold: Holds):
    """A region is away for an hour, and what is put off in the others has all landed, but for the last."""
    progress = Progress(asked)
    began = 5 * DAY_MS
    advance(progress, began)
    park(progress, began + 500, 1)
    for number, ms in enumerate(range(began + 1_000, began + 3_601_000, 1_000)):
        hold(progress, [(ms, ms + 300)])
        if number % 100 == 99:
            advance(progress, ms)
            asked.versions = 0
            assert progress.watermark() == began
            assert asked.versions < 1_500
    land(progress, 1)
    advance(progress, began + 3_700_000)
    assert progress.watermark() == began + 3_700_000


def test_holds_of_days_that_no_look_reads_are_forgotten(progress: Progress, store: MemoryStore):
    for day in range(1, 6):
        progress.hold_for_refills([(day * DAY_MS, day * DAY_MS + 2), (day * DAY_MS + 1, day * DAY_MS + 3)])
        advance(progress, day * DAY_MS + 10)
    assert sum(row[:1] == b"r" for row, _ in store.scan()) == 5
    progress.forget(before_ms=1)
    assert sum(row[:1] == b"r" for row, _ in store.scan()) == 2, "of the last, and of the one that may still be read"
    assert len(bounds(store)) == 2 + 2, "the two times, and a name for each of these rows"
    assert progress.watermark() == 5 * DAY_MS + 10


@pytest.mark.parametrize("hold", [Progress.hold, Progress.hold_for_refills, Progress.hold_for_fanouts])
def test_rule_10_a_hold_that_is_noted_late_counts_if_what_it_waits_for_is_parked(asked: Asked, hold: Holds):
    """Its own message was parked; other processes advance just before it is durable."""
    progress, other = Progress(asked), Progress(asked)
    pass_through(other, 50_000, 60_000)
    park(progress, 10_500, 3)
    asked.meanwhile = [lambda: pass_through(other, 100_000, 110_000, 120_000)]
    hold(progress, [(9_000, 20_000)])
    assert progress.watermark() == 9_000
    land(progress, 3)
    advance(progress, 130_000)
    assert progress.watermark() == 130_000


def test_rule_10_a_hold_that_is_noted_while_another_process_advances_is_not_passed_over(asked: Asked):
    """It is noted when that process has read the holds, and before it notes which have passed."""
    progress, other = Progress(asked), Progress(asked)
    pass_through(other, 50_000, 60_000)
    park(progress, 70_500, 1)
    other.hold_for_refills([(60_100, 60_500)])
    asked.meanwhile = [int, lambda: progress.hold_for_fanouts([(60_700, 76_000)])]
    advance(other, 80_000)
    assert not asked.meanwhile
    for ms in (80_000, 90_000):
        assert progress.watermark() == 60_700
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


@pytest.mark.parametrize("as_one", [False, True])
@given(data=st.data())
def test_rule_10_a_look_finds_every_hold_that_keeps_the_watermark_back(as_one: bool, data: st.DataObject):
    """as_one: the holds that wait for what is parked are noted as one, however few they are: it may last longer."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("feedstore.widecolumn.progress._WAITING_MAX", 0 if as_one else 1_000)
        look_finds_every_hold(data, as_one=as_one)


def look_finds_every_hold(data: st.DataObject, *, as_one: bool) -> None:
    store = MemoryStore(progress_table(purge_window_ms=10**9))
    writers = [Progress(store), Progress(store)]
    holds: set[Hold] = set()  # without those that have passed
    noted: set[Hold] = set()
    notes: dict[int, int] = {}  # what is parked, by its offset
    numbers = itertools.count(1)
    settled = 1_000_000
    advance(writers[0], settled)
    ahead, back = st.sampled_from([0, 1, 500, 70_000, 150_000]), st.sampled_from([0, 1, 700, 90_000, 200_000, 700_000])
    for _ in range(data.draw(st.integers(4, 16))):
        writer = data.draw(st.sampled_from(writers))
        match data.draw(st.sampled_from(["hold", "hold", "hold", "park", "park", "land", "advance", "advance"])):
            case "hold":
                until = settled + data.draw(ahead)
                each = Hold(until, until - data.draw(back), data.draw(st.integers(0, 2)))
                note = (writer.hold, writer.hold_for_refills, writer.hold_for_fanouts)[each.kind]
                note([(each.since, each.until)])
                holds.add(each)
                noted.add(each)
            case "park":
                number = next(numbers)
                since = settled - data.draw(back)
                notes[number] = since - since % 10_000
                park(writer, since, number)
            case "land" if notes:
                landed = data.draw(st.sampled_from(sorted(notes)))
                land(writer, landed)
                notes = {number: since for number, since in notes.items() if number > landed}
            case "land" | "advance":
                settled += data.draw(ahead)
                advance(writer, settled)
                holds &= standing(holds, {*notes.values()}, settled)  # what has passed is dropped
        parked = {*notes.values()}
        expected = min([settled, *parked, *(each.since for each in standing(holds, parked, settled))])
        # One that has just passed may count once more, for what is parked that is older.
        longest = noted if as_one else standing(noted, parked, settled)
        at_least = min([settled, *parked, *(each.since for each in longest)])
        assert at_least <= (Progress(store).watermark() or 0) <= expected
    land(writers[0], next(numbers))
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
    progress.hold_for_refills([(1_500, 30_000)])
    park(progress, 30_500, 7)
    advance(progress, 90_000)
    assert progress.watermark() == 1_500
    land(progress, 7)
    assert progress.watermark() == 90_000


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


def test_rule_10_what_is_parked_keeps_the_watermark_back_until_all_that_was_parked_with_it_is_applied(
    progress: Progress,
):
    advance(progress, 100_000)
    progress.park([81_000, 95_000], {(2, 0): 7, (2, 1): 3})
    park(progress, 89_000, 9)
    for settled_ms in (200_000, 2**40):
        advance(progress, settled_ms)
        assert progress.watermark() == 80_000
    land(progress, 3, partition=1)
    land(progress, 8)
    assert progress.watermark() == 80_000, "what committed in the same ten seconds has not landed"
    land(progress, 9)
    assert progress.watermark() == 2**40


def test_rule_10_positions_of_another_topic_do_not_count(progress: Progress):
    advance(progress, 100_000)
    park(progress, 80_000, 5)
    progress.note_applied({(1, 0): 99})
    assert progress.watermark() == 80_000


def test_rule_10_what_is_noted_only_when_it_has_landed_keeps_nothing_back(progress: Progress):
    """The copy is in the topic before the note, and may be done by then."""
    advance(progress, 100_000)
    land(progress, 5)
    park(progress, 80_000, 5)
    assert progress.watermark() == 100_000


def test_rule_10_what_is_parked_again_after_the_watermark_was_turned_back_counts(progress: Progress):
    """`feedctl rewind` turns it back: the same messages come once more."""
    for settled_ms in (5_000_000, 6_000_000):
        advance(progress, settled_ms)
        park(progress, settled_ms, settled_ms)
        land(progress, settled_ms)
    advance(progress, 9_000_000)
    progress.hold([(1_000_000, 9_000_000)])
    park(progress, 2_000_000, 6_000_001)
    progress.forget(before_ms=1)
    advance(progress, 9_000_001)
    assert progress.watermark() == 1_000_000, "the hold waits for what is parked, too"
    land(progress, 6_000_001)
    assert progress.watermark() == 9_000_001
    progress.hold([(1_000_000, 9_500_000)])
    park(progress, 2_000_000, 6_000_002)
    assert progress.state().parked == [2_000_000]


def test_rule_10_what_is_parked_while_another_process_advances_counts(asked: Asked):
    """It was read from the dead letters: no tick waits for it. The watermark passes it just before its note is
    durable.
    """
    progress, other = Progress(asked), Progress(asked)
    advance(progress, 1_000_000)
    park(other, 1_000_000, 1)
    land(other, 1)
    asked.meanwhile = [lambda: advance(other, 5_000_000)]
    park(progress, 1_500_000, 2)
    assert progress.watermark() == 1_500_000


def test_rule_10_what_an_earlier_version_parked_keeps_the_watermark_back_until_it_is_lifted(
    progress: Progress, store: MemoryStore
):
    advance(progress, 1_000)
    park_each(store, (800, 7), (900, 8), (800, 9))
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
def test_rule_10_what_was_lifted_stays_lifted_whatever_an_earlier_version_notes_later(
    progress: Progress, store: MemoryStore, now_ms: int
):
    """A copy of it may be parked once more, and a note may come late: what has landed has landed."""
    advance(progress, 1_000)
    progress.lift([(800, 7)], now_ms)
    park_each(store, (800, 7))
    assert progress.watermark() == 1_000


def test_rule_10_a_hold_waits_for_what_is_parked_before_its_end(progress: Progress):
    """The delivery that a hold is for may itself have been parked."""
    progress.hold([(1_500, 30_000)])
    park(progress, 30_500, 7)
    advance(progress, 90_000)
    assert progress.watermark() == 1_500
    assert (progress.state().put_off, progress.state().parked) == ([1_500], [30_000])
    land(progress, 7)
    assert progress.watermark() == 90_000


def test_rule_10_a_hold_that_ended_before_what_is_parked_waits_for_nothing(progress: Progress):
    progress.hold([(1_500, 29_999)])
    park(progress, 30_500, 7)
    advance(progress, 90_000)
    assert progress.watermark() == 30_000


def test_rule_10_the_first_that_an_earlier_version_parked_counts_behind_any_number_of_holds(
    progress: Progress, store: MemoryStore
):
    progress.hold([(5_000 + number, 9_000 + number) for number in range(2_500)])
    park_each(store, *((4_000 + number, 1) for number in range(2_500)))
    advance(progress, 20_000)
    assert progress.watermark() == 4_000
    progress.lift([(4_000 + number, 1) for number in range(2_400)], 20_000)
    assert progress.watermark() == 5_000  # its hold ended after what is still parked began
    progress.lift([(4_000 + number, 1) for number in range(2_400, 2_500)], 20_000)
    assert progress.watermark() == 20_000


def test_what_was_parked_leaves_nothing_once_it_has_landed_and_markers_are_old(progress: Progress, store: MemoryStore):
    progress.refuse_unwritable()
    park(progress, 800, 7)
    park_each(store, (800, 7))
    progress.lift([(800, 7)], 1_000)
    land(progress, 7)
    advance(progress, 900_000)
    advance(progress, 900_001)
    progress.forget(1)
    store.sweep(1_000_000 + 1_000_001)
    assert {row[:1] for row in store._rows} == {b"a", b"b", b"t"}


def test_rule_10_notes_that_this_version_does_not_know_are_not_passed_over(progress: Progress, store: MemoryStore):
    advance(progress, 1_000)
    store.apply([Put([(b"b" + bytes(8), 1)], [struct.pack(">QQ", 4, 20_000)])])
    for look in progress.watermark, progress.state, lambda: advance(progress, 2_000):
        with pytest.raises(UnavailableError, match="later version"):
            look()


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
    Progress(store).made(900)
    assert Progress(store).made_ms() == 900


def test_when_a_cluster_was_made_is_looked_up_once(progress: Progress, store: MemoryStore):
    progress.made(700)
    assert progress.made_ms() == 700
    store.close()
    assert progress.made_ms() == 700


def test_a_closed_cluster_has_no_watermark(store: MemoryStore):
    store.close()
    with pytest.raises(UnavailableError):
        Progress(store).watermark()
