"""The whole pipeline as a Hypothesis state machine: anything may happen next, and at any moment the rest may be
delivered, after which every feed is what the model says (rules 1 to 9).

On tables in memory and SQLite, and with a smaller budget on real RocksDB directories that are closed and opened again.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from feedstore.boards import Boards
from feedstore.domain import Action, DeletePin, Entry, Follow, Followed, Pin, PinDeleted, SavePin, Unfollow, board, user
from feedstore.following import Limits, feed_table
from feedstore.follows.port import ActionRefusedError, Request
from feedstore.widecolumn import WideColumnStore
from feedstore.widecolumn.progress import Progress, progress_table
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from tests.effort import part
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.simulation.model import Model
from tests.simulation.reading import page
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import Task, encode_action, wrap_actions
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.ticks import Tick
from workers.queue.port import Consumer, Topic

CLUSTERS = ("a", "b")
CAP, SLACK = 2, 1
LIMITS = Limits(CAP, SLACK, action_age_ms=10_000, delivery_age_ms=5_000, purge_window_ms=21_000, chunk=2)
FEEDS = feed_table(CAP, SLACK, LIMITS.purge_window_ms)
PROGRESS = progress_table(LIMITS.purge_window_ms)
START_MS = 1_000_000_000
OWNERS = {21: 11, 22: 11, 23: 12}

users = st.sampled_from([1, 2])
followees = st.sampled_from([user(11), user(12), board(21), board(22), board(23)])
clusters = st.sampled_from(CLUSTERS)
how_many = st.integers(1, 4)


class PipelineMachine(RuleBasedStateMachine):
    """The real relay, expander and writers, moved one batch at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = self.drained_ms = START_MS
        self.model = Model(CAP)
        self.pins: list[int] = []
        self.losers: set[int] = set()
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: self.now_ms)
        self.stores: dict[str, tuple[WideColumnStore, WideColumnStore]] = {}

    # Where things are kept
    # ----------------------------------------------------------------------------------------------------------------

    def open_cluster(self, cluster: str) -> tuple[WideColumnStore, WideColumnStore]:
        return MemoryStore(FEEDS), MemoryStore(PROGRESS)

    def make_handlers(self) -> None:
        self.relays = [
            Relay(self.follows, shard, self.queue, ACTIONS, MemoryDeadLetters(), lambda: 0.0, lambda: 1, wrap_actions)
            for shard in range(self.follows.shards())
        ]
        self.ticker = Ticker(self.follows.settled_ms, self.queue, ACTIONS, lambda: 0.0, encode_action)
        self.expander = Expander(self.follows, self.queue, LIMITS, Respacing(Boards(self.follows), lambda: 0.0).respace)
        self.writers = {
            cluster: Writer(cluster, feeds, Progress(progress), self.follows, self.queue, LIMITS)
            for cluster, (feeds, progress) in self.stores.items()
        }

    @initialize(shards=st.sampled_from([1, 3]))
    def open(self, shards: int):
        self.follows = open_in_memory(lambda: self.now_ms, shards)
        self.stores = {cluster: self.open_cluster(cluster) for cluster in CLUSTERS}
        self.make_handlers()
        self.consumers: dict[str, Consumer] = {}
        for group in ("expander", *CLUSTERS):
            self.join(group)

    def join(self, group: str) -> None:
        if group in self.consumers:
            self.consumers[group].close()
        topic: Topic[object] = ACTIONS if group == "expander" else DELIVERIES
        self.consumers[group] = self.queue.consumer(topic, f"test-{group}")

    def teardown(self) -> None:
        if hasattr(self, "follows"):
            self.follows.close()

    # What people do
    # ----------------------------------------------------------------------------------------------------------------

    def record(self, action: Action) -> None:
        [answer] = self.follows.record([Request(action)])
        if isinstance(answer, ActionRefusedError):
            return
        self.model.record(answer)
        if isinstance(answer, PinDeleted):
            self.losers |= {1, 2}
        elif not isinstance(answer, Followed) and isinstance(action, SavePin):
            self.pins.append(action.pin.pin)

    @rule(follower=users, followee=followees)
    def follow(self, follower: int, followee):  # noqa: ANN001 - a strategy gives it
        self.record(Follow(follower, followee))

    @rule(follower=users, followee=followees)
    def unfollow(self, follower: int, followee):  # noqa: ANN001 - a strategy gives it
        self.record(Unfollow(follower, followee))

    @rule(number=st.integers(1, 40), on=st.sampled_from(list(OWNERS)), skew_ms=st.integers(-30_000, 30_000))
    def save(self, number: int, on: int, skew_ms: int):
        self.record(SavePin(Pin(number, OWNERS[on], on, self.now_ms + skew_ms)))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def delete(self, data: st.DataObject):
        self.record(DeletePin(data.draw(st.sampled_from(self.pins))))

    @rule(ms=st.sampled_from([1, 3_000, 6_000]))
    def time_passes(self, ms: int):
        if self.now_ms + ms - self.drained_ms > LIMITS.purge_window_ms - 1_000:
            self.drain()  # what lags for longer than the purge window is rebuilt
        self.now_ms += ms

    # What the machinery does
    # ----------------------------------------------------------------------------------------------------------------

    @rule()
    def relay_some(self):
        self.relay()

    @rule()
    def send_ticks(self):
        self.ticker.tick()

    @rule(limit=how_many, done=st.booleans())
    def expand(self, limit: int, *, done: bool):
        """Without `done` the worker dies after the effect and before the commit: all of it comes again."""
        self.take("expander", limit, done=done)

    @rule(cluster=clusters, limit=how_many, done=st.booleans())
    def write(self, cluster: str, limit: int, *, done: bool):
        self.take(cluster, limit, done=done)

    def relay(self) -> bool:
        return max(relay.step() for relay in self.relays)

    def take(self, group: str, limit: int, *, done: bool) -> bool:
        messages = self.consumers[group].poll(limit, 0)
        topic: Topic[Any] = ACTIONS if group == "expander" else DELIVERIES
        bodies = [(message.partition, body) for message in messages for body in topic.decode(message.value)]
        work = [body for _, body in bodies if not isinstance(body, Tick)]
        if group == "expander":
            if work:
                tasks = [task for task in work if isinstance(task, Task)]
                self.expander.begin(tasks[:: 1 + limit % 2])
                self.expander.expand(tasks)
        else:
            self.writers[group].write(work)  # type: ignore[arg-type]
        if not done:
            self.join(group)
            return bool(messages)
        for partition, body in bodies:
            if isinstance(body, Tick):
                if group == "expander":
                    self.expander.tick([body])
                else:
                    self.writers[group].tick([(partition, body)])
        self.consumers[group].commit({message.partition: message.offset + 1 for message in messages})
        return bool(messages)

    @rule(cluster=clusters)
    def sweep(self, cluster: str):
        for store in self.stores[cluster]:
            store.sweep(self.now_ms)

    @rule()
    def reopen(self):
        """Everybody starts again from what was committed."""
        for group in self.consumers:
            self.join(group)
        self.make_handlers()

    @rule()
    def forget(self):
        self.follows.expire(LIMITS.purge_window_ms, 100)

    # What must hold
    # ----------------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        busy = True
        while busy:
            busy = self.relay()
            busy |= self.take("expander", 50, done=True)
            for cluster in CLUSTERS:
                busy |= self.take(cluster, 50, done=True)
        self.drained_ms = self.now_ms

    def feed(self, cluster: str, follower: int) -> list[Entry]:
        return page(self.stores[cluster][0], follower, CAP, None, CAP).entries

    @rule()
    def rule_1_whatever_is_left_is_delivered_and_the_feeds_are_right(self):
        self.drain()
        # A feed that lost entries to deletions is right once its refill was asked for (rule 9): by a walk that ended
        # early, or, where older pins came since, by an operator.
        self.follows.ask_refill(sorted(self.losers), None, 0)
        self.losers.clear()
        self.drain()
        for follower in (1, 2):
            for cluster in CLUSTERS:
                assert self.feed(cluster, follower) == self.model.feed(follower), (cluster, follower)

    @invariant()
    def rule_10_the_watermark_never_passes_the_clock(self):
        for _, progress in self.stores.values():
            mark = Progress(progress).watermark()
            assert mark is None or mark <= self.now_ms


class RocksMachine(PipelineMachine):
    """On RocksDB directories; reopening closes and opens them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="pipeline-machine-"))
        self.clusters: dict[str, RocksCluster] = {}

    def open_cluster(self, cluster: str) -> tuple[WideColumnStore, WideColumnStore]:
        opened = self.clusters[cluster] = RocksCluster.open(self.root / cluster, [FEEDS, PROGRESS])
        return opened.table(FEEDS.name), opened.table(PROGRESS.name)

    @rule(cluster=clusters)
    def reopen_cluster(self, cluster: str):
        self.clusters[cluster].close()
        self.stores[cluster] = self.open_cluster(cluster)
        self.make_handlers()

    def teardown(self) -> None:
        for each in self.clusters.values():
            each.close()
        super().teardown()
        shutil.rmtree(self.root, ignore_errors=True)


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
TestPipelineInMemory = PipelineMachine.TestCase
TestPipelineInMemory.settings = settings(
    max_examples=part(300), stateful_step_count=50, deadline=None, suppress_health_check=_QUIET
)
TestPipelineOnRocksDB = RocksMachine.TestCase
TestPipelineOnRocksDB.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=_QUIET
)
