"""Positions that a cluster has applied: a group begins where its cluster is, and again when the cluster goes back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from feedstore.following import FEEDS, Witnesses, feed_table, trusted_watermark
from feedstore.following.witnesses import ROWS
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import (
    Cell,
    DamagedError,
    DeleteColumns,
    Mutation,
    Put,
    Table,
    UnavailableError,
    WideColumnStore,
)
from feedstore.widecolumn.progress import PROGRESS, Progress, Through, progress_table
from tests.mutations import rows_of
from tests.queue.memory_queue import MemoryQueue
from tests.widecolumn.memory_store import MemoryStore
from workers.following.applied import Applied, OlderClusterError, begin_group, begin_groups, note_all
from workers.following.faults import fault
from workers.following.groups import EXPANDER
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES, TOPICS
from workers.queue.port import PositionLostError, QueueUnavailableError, Topic

GROUP = "writer-b"


def stores() -> Replica:
    return Replica("b", {FEEDS: MemoryStore(feed_table(10, 2, 10**6)), PROGRESS: MemoryStore(progress_table(10**6))})


@dataclass
class Bench:
    """A cluster b and its group, with ten messages in each of two partitions."""

    replica: Replica = field(default_factory=stores)
    now_ms: int = 1_000
    now_s: float = 0.0
    queue: MemoryQueue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: self.now_ms)
        for partition in range(2):
            self.queue.publish(DELIVERIES, [b"%d" % number for number in range(10)], partition)

    @property
    def progress(self) -> Progress:
        return Progress(self.replica.progress)

    def applied(self) -> Applied:
        return Applied(self.replica, self.queue, DELIVERIES, GROUP, self.monotonic_s)

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def commit(self, positions: dict[int, int]) -> None:
        consumer = self.queue.consumer(DELIVERIES, GROUP)
        consumer.commit(positions)
        consumer.close()

    def done(self, positions: dict[int, int]) -> Applied:
        """A group that has begun, and has noted and committed these positions."""
        self.commit({})
        applied = self.applied()
        applied.begin()
        applied.note({partition: (0, end) for partition, end in positions.items()})
        self.progress.advance({Through(0, 1, 1): 5})
        self.commit(positions)
        return applied

    def state(self) -> tuple[str, bool] | None:
        found = fault(self.replica, self.queue, self.monotonic_s, 10.0)
        return None if found is None else (found.message, found.is_mended_by_writers)


def assert_lost(bench: Bench) -> None:
    """The cluster counts as one that has lost deliveries, and that its group does not begin."""
    assert bench.state() == ("cluster b lost deliveries: rebuild it (feedctl rebuild --all --cluster b)", False)
    with pytest.raises(PositionLostError, match="cluster b lost deliveries"):
        bench.applied().begin()


def test_a_group_begins_where_it_was_if_its_cluster_has_that() -> None:
    bench = Bench()
    bench.done({0: 4, 1: 2})

    bench.applied().begin()

    assert bench.queue.positions(DELIVERIES, GROUP) == {0: 4, 1: 2}
    assert bench.state() is None
    assert bench.progress.name() == "b"


def test_a_group_goes_back_to_what_a_cluster_has_that_was_put_back_while_it_was_away() -> None:
    bench = Bench()
    bench.done({0: 4})
    bench.commit({0: 9, 1: 3})  # the cluster that had this was replaced by a copy from before

    said = bench.state()
    assert said is not None
    assert said[0].startswith("cluster b is older than what its writers have committed")
    assert said[1]
    bench.applied().begin()

    assert bench.queue.positions(DELIVERIES, GROUP) == {0: 4, 1: 0}
    assert bench.state() is None


@pytest.mark.parametrize("spans", [{0: (4, 6)}, {}], ids=["with news", "without"])
def test_a_cluster_that_goes_back_under_its_writer_is_noticed_before_anything_is_noted(
    spans: dict[int, tuple[int, int]],
) -> None:
    bench = Bench()
    applied = bench.done({0: 2})
    before = bench.progress.applied()
    applied.note({0: (2, 4)})
    bench.replica.progress.apply([DeleteColumns([(b"a" + bytes(8), 5)], [bytes(7) + b"\1" + bytes(8)])])
    bench.replica.progress.apply([])
    assert bench.progress.applied() != before

    with pytest.raises(OlderClusterError):
        applied.note(spans)

    assert bench.progress.applied() == {}


def test_a_cluster_has_lost_deliveries_if_what_was_parked_for_it_is_in_a_topic_that_was_made_again() -> None:
    """It has noted offsets of the earlier topic: its watermark would not wait for what is parked with smaller ones."""
    bench = Bench()
    bench.done({0: 4})
    bench.queue.publish(RETRIES, [b"1", b"2"], 1)
    bench.queue.consumer(RETRIES, "retries-b").close()
    bench.progress.note_applied({(2, 1): 2})
    assert bench.state() is None
    bench.progress.note_applied({(2, 1): 3})

    assert_lost(bench)


def with_topics_made_again(bench: Bench, messages: int) -> None:
    """The topics are removed and made again under the clients that are open, and the positions of all groups are gone
    with them. messages: how many each partition has got since.
    """
    vars(bench.queue).update(vars(MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: bench.now_ms)))
    for partition in range(2):
        bench.queue.publish(DELIVERIES, [b"new"] * messages, partition)


@pytest.mark.parametrize("has_read", [False, True], ids=["before its group has read", "once its group has read"])
def test_a_cluster_has_lost_deliveries_if_their_topic_was_made_again(*, has_read: bool) -> None:
    """Its group would begin with the new messages, and the next tick would claim those that are gone."""
    bench = Bench()
    bench.done({0: 4})
    with_topics_made_again(bench, 2)
    if has_read:
        bench.commit({0: 2})

    assert_lost(bench)


def test_a_cluster_has_lost_deliveries_if_its_group_has_no_position_any_more() -> None:
    """By now the new topic has more messages than the cluster had applied of the earlier one."""
    bench = Bench()
    bench.done({0: 4})
    with_topics_made_again(bench, 9)

    assert_lost(bench)


def test_a_cluster_whose_group_has_lost_its_positions_alone_reads_once_more() -> None:
    """They expired, or somebody removed the group. The topic is the same by its id, and has all messages."""
    bench = Bench()
    bench.queue.ids = OF_ONE
    bench.done({0: 4})
    note_all("b", bench.progress, bench.queue)
    bench.queue.forget(DELIVERIES, "writer-b")

    assert bench.state() is None
    bench.applied().begin()


def test_a_cluster_has_lost_deliveries_if_their_topic_was_made_again_before_its_first_writer_began() -> None:
    """Its notes say nothing. An expander has begun, and had given the cluster's groups their positions before."""
    bench = Bench()
    begin_groups(bench.queue, "b")
    begin_group(bench.queue, ACTIONS, EXPANDER)
    assert bench.state() is None
    with_topics_made_again(bench, 2)
    begin_group(bench.queue, ACTIONS, EXPANDER)  # the topic of actions is as it was

    assert_lost(bench)

    begin_groups(bench.queue, "b")
    note_all("b", bench.progress, bench.queue)
    bench.applied().begin()
    assert bench.state() is None


