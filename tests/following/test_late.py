"""Deliveries that come too late, and what a writer asks for: once, only for its own cluster, and never in vain (rule
8).

The handlers, the queue and the follow store are the real ones; the clock moves only when it is moved.
"""

import itertools
from collections.abc import Sequence

import pytest

from feedstore.boards import Boards
from feedstore.clocks import APART_MAX_MS
from feedstore.domain import Follow, Pin, RefillAsked, SavePin, Unfollow, user
from feedstore.following import FEEDS, Limits, entries_of, feed_table, row_key
from feedstore.follows import store as follow_store
from feedstore.follows.port import Request, actions_in
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Cell, Mutation, UnavailableError
from feedstore.widecolumn.progress import PROGRESS, Progress, progress_table
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Parking, Writer, lost_actions
from workers.following.messages import (
    Delivery,
    Hold,
    Task,
    decode_actions,
    decode_parked,
    encode_action,
    wrap_actions,
)
from workers.following.packs import Pack
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES, TOPICS
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.ticks import Tick
from workers.queue.port import PartitionsAwayError, QueueUnavailableError, Topic, lag_of, lags_of, lost_of

START_MS = 1_000_000_000
AUTHOR, BOARD = 5_000, 6_000
FOLLOWERS = 200
LIMITS = Limits(100, 10, action_age_ms=100_000_000, delivery_age_ms=10_000_000, purge_window_ms=200_000_000, chunk=1)


class KilledError(BaseException):
    """The process is gone, in the middle of a call."""


class Notes(MemoryStore):
    """A progress table that may be away. killed_at: kills at this write, before or after its effect."""

    away = False
    killed_at: tuple[int, str] | None = None

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._refuse()
        number, moment = self.killed_at or (-1, "")
        if number == 0 and moment == "before":
            raise KilledError
        super().apply(batch)
        if number == 0:
            raise KilledError
        self.killed_at = (number - 1, moment)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        self._refuse()
        return super().read(row, after, limit, deadline_s)

    def cells(self, row: bytes) -> list[Cell]:
        self._refuse()
        return super().cells(row)

    def _refuse(self) -> None:
        if self.away:
            raise UnavailableError("the region of the progress table is away")


class Pipeline:
    """A relay, an expander, and two clusters; each moves when it is told to."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.follows = open_in_memory(lambda: self.now_ms)
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: self.now_ms)
        self.relay = Relay(
            self.follows, 0, self.queue, ACTIONS, MemoryDeadLetters(), lambda: 0.0, lambda: 1, wrap_actions
        )
        self.ticker = Ticker(self.follows.settled_ms, self.queue, ACTIONS, lambda: 0.0, encode_action)
        self.expander = Expander(self.follows, self.queue, LIMITS, Respacing(Boards(self.follows), lambda: 0.0).respace)
        self.feeds = {name: MemoryStore(feed_table(100, 10, LIMITS.purge_window_ms)) for name in "ab"}
        self.notes = {name: Notes(progress_table(LIMITS.purge_window_ms)) for name in "ab"}
        self.progress = {name: Progress(notes) for name, notes in self.notes.items()}
        self.writers = {
            name: Writer(name, self.feeds[name], self.progress[name], self.follows, self.queue, LIMITS) for name in "ab"
        }
        self.parking = {
            name: Parking(name, writer, self.progress[name], self.follows, self.queue, f"retries-{name}")
            for name, writer in self.writers.items()
        }
        self.tasks = self.queue.consumer(ACTIONS, "expander")
        self.deliveries = {name: self.queue.consumer(DELIVERIES, f"writer-{name}") for name in "ab"}
        self.parked = {name: self.queue.consumer(RETRIES, f"retries-{name}") for name in "ab"}
        self.expanded: list[Task] = []
        self.written: dict[str, list[Delivery | Hold | Pack]] = {"a": [], "b": []}

    def record(self, *actions: Follow | Unfollow | SavePin) -> None:
        for answer in self.follows.record([Request(action) for action in actions]):
            assert not isinstance(answer, Exception)

    def expand(self) -> bool:
        """Relays and expands everything that waits."""
        self.relay.step()
        messages = self.tasks.poll(1_000, 0)
        self.tasks.commit({each.partition: each.offset + 1 for each in messages})
        bodies = [body for each in messages for body in decode_actions(each.value)]
        tasks = [body for body in bodies if isinstance(body, Task)]
        self.expanded += tasks
        self.expander.begin(tasks[::2])
        self.expander.expand(tasks)
        self.expander.tick([body for body in bodies if isinstance(body, Tick)])
        return bool(messages)

    def poll(self, cluster: str, limit: int) -> list[tuple[int, Delivery | Hold | Pack | Tick]]:
        messages = self.deliveries[cluster].poll(limit, 0)
        self.deliveries[cluster].commit({each.partition: each.offset + 1 for each in messages})
        return [(each.partition, body) for each in messages for body in DELIVERIES.bodies(each.value)]

    def write(self, cluster: str, limit: int = 1_000) -> bool:
        """One poll of one cluster's writer."""
        polled = self.poll(cluster, limit)
        bodies = [body for _, body in polled if not isinstance(body, Tick)]
        self.written[cluster] += bodies
        self.writers[cluster].write(bodies)
        ticks = [(partition, body) for partition, body in polled if isinstance(body, Tick)]
        if ticks:
            self.writers[cluster].tick(ticks)
        return bool(polled)

    def land(self, cluster: str, limit: int) -> bool:
        """One poll of what lands a cluster's retries."""
        messages = self.parked[cluster].poll(limit, 0)
        self.parked[cluster].commit({each.partition: each.offset + 1 for each in messages})
        self.parking[cluster].land([decode_parked(each.value) for each in messages])
        return bool(messages)

    def drain(self, *clusters: str) -> None:
        while any([self.expand(), *(self.write(name) for name in clusters)]):
            pass

    def tick(self) -> None:
        self.ticker.tick()

    def holding(self, cluster: str, pin: int) -> int:
        """How many feeds of a cluster hold a pin."""
        rows = self.feeds[cluster].scan()
        return sum(pin in {entry.pin for entry in entries_of(columns)} for _, columns in rows)

    def feed(self, cluster: str, follower: int) -> list[int]:
        return [entry.pin for entry in entries_of(self.feeds[cluster].read(row_key(follower), None, 100))]


