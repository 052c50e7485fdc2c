"""A batch that arrives damaged: it is named and fetched again, and all others are read meanwhile."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from kafka.record.default_records import DefaultRecordBatch
from kafka_bench import wait_until

from tests.stack.own_brokers import Brokers
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import (
    KafkaAddress,
    KafkaConsumer,
    KafkaDeadLetters,
    KafkaQueue,
    KafkaTail,
    parse,
    reading,
    topics,
)
from workers.queue.port import Message, QueueUnavailableError

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("damaged_batches")]

BAD = b"bad" * 20


class Damage:
    """Batches that hold BAD arrive damaged, the next `left` times."""

    left = 0


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> Damage:
    damage = Damage()

    def is_right(batch: DefaultRecordBatch) -> bool:
        if not damage.left or BAD not in bytes(batch._buffer):
            return True
        damage.left -= 1
        return False

    monkeypatch.setattr(DefaultRecordBatch, "validate_crc", is_right)
    return damage


@pytest.fixture
def address(own_broker: Brokers) -> KafkaAddress:
    """That of two partitions."""
    address = replace(parse(f"kafka://{own_broker.servers}", Path(), {}), prefix=f"test-{uuid4().hex[:12]}.")
    wanted = topics.definitions(address, TOPICS, partitions=2, replication=1, action_age_ms=86_400_000)
    assert topics.apply(address, wanted) == []
    return address


@pytest.fixture
def opened(address: KafkaAddress) -> Iterator[KafkaQueue]:
    with closing(KafkaQueue.open(address, TOPICS)) as queue:
        yield queue


@pytest.fixture(params=["member", "tail"])
def reader(request: pytest.FixtureRequest, opened: KafkaQueue) -> Iterator[KafkaConsumer | KafkaTail]:
    made = opened.consumer(DELIVERIES, "a") if request.param == "member" else opened.tail(DELIVERIES)
    with closing(made):
        yield made


class Polls:
    """What a reader returned and said."""

    def __init__(self, reader: KafkaConsumer | KafkaTail, limit: int = 100) -> None:
        self._reader = reader
        self._limit = limit
        self.read: list[Message] = []
        self.said: list[str] = []

    def poll(self) -> None:
        try:
            self.read += self._reader.poll(self._limit, 0.1)
        except QueueUnavailableError as error:
            self.said.append(str(error))


@pytest.mark.parametrize("limit", [100, 1], ids=["all-at-once", "one-at-a-time"])
def test_a_batch_that_arrives_damaged_once_is_read_by_a_later_poll(
    opened: KafkaQueue, reader: KafkaConsumer | KafkaTail, damage: Damage, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client kept it, and its next poll never returned."""
    monkeypatch.setattr(reading, "DAMAGED_REST_S", 0.0)
    for values in ([b"good"] * 2, [BAD] * 3):
        opened.publish(DELIVERIES, values, 0)
    damage.left = 1
    polls = Polls(reader, limit)
    wait_until(lambda: len(polls.read) == 5, polls.poll)
    assert [message.value for message in polls.read] == [b"good"] * 2 + [BAD] * 3
    assert damage.left == 0


def test_rule_12_a_partition_that_is_damaged_for_good_is_named_and_does_not_keep_the_others_from_being_read(
    opened: KafkaQueue, reader: KafkaConsumer | KafkaTail, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "DAMAGED_REST_S", 3_600.0)
    damage.left = 1_000
    opened.publish_each(DELIVERIES, {0: [BAD]})
    polls = Polls(reader)
    wait_until(lambda: bool(polls.said), polls.poll)
    for number in range(3):
        opened.publish(DELIVERIES, [b"%d" % number], 1)
        wait_until(lambda: len(polls.read) > number, polls.poll)  # noqa: B023
    assert [message.value for message in polls.read] == [b"0", b"1", b"2"]
    (said,) = polls.said
    assert "feed.deliveries/0 at offset 0 cannot be read" in said

    monkeypatch.setattr(reading, "DAMAGED_REST_S", 0.0)
    wait_until(lambda: len(polls.said) > 3, polls.poll)
    damage.left = 0
    wait_until(lambda: len(polls.read) > 3, polls.poll)
    assert polls.read[-1].value == BAD


def test_a_letter_that_arrives_damaged_once_is_read_by_a_later_call(address: KafkaAddress, damage: Damage) -> None:
    with closing(KafkaDeadLetters.open(address)) as letters:
        letters.bury(DELIVERIES, "a", "refused", "", 1, BAD)
        damage.left = 1
        with pytest.raises(QueueUnavailableError, match=r"feed\.dead/0 at offset 0 cannot be read"):
            letters.count()
        assert letters.count() == 1