@pytest.mark.parametrize(
    ("topic", "group"), [(DELIVERIES, GROUP), (RETRIES, "retries-b")], ids=["deliveries", "retries"]
)
def test_a_cluster_has_lost_deliveries_if_one_of_its_topics_was_made_again_before_its_first_writer_began(
    topic: Topic[object], group: str
) -> None:
    bench = Bench()
    begin_groups(bench.queue, "b")
    begin_group(bench.queue, ACTIONS, EXPANDER)
    bench.queue.forget(topic, group)
    assert_lost(bench)


def test_the_first_writer_of_a_cluster_begins_whether_or_not_an_expander_has() -> None:
    bench = Bench()
    bench.applied().begin()
    bench = Bench()
    begin_groups(bench.queue, "ab")
    begin_group(bench.queue, ACTIONS, EXPANDER)
    bench.applied().begin()
    assert bench.state() is None


def test_a_writer_notices_that_the_topic_of_deliveries_was_made_again_before_it_notes_anything() -> None:
    """So no tick of the new topic is passed on: a stage notes the messages first."""
    bench = Bench()
    applied = bench.done({0: 4})
    with_topics_made_again(bench, 2)
    bench.commit({})

    with pytest.raises(PositionLostError, match="cluster b lost deliveries"):
        applied.note({0: (0, 2), 1: (0, 2)})
    assert bench.progress.applied() == {(1, 0): 4}