def followed_by(followers: int) -> Pipeline:
    """So many users follow AUTHOR; that has landed in both clusters."""
    made = Pipeline()
    made.record(*(Follow(number, user(AUTHOR)) for number in range(1, followers + 1)))
    made.drain("a", "b")
    made.expanded.clear()
    return made


@pytest.fixture
def pipeline() -> Pipeline:
    return followed_by(FOLLOWERS)


def save(pipeline: Pipeline, pin: int) -> None:
    pipeline.record(SavePin(Pin(pin, AUTHOR, BOARD, pipeline.now_ms)))


@pytest.mark.parametrize("batch", [1, 10, 1_000])
def test_rule_8_however_many_deliveries_of_an_action_are_late_it_is_expanded_once_more_for_that_cluster(
    pipeline: Pipeline, batch: int
) -> None:
    save(pipeline, 1)
    pipeline.drain("a")
    assert len(pipeline.expanded) == 1
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    pipeline.written["a"].clear()

    turns = 0
    while pipeline.write("b", batch) or pipeline.expand():
        turns += 1
        pipeline.expand()
        pipeline.write("a")
    pipeline.drain("a", "b")

    assert turns >= FOLLOWERS // batch
    assert len(pipeline.expanded) == 2, "the action is sent back once"
    assert [each.cluster for each in pipeline.written["a"] if isinstance(each, Pack)] == ["b"] * FOLLOWERS
    assert len(pipeline.written["b"]) == 2 * FOLLOWERS
    assert pipeline.holding("a", 1) == pipeline.holding("b", 1) == FOLLOWERS


def test_rule_8_each_cluster_that_is_late_asks_for_itself(pipeline: Pipeline) -> None:
    save(pipeline, 1)
    pipeline.expand()
    pipeline.now_ms += LIMITS.delivery_age_ms + 1

    for cluster in "ab":
        while pipeline.write(cluster, 10):
            pass
    pipeline.drain("a", "b")

    assert [each.cluster for each in pipeline.expanded[:1]] == [None]
    assert sorted(str(each.cluster) for each in pipeline.expanded[1:]) == ["a", "b"]
    assert pipeline.holding("a", 1) == pipeline.holding("b", 1) == FOLLOWERS


