"""Random operations: every queue does what the model in memory does."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kafka_bench import kafka_bench
from queue_benches import Bench, embedded_bench, memory_bench

from tests.effort import part
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue import embedded, port
from workers.queue.port import MAX_MESSAGE_BYTES, Consumer, QueueError, Tail, Topic, go_back, lag_of, lost_of, reset

GROUPS = st.sampled_from(["a", "b"])
TOPICS = st.sampled_from([ACTIONS, DELIVERIES, RETRIES])
# Small batches and polls: seeks, cuts and expiry meet their edges within a few messages.
BATCH_BYTES = 40
POLL_BYTES = 55


class Agreement(RuleBasedStateMachine):
    """Two queues and the same calls; positions are committed as workers do, or anywhere at all."""

    other_bench = staticmethod(embedded_bench)

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.directory = Path(self.scratch.name)
        self.benches: list[Bench] = []
        self.consumers: dict[tuple[Topic[object], str], list[Consumer]] = {}
        self.tails: dict[Topic[object], list[Tail]] = {}
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(embedded, "MAX_BATCH_BYTES", BATCH_BYTES)
        self.patched.setattr(port, "MAX_POLL_BYTES", POLL_BYTES)

    @initialize(partitions=st.sampled_from([1, 3]))
    def make(self, partitions: int) -> None:
        self.benches = [memory_bench(partitions, self.directory), self.other_bench(partitions, self.directory)]
        self.partitions = partitions

    def both(self, call: Callable[[Bench, int], object]) -> object:
        """The same result, or the same error, from both."""
        results = []
        for number, bench in enumerate(self.benches):
            try:
                results.append(call(bench, number))
            except (QueueError, ValueError) as error:
                results.append(type(error))
        assert results[0] == results[1]
        return results[0]

    def drain(self, readers: Sequence[Consumer | Tail], limit: int) -> object:
        """How much one poll returns is the adapter's own affair: the content of each partition is not."""

        def all_of(_: Bench, number: int) -> dict[int, list[tuple[int, bytes]]]:
            seen: dict[int, list[tuple[int, bytes]]] = {}
            while some := readers[number].poll(limit, 0):
                assert len(some) <= limit
                assert sum(len(message.value) for message in some) <= POLL_BYTES
                for message in some:
                    seen.setdefault(message.partition, []).append((message.offset, message.value))
            return seen

        return self.both(all_of)

    @rule(topic=TOPICS, sizes=st.lists(st.integers(0, 30), max_size=12), data=st.data())
    def publish(self, topic: Topic[object], sizes: list[int], data: st.DataObject) -> None:
        # Which partition a queue chooses by itself is its own affair, and may change with a restart.
        partition = data.draw(st.integers(0, self.partitions))
        self.both(lambda bench, _: bench.queue.publish(topic, [bytes(size) for size in sizes], partition))

    @rule(topic=TOPICS)
    def publish_oversized(self, topic: Topic[object]) -> None:
        self.both(lambda bench, _: bench.queue.publish(topic, [b"x", bytes(MAX_MESSAGE_BYTES + 1)]))

    @rule(topic=TOPICS, group=GROUPS)
    def join(self, topic: Topic[object], group: str) -> None:
        if not self.benches[1].one_member and (topic, group) in self.consumers:
            return
        consumers: list[Consumer] = []

        def consumer(bench: Bench, _: int) -> None:
            consumers.append(bench.consumer(group, topic))

        if self.both(consumer) is None:
            self.consumers[topic, group] = consumers

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.consumers)))
        for consumer in self.consumers.pop(key):
            consumer.close()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), polls=st.integers(1, 4), commit=st.booleans())
    def work(self, *, data: st.DataObject, polls: int, commit: bool) -> None:
        key = data.draw(st.sampled_from(list(self.consumers)))
        seen = self.drain(self.consumers[key], polls)
        if commit and isinstance(seen, dict):
            positions = {partition: messages[-1][0] + 1 for partition, messages in seen.items()}
            self.both(lambda _, number: self.consumers[key][number].commit(positions))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), position=st.integers(-1, 30))
    def commit_anywhere(self, data: st.DataObject, position: int) -> None:
        key = data.draw(st.sampled_from(list(self.consumers)))
        positions = {data.draw(st.integers(0, self.partitions)): position, 0: position}
        self.both(lambda _, number: self.consumers[key][number].commit(positions))

    @rule(topic=TOPICS)
    def follow(self, topic: Topic[object]) -> None:
        """Begins a tail; the one before it on the topic ends."""
        for tail in self.tails.pop(topic, []):
            tail.close()
        self.tails[topic] = [bench.tail(topic) for bench in self.benches]

    @precondition(lambda self: self.tails)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def read_on(self, data: st.DataObject, limit: int) -> None:
        self.drain(self.tails[data.draw(st.sampled_from(list(self.tails)))], limit)

    @rule(topic=TOPICS, group=GROUPS)
    def lag(self, topic: Topic[object], group: str) -> None:
        self.both(lambda bench, _: lag_of(bench.queue, topic, group))

    @rule(topic=TOPICS, group=GROUPS)
    def lost(self, topic: Topic[object], group: str) -> None:
        self.both(lambda bench, _: lost_of(bench.queue, topic, group))

    @rule(topic=TOPICS, group=GROUPS)
    def reset(self, topic: Topic[object], group: str) -> None:
        self.both(lambda bench, _: reset(bench.queue, topic, group))

    @rule(topic=TOPICS, group=GROUPS, position=st.integers(0, 30), data=st.data())
    def go_back(self, topic: Topic[object], group: str, position: int, data: st.DataObject) -> None:
        positions = {data.draw(st.integers(0, self.partitions)): position, 0: position}
        self.both(lambda bench, _: go_back(bench.queue, topic, group, positions))
        self.both(lambda bench, _: bench.queue.positions(topic, group))
        self.both(lambda bench, _: bench.queue.earliest(topic))
        self.both(lambda bench, _: bench.queue.ends(topic))

    @rule(step=st.integers(-2, 5))
    def pass_time(self, step: int) -> None:
        for bench in self.benches:
            bench.clock.now_ms += step

    @rule(age=st.integers(-1, 6))
    def expire(self, age: int) -> None:
        if self.benches[1].reads_ahead and (self.consumers or self.tails):
            return
        self.both(lambda bench, _: bench.queue.expire(age, {}))

    @rule()
    def restart(self) -> None:
        self.consumers.clear()
        self.tails.clear()
        for bench in self.benches:
            bench.restart()

    def teardown(self) -> None:
        for bench in self.benches:
            bench.close()
        self.patched.undo()
        self.scratch.cleanup()


Agreement.TestCase.settings = settings(max_examples=part(60), stateful_step_count=30, deadline=None)
TestAgreement = Agreement.TestCase


class KafkaAgreement(Agreement):
    """The same against a broker, where what a live consumer holds already survives its expiry."""

    other_bench = staticmethod(kafka_bench)


KafkaAgreement.TestCase.settings = settings(
    max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKafkaAgreement = pytest.mark.stack(pytest.mark.usefixtures("broker")(KafkaAgreement.TestCase))