class Unsynced(MemoryQueue):
    """What was published may still be lost, and cannot be made durable now."""

    def sync(self, topic: Topic[object]) -> None:
        raise QueueUnavailableError(f"{topic}: the disk is full")


def test_a_cluster_notes_nothing_that_its_queue_could_still_lose() -> None:
    """It would count as one whose topic was made again."""
    bench = Bench()
    applied = bench.done({0: 4})
    bench.queue.__class__ = Unsynced
    with pytest.raises(QueueUnavailableError):
        applied.note({0: (4, 6)})
    assert bench.progress.applied() == {(1, 0): 4}
    with pytest.raises(QueueUnavailableError):
        note_all("b", bench.progress, bench.queue)
    assert bench.progress.applied() == {(1, 0): 4}


OF_ONE, OF_ANOTHER = ({topic: bytes([number, *range(15)]) for number, topic in enumerate(TOPICS, at)} for at in (0, 9))


@pytest.mark.parametrize("began", [True, False], ids=["a cluster with a writer", "one that was just rebuilt"])
def test_a_cluster_has_lost_deliveries_if_the_ids_of_topics_differ_whatever_was_read_since(*, began: bool) -> None:
    """No writer ran for a while. Now the group has read in the new topic, and more than the cluster had applied."""
    bench = Bench()
    bench.queue.ids = OF_ONE
    if began:
        bench.done({0: 4})
    else:
        note_all("b", bench.progress, bench.queue)
    with_topics_made_again(bench, 9)
    bench.commit({0: 4})
    bench.queue.ids = OF_ANOTHER

    assert_lost(bench)


def test_a_cluster_of_an_earlier_version_notes_the_ids_of_its_topics_when_its_writer_begins() -> None:
    bench = Bench()
    bench.done({0: 4})
    bench.queue.ids = OF_ONE
    assert bench.state() is None
    bench.applied().begin()
    bench.applied().begin()
    assert bench.state() is None
    bench.queue.ids = OF_ANOTHER
    assert_lost(bench)


class Leaderless(MemoryQueue):
    """No broker leads one of the partitions."""

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        raise QueueUnavailableError(f"no broker leads one of the partitions of {topic}")


def test_rule_12_a_partition_that_nobody_leads_keeps_no_cluster_from_the_others_if_its_topics_are_known() -> None:
    bench = Bench()
    bench.done({0: 4})
    bench.queue.__class__ = Leaderless
    with pytest.raises(QueueUnavailableError):
        bench.applied().begin()
    bench.queue.ids = OF_ONE
    with pytest.raises(QueueUnavailableError):
        bench.applied().begin()
    bench.progress.note_topics({1: OF_ONE[DELIVERIES], 2: OF_ONE[RETRIES]})
    bench.applied().begin()
    bench.queue.ids = OF_ANOTHER
    with pytest.raises(PositionLostError):
        bench.applied().begin()


def test_a_position_is_noted_only_if_everything_before_it_is() -> None:
    """A partition comes from another member, which has committed more than this cluster has."""
    bench = Bench()
    applied = bench.done({0: 2})
    with pytest.raises(OlderClusterError):
        applied.note({1: (3, 5)})
    assert bench.progress.applied() == {(1, 0): 2}


def test_what_is_noted_again_after_a_rewind_moves_nothing_back() -> None:
    bench = Bench()
    applied = bench.done({0: 6})
    applied.note({0: (2, 3)})
    assert bench.progress.applied() == {(1, 0): 6}
    applied.note({})