def test_rule_8_what_is_late_again_is_expanded_again(pipeline: Pipeline) -> None:
    save(pipeline, 1)
    pipeline.expand()
    for _ in range(3):
        pipeline.now_ms += LIMITS.delivery_age_ms + 1
        while pipeline.write("b", 10):
            pass
        pipeline.expand()
    assert pipeline.holding("b", 1) == 0

    pipeline.drain("a", "b")
    assert len([task for task in pipeline.expanded if task.cluster == "b"]) == 3
    assert pipeline.holding("b", 1) == FOLLOWERS


def test_rule_8_what_is_late_in_the_retries_is_expanded_once_as_well(pipeline: Pipeline) -> None:
    save(pipeline, 1)
    pipeline.expand()
    pipeline.drain("a")
    bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
    assert all(pipeline.parking["b"].park(bodies, 0.0))
    pipeline.now_ms += LIMITS.delivery_age_ms + 1

    while pipeline.land("b", 10):
        pipeline.expand()
    pipeline.drain("a", "b")

    assert [task.cluster for task in pipeline.expanded] == [None, "b"]
    assert pipeline.holding("b", 1) == FOLLOWERS


def test_rule_8_a_late_purge_in_many_parts_is_expanded_once_for_its_cluster_and_refilled_once(
    pipeline: Pipeline,
) -> None:
    for pin in range(1, 21):
        save(pipeline, pin)
    pipeline.drain("a", "b")
    pipeline.record(Unfollow(7, user(AUTHOR)))
    pipeline.drain("a")
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    pipeline.expanded.clear()

    while pipeline.write("b", 2):
        pipeline.expand()
    pipeline.drain("a", "b")

    assert [(type(task.action).__name__, task.cluster) for task in pipeline.expanded] == [
        ("Unfollowed", "b"),
        ("RefillAsked", None),
    ]
    assert pipeline.feed("a", 7) == pipeline.feed("b", 7) == []


def test_rule_8_an_action_past_its_own_age_is_dated_again_once_and_holds_only_the_cluster_that_asked(
    pipeline: Pipeline,
) -> None:
    save(pipeline, 1)
    pipeline.drain("a")
    pipeline.now_ms += LIMITS.action_age_ms + 1
    pipeline.tick()
    pipeline.expand()
    pipeline.write("a")
    mark = pipeline.progress["a"].watermark()
    assert mark == pipeline.now_ms

    while pipeline.write("b", 10):
        pipeline.expand()
    while pipeline.write("a"):
        pass
    assert pipeline.progress["a"].watermark() == mark
    assert pipeline.progress["b"].watermark() == START_MS
    pipeline.drain("a", "b")
    pipeline.now_ms += 1
    pipeline.tick()
    pipeline.drain("a", "b")

    assert [task.cluster for task in pipeline.expanded] == [None, "b", None]
    assert pipeline.progress["b"].watermark() == pipeline.now_ms
    assert pipeline.holding("b", 1) == FOLLOWERS


def test_rule_10_actions_that_are_dated_again_together_have_one_hold_which_waits_for_the_last(
    pipeline: Pipeline,
) -> None:
    first_ms = pipeline.now_ms
    for pin in range(1, 4):
        save(pipeline, pin)
        pipeline.now_ms += 10
    pipeline.now_ms += LIMITS.action_age_ms
    pipeline.expand()
    pipeline.tick()
    pipeline.drain("a")

    holds = [message for message in pipeline.written["a"] if isinstance(message, Hold)]
    assert [hold.since_ms for hold in holds] == [first_ms]
    assert [pipeline.holding("a", pin) for pin in range(1, 4)] == [FOLLOWERS] * 3
    pipeline.now_ms += 1
    pipeline.tick()
    pipeline.drain("a")
    assert pipeline.progress["a"].watermark() == pipeline.now_ms


def test_rule_10_the_watermark_waits_for_what_was_expanded_once_for_many(pipeline: Pipeline) -> None:
    pipeline.now_ms += 1
    save(pipeline, 1)
    committed_ms = pipeline.now_ms
    pipeline.drain("a")
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    pipeline.tick()
    pipeline.expand()

    while pipeline.write("b", 10):
        mark = pipeline.progress["b"].watermark()
        assert mark is None or mark <= committed_ms
    pipeline.expand()
    pipeline.now_ms += 1
    pipeline.tick()
    pipeline.expand()
    while pipeline.holding("b", 1) < FOLLOWERS:
        mark = pipeline.progress["b"].watermark()
        assert mark is None or mark <= committed_ms
        assert pipeline.write("b", 10)
    pipeline.drain("b")
    assert pipeline.progress["b"].watermark() == pipeline.now_ms


def test_rule_8_what_was_read_before_a_cluster_was_made_anew_is_sent_back_once_whatever_the_clock_says(
    pipeline: Pipeline,
) -> None:
    save(pipeline, 1)
    pipeline.drain("a")
    made_ms = pipeline.now_ms + 10_000
    pipeline.progress["b"] = Progress(pipeline.notes["b"])
    pipeline.progress["b"].made(made_ms)
    writer = Writer("b", pipeline.feeds["b"], pipeline.progress["b"], pipeline.follows, pipeline.queue, LIMITS)
    pipeline.writers["b"] = writer

    while pipeline.write("b", 10):
        pass
    assert pipeline.holding("b", 1) == 0
    pipeline.drain("a", "b")

    assert pipeline.now_ms < made_ms
    assert [task.cluster for task in pipeline.expanded] == [None, "b"]
    assert pipeline.holding("b", 1) == FOLLOWERS


def test_rule_9_a_refill_that_was_sent_back_does_not_pass_for_served(pipeline: Pipeline) -> None:
    """It served all that was asked for before it was read; what came of it was read before the cluster was made."""
    save(pipeline, 1)
    pipeline.drain("a", "b")
    for _ in range(2):
        pipeline.now_ms += 1
        pipeline.follows.ask_refill([7], "b", 0)
    first, second = actions_in(pipeline.follows.unrelayed(10))
    assert isinstance(first, RefillAsked)
    pipeline.expander.expand([Task(first)])
    pipeline.write("b")
    assert pipeline.follows.refill_times([(7, "b")])[7, "b"].served_before_ms == second.committed_ms

    pipeline.expander.expand([Task(first, "b")])
    assert [body.cluster for _, body in pipeline.poll("b", 10) if isinstance(body, Pack)] == ["b"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_rule_10_a_writer_may_die_at_any_step_of_sending_back(moment: str) -> None:
    for killed_at in itertools.count():
        pipeline = followed_by(3)
        pipeline.now_ms += 1
        save(pipeline, 1)
        committed_ms = pipeline.now_ms
        pipeline.expand()
        pipeline.now_ms += LIMITS.delivery_age_ms + 1
        bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
        pipeline.notes["b"].killed_at = (killed_at, moment)
        try:
            pipeline.writers["b"].write(bodies)
        except KilledError:
            pipeline.notes["b"].killed_at = None
        else:
            assert killed_at == 3, "what cannot be written is found out, then comes the hold, then the note"
            return
        pipeline.writers["b"].write(bodies)
        # A tick from before the task of what was sent back.
        ticks = [(partition, Tick(pipeline.now_ms, source, 2)) for partition in range(2) for source in range(2)]
        pipeline.writers["b"].tick(ticks)
        assert pipeline.progress["b"].watermark() == committed_ms
        pipeline.drain("a", "b")
        pipeline.now_ms += 1
        pipeline.tick()
        pipeline.drain("a", "b")
        assert pipeline.holding("b", 1) == 3
        assert pipeline.progress["b"].watermark() == pipeline.now_ms


def test_rule_8_nothing_is_expanded_for_a_cluster_that_cannot_note_it(pipeline: Pipeline) -> None:
    save(pipeline, 1)
    pipeline.drain("a")
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
    pipeline.notes["b"].away = True
    for _ in range(20):
        with pytest.raises(UnavailableError):
            pipeline.writers["b"].write(bodies)
    assert lag_of(pipeline.queue, ACTIONS, "expander") == 0

    pipeline.notes["b"].away = False
    for _ in range(20):
        pipeline.writers["b"].write(bodies)
    assert lag_of(pipeline.queue, ACTIONS, "expander") == 1


def test_rule_9_no_refill_is_asked_for_before_its_hold_can_be_written(pipeline: Pipeline) -> None:
    save(pipeline, 1)
    pipeline.drain("a", "b")
    pipeline.record(*(Unfollow(number, user(AUTHOR)) for number in range(1, 101)))
    pipeline.expand()
    bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
    assert len(bodies) == 100
    pipeline.notes["b"].away = True
    for _ in range(20):
        with pytest.raises(UnavailableError):
            pipeline.writers["b"].write(bodies)
    assert pipeline.follows.backlog().actions == 0

    pipeline.notes["b"].away = False
    pipeline.writers["b"].write(bodies)
    assert pipeline.follows.backlog().actions == 100
    assert {action.cluster for action in actions_in(pipeline.follows.unrelayed(1_000))} == {"b"}  # type: ignore[union-attr]


# From before the follow store was brought back
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def brought_back(pipeline: Pipeline) -> Pipeline:
    """A pin was saved, expanded and ticked while the clock of the follow store was far ahead, and waits for writers."""
    right_ms = pipeline.now_ms
    pipeline.now_ms += 100 * LIMITS.purge_window_ms
    save(pipeline, 1)
    pipeline.tick()
    while pipeline.expand():
        pass
    pipeline.now_ms = right_ms + 1_000
    pipeline.follows.bring_back(pipeline.now_ms)
    pipeline.expanded.clear()
    return pipeline


def test_rule_8_what_was_read_later_than_now_is_expanded_again(brought_back: Pipeline) -> None:
    while brought_back.write("a", 10):
        pass
    assert brought_back.holding("a", 1) == 0, "its age is not known"
    brought_back.drain("a", "b")
    assert brought_back.holding("a", 1) == brought_back.holding("b", 1) == FOLLOWERS
    assert {task.cluster for task in brought_back.expanded} == {"a", "b"}


def test_rule_10_a_tick_of_a_later_time_than_now_says_nothing(brought_back: Pipeline) -> None:
    brought_back.drain("a", "b")
    assert brought_back.progress["a"].watermark() is None
    brought_back.now_ms += 1_000
    brought_back.tick()
    brought_back.drain("a", "b")
    assert brought_back.progress["a"].watermark() == brought_back.now_ms


def test_rule_10_a_replaced_action_of_a_user_whose_clock_was_ahead_holds_a_watermark_for_minutes_at_most(
    pipeline: Pipeline,
) -> None:
    """An edge keeps its time (rule 2), which may be years ahead."""
    right_ms = pipeline.now_ms
    pipeline.now_ms += 100 * LIMITS.purge_window_ms
    pipeline.record(Follow(1, user(7)))
    pipeline.drain("a", "b")
    pipeline.now_ms = right_ms + 1_000
    pipeline.follows.bring_back(pipeline.now_ms)
    pipeline.record(Follow(1, user(8)), Unfollow(1, user(8)))
    pipeline.now_ms += LIMITS.action_age_ms + 1
    pipeline.drain("a", "b")
    assert any(isinstance(each, Hold) for each in pipeline.written["a"])

    pipeline.now_ms += 2 * APART_MAX_MS
    pipeline.tick()
    pipeline.drain("a", "b")

    assert pipeline.progress["a"].watermark() == pipeline.now_ms


def test_rule_12_deliveries_are_parked_though_no_broker_leads_a_partition_of_the_retries(pipeline: Pipeline) -> None:
    """Otherwise a region that is away at the same time would fill the writer's room, and it would stop."""
    save(pipeline, 1)
    pipeline.expand()
    bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
    ends = pipeline.queue.ends

    def leaderless(topic: Topic[object]) -> dict[int, int]:
        if topic is RETRIES:
            raise PartitionsAwayError("no broker leads feed.retries/1", {0: ends(topic)[0]})
        return ends(topic)

    pipeline.queue.ends = leaderless  # type: ignore[method-assign]
    for _ in range(3):
        pipeline.now_ms += 1
        assert all(pipeline.parking["b"].park(bodies, 0.0))
    assert {message.partition for message in pipeline.parked["b"].poll(10_000, 0)} == {0}
    assert pipeline.progress["b"].state().parked


@pytest.mark.parametrize("led", [0, 1], ids=["before", "once the copies are there"])
def test_rule_12_if_no_broker_leads_a_partition_of_the_retries_deliveries_wait(pipeline: Pipeline, led: int) -> None:
    """led: how many looks still find one."""
    save(pipeline, 1)
    pipeline.expand()
    bodies = [body for _, body in pipeline.poll("b", 1_000) if not isinstance(body, Tick)]
    found = iter([*[{0: 0}] * led, {}])

    def leaderless(topic: Topic[object]) -> dict[int, int]:
        raise PartitionsAwayError("no broker leads feed.retries", next(found))

    pipeline.queue.ends = leaderless  # type: ignore[method-assign]
    with pytest.raises(QueueUnavailableError, match=r"no broker leads"):
        pipeline.parking["b"].park(bodies, 0.0)
    assert not pipeline.progress["b"].state().parked


# Sent back, and lost
# --------------------------------------------------------------------------------------------------------------------


def actions_lost(pipeline: Pipeline) -> Ports:
    """What is in the topic of actions is gone."""
    for log in pipeline.queue._state.logs[ACTIONS]:
        log.earliest = log.end + 1
        log.values.clear()
        log.published_ms.clear()
    return Ports(
        pipeline.follows,
        pipeline.queue,
        MemoryDeadLetters(),
        {name: Replica(name, {FEEDS: pipeline.feeds[name], PROGRESS: pipeline.notes[name]}) for name in "ab"},
        lambda: pipeline.now_ms,
    )


@pytest.mark.parametrize("answers", [True, False], ids=["it says so", "it is away"])
def test_rule_10_what_one_cluster_has_sent_back_comes_again_if_the_topic_is_lost(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """It was expanded long ago, for the other cluster: nothing but the hold in its own notes says what it waits for."""
    monkeypatch.setattr(follow_store, "_MARKED_AT_ONCE", 10)
    pipeline.tick()
    pipeline.drain("a", "b")
    pipeline.now_ms += 1_000
    saved_ms = pipeline.now_ms
    save(pipeline, 1)
    pipeline.drain("b")
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    for follower in range(1_000, 1_050):
        pipeline.record(Follow(follower, user(777)))
    pipeline.drain("b")
    pipeline.now_ms += 10 * APART_MAX_MS
    pipeline.record(Follow(5, user(778)))
    pipeline.tick()
    pipeline.drain("b")
    while pipeline.write("a", 10):
        pass
    pipeline.relay.step()
    pipeline.tasks.close()
    ports = actions_lost(pipeline)
    assert lost_actions.are_lost(ports)
    pipeline.notes["a"].away = not answers
    back = lost_actions.bring_back(ports, LIMITS.purge_window_ms, everything=False)
    assert back.lacking == ()
    pipeline.notes["a"].away = False
    pipeline.tasks = pipeline.queue.consumer(ACTIONS, "expander")

    for _ in range(3):
        pipeline.now_ms += 1_000
        pipeline.tick()
        while pipeline.write("a"):
            assert pipeline.holding("a", 1) == FOLLOWERS or (pipeline.progress["a"].watermark() or 0) <= saved_ms
        pipeline.drain("a", "b")
    assert pipeline.holding("a", 1) == pipeline.holding("b", 1) == FOLLOWERS
    assert pipeline.progress["a"].watermark() == pipeline.now_ms


def test_actions_are_lost_if_the_group_has_no_position_in_one_partition_whose_first_messages_are_gone(
    pipeline: Pipeline,
) -> None:
    """It would begin behind what it has never read."""
    save(pipeline, 1)
    pipeline.relay.step()
    (at,) = (number for number, lag in lags_of(pipeline.queue, ACTIONS, "expander").items() if lag)
    pipeline.tasks.close()
    log = pipeline.queue._state.logs[ACTIONS][at]
    log.earliest = log.end
    log.values.clear()
    log.published_ms.clear()
    positions = pipeline.queue.positions(ACTIONS, "expander")
    del positions[at]
    pipeline.queue.positions = lambda topic, group: positions  # type: ignore[method-assign]
    assert lost_of(pipeline.queue, ACTIONS, "expander") == log.end


def test_a_reindex_names_the_cluster_that_lacks_what_the_outbox_does_not_keep_any_more(pipeline: Pipeline) -> None:
    pipeline.tick()
    pipeline.drain("a", "b")
    save(pipeline, 1)
    pipeline.drain("b")
    pipeline.now_ms += LIMITS.delivery_age_ms + 1
    pipeline.tick()
    pipeline.drain("b")
    while pipeline.write("a", 10):
        pass
    pipeline.tasks.close()
    ports = actions_lost(pipeline)
    pipeline.now_ms += LIMITS.purge_window_ms
    while pipeline.follows.expire(LIMITS.purge_window_ms, 1_000):
        pass

    assert lost_actions.bring_back(ports, LIMITS.purge_window_ms, everything=False).lacking == ("a",)