def test_if_the_queue_does_not_keep_what_a_cluster_lacks_it_must_be_made_anew() -> None:
    bench = Bench()
    bench.done({0: 4})
    bench.commit({0: 9, 1: 9})
    bench.now_ms += 10
    bench.queue.expire(0, {})
    bench.queue.publish(DELIVERIES, [b"x"], 0)

    message, by_writers = bench.state() or ("", True)
    assert "feedctl rebuild --all --cluster b" in message
    assert not by_writers
    bench.applied().begin()

    with pytest.raises(PositionLostError):
        bench.queue.consumer(DELIVERIES, GROUP).poll(1, 0)


def test_a_cluster_of_an_earlier_version_is_taken_as_it_is() -> None:
    bench = Bench()
    bench.commit({0: 7, 1: 3})
    bench.progress.advance({Through(0, 1, 1): 5})
    assert bench.state() is None

    bench.applied().begin()

    assert bench.queue.positions(DELIVERIES, GROUP) == {0: 7, 1: 3}
    assert bench.progress.applied() == {(1, 0): 7, (1, 1): 3}
    assert bench.progress.name() == "b"


def test_an_empty_cluster_whose_group_has_read_is_one_that_was_lost() -> None:
    bench = Bench()
    bench.commit({0: 7, 1: 3})
    assert bench.state() is not None

    bench.applied().begin()

    assert bench.queue.positions(DELIVERIES, GROUP) == {0: 0, 1: 0}


@pytest.mark.parametrize("parts", [1, len(ROWS)])
def test_feeds_that_were_emptied_are_noticed_by_writers_and_readers(parts: int) -> None:
    bench = Bench()
    applied = bench.done({0: 2})
    assert trusted_watermark(bench.replica) == 5
    lost = ROWS[:parts]
    bench.replica.tables[FEEDS].apply([DeleteColumns([(row, 9) for row in lost], [bytes(16)])])

    with pytest.raises(DamagedError, match="following_feed was emptied or is older"):
        trusted_watermark(bench.replica)
    with pytest.raises(PositionLostError, match="feedctl rebuild --all --cluster b"):
        applied.note({0: (2, 4)})
    with pytest.raises(PositionLostError, match="damaged"):
        bench.applied().begin()
    message, by_writers = bench.state() or ("", True)
    assert "cluster b is damaged" in message
    assert not by_writers
    assert bench.progress.applied() == {(1, 0): 2}


def test_feeds_that_were_put_back_next_to_a_later_progress_are_noticed() -> None:
    bench = Bench()
    applied = bench.done({0: 2})
    older = stores().tables[FEEDS]
    older.apply([Put([(row, 1) for row in ROWS], [bytes(16)])])
    applied.note({0: (2, 4)})

    replica = Replica("b", {FEEDS: older, PROGRESS: bench.replica.progress})
    with pytest.raises(DamagedError):
        trusted_watermark(replica)

    # A rewind sees to it that what the table lacks is written again.
    Witnesses(older, bench.progress).renew()
    trusted_watermark(replica)


def copied(store: WideColumnStore, table: Table) -> MemoryStore:
    """What a table shows."""
    copy = MemoryStore(table)
    for row, _ in store.scan():
        copy.apply([Put([(row, cell.timestamp)], [cell.column]) for cell in store.cells(row)])
    return copy


def test_tables_that_were_copied_one_after_the_other_go_back_to_what_both_have() -> None:
    """HBase takes a snapshot of one table at a time. The witnesses of both copies agree for a second."""
    bench = Bench()
    bench.commit({})
    applied = Applied(bench.replica, bench.queue, DELIVERIES, GROUP, lambda: 0.0)
    applied.begin()
    applied.note({0: (0, 2), 1: (0, 1)})
    feeds = copied(bench.replica.tables[FEEDS], feed_table(10, 2, 10**6))
    applied.note({0: (2, 6), 1: (1, 3)})  # in no feed of the copy
    progress = copied(bench.replica.progress, progress_table(10**6))
    applied.note({0: (6, 8)})
    bench.commit({0: 8, 1: 3})
    bench.replica = Replica("b", {FEEDS: feeds, PROGRESS: progress})
    trusted_watermark(bench.replica)

    bench.applied().begin()

    assert bench.queue.positions(DELIVERIES, GROUP) == {0: 2, 1: 1}


def test_a_progress_that_was_put_back_leaves_witnesses_that_are_ahead_and_go_on() -> None:
    bench = Bench()
    bench.done({0: 2})
    bench.replica.tables[FEEDS].apply([Put([(row, 40) for row in ROWS], [bytes(16)])])
    witnesses = Witnesses(bench.replica.tables[FEEDS], bench.progress)

    witnesses.refuse_lost()
    assert witnesses.mark() == 41


@pytest.mark.parametrize("name", ["a", "x" * 15, "x" * 16, "x" * 17, "x" * 31])
def test_a_cluster_keeps_its_name(name: str) -> None:
    progress = Progress(MemoryStore(progress_table(10**6)))
    assert progress.name() is None
    progress.note_name(name)
    progress.note_name(name)
    assert progress.name() == name


class OneRegionAway(MemoryStore):
    """Rows of the last region are away. failed: called whenever its cells were asked for."""

    failed: Callable[[], None] | None = None

    def apply(self, batch: Sequence[Mutation]) -> None:
        if any(row[0] >= 0xF0 for row in rows_of(batch)):
            raise UnavailableError("a region is away")
        super().apply(batch)

    def cells(self, row: bytes) -> list[Cell]:
        if row[0] >= 0xF0:
            if self.failed is not None:
                self.failed()
            raise UnavailableError("a region is away")
        return super().cells(row)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        if row[0] >= 0xF0:
            raise UnavailableError("a region is away")
        return super().read(row, after, limit, deadline_s)


class Scanned(MemoryStore):
    """Counts the rows that a scan has returned."""

    rows = 0

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        for row in super().scan(start, stop):
            self.rows += 1
            yield row


def test_rows_are_read_for_as_long_as_was_asked_for() -> None:
    feeds = Scanned(feed_table(10, 2, 10**6))
    feeds.apply([Put([(bytes([number // 256, number % 256]) + bytes(7), 1)], [bytes(16)]) for number in range(1_000)])
    bench = Bench(Replica("b", {FEEDS: feeds, PROGRESS: MemoryStore(progress_table(10**6))}))
    bench.done({0: 4})
    assert bench.state() is None
    assert 5 <= feeds.rows <= 10, "each look at the time takes a second"


def test_rule_12_a_region_that_is_away_keeps_nobody_from_noting_what_is_done_elsewhere() -> None:
    feeds = OneRegionAway(feed_table(10, 2, 10**6))
    bench = Bench(Replica("b", {FEEDS: feeds, PROGRESS: MemoryStore(progress_table(10**6))}))

    applied = bench.done({0: 4})
    applied.note({0: (4, 6)})

    assert bench.progress.applied() == {(1, 0): 6}
    assert trusted_watermark(bench.replica) == 5
    bench.applied().begin()


def test_rule_12_a_region_that_fails_slowly_takes_an_eighth_of_a_writers_time() -> None:
    feeds = OneRegionAway(feed_table(10, 2, 10**6))
    bench = Bench(Replica("b", {FEEDS: feeds, PROGRESS: MemoryStore(progress_table(10**6))}))
    bench.commit({})
    applied = Applied(bench.replica, bench.queue, DELIVERIES, GROUP, lambda: bench.now_s)
    applied.begin()
    looks: list[float] = []

    def failed() -> None:
        looks.append(bench.now_s)
        bench.now_s += 10

    feeds.failed = failed
    for end in range(1, 28):
        applied.note({0: (end - 1, end)})
        bench.now_s += 5
    assert looks == [0.0, 80.0]


def test_a_region_that_is_away_is_named_with_what_is_to_be_done() -> None:
    """Its cluster says nothing wrong: a table whose files HBase cannot open any more would look well for ever."""
    feeds = OneRegionAway(feed_table(10, 2, 10**6))
    bench = Bench(Replica("b", {FEEDS: feeds, PROGRESS: MemoryStore(progress_table(10**6))}))
    bench.done({0: 4})

    with pytest.raises(UnavailableError, match=r"rows f0\.\.: a region is away"):
        bench.state()
