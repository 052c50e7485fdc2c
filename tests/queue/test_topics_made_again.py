"""A topic that is removed, and made again under its name, while it is read: what was not read is lost, and is said."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka_bench import wait_until
from queue_benches import after

from tests.stack.own_brokers import Brokers
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import (
    KafkaAddress,
    KafkaConsumer,
    KafkaDeadLetters,
    KafkaQueue,
    KafkaTail,
    parse,
    topics,
)
from workers.queue.kafka.dead_letters import DEAD
from workers.queue.kafka.queue import connect
from workers.queue.port import Message, PositionLostError, QueueError, QueueUnavailableError

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("topics_made_again")]


class Topics:
    """The topics at an address."""

    def __init__(self, address: KafkaAddress) -> None:
        self.address = address

    def make(self, partitions: int = 2) -> None:
        """Makes those that are missing."""
        wanted = topics.definitions(
            self.address, TOPICS, partitions=partitions, replication=1, action_age_ms=86_400_000
        )
        topics.apply(self.address, wanted)

    def remove(self, name: str = DELIVERIES.name) -> None:
        with closing(connect(self.address)) as admin:
            admin.delete_topics([self.address.named(name)])


@pytest.fixture
def made(own_broker: Brokers) -> Topics:
    """With two partitions each."""
    made = Topics(replace(parse(f"kafka://{own_broker.servers}", Path(), {}), prefix=f"test-{uuid4().hex[:12]}."))
    made.make()
    return made


@pytest.fixture
def opened(made: Topics) -> Iterator[KafkaQueue]:
    with closing(KafkaQueue.open(made.address, TOPICS)) as queue:
        yield queue


def published(opened: KafkaQueue, each: int) -> None:
    opened.publish_each(DELIVERIES, {partition: [b"x"] * each for partition in range(2)})


def read(member: KafkaConsumer, count: int) -> list[Message]:
    messages: list[Message] = []
    wait_until(lambda: len(messages) >= count, lambda: messages.extend(member.poll(100, 0.1)))
    return messages


def refused(reader: KafkaConsumer | KafkaTail) -> QueueError:
    """What a poll raises, once one raises."""
    raised: list[QueueError] = []

    def poll() -> None:
        try:
            reader.poll(100, 0.1)
        except QueueError as error:
            raised.append(error)

    wait_until(lambda: bool(raised), poll)
    return raised[0]


def test_a_member_says_that_its_topic_is_gone_and_then_that_it_was_made_again(made: Topics, opened: KafkaQueue) -> None:
    """It had read everything, and gets partitions of the new topic that have more than it had read."""
    published(opened, 3)
    before = opened.topic_id(DELIVERIES)
    with closing(opened.consumer(DELIVERIES, "a")) as member, closing(opened.tail(DELIVERIES)) as tail:
        done = after(read(member, 6))
        member.commit(done)
        made.remove()
        error = refused(member)
        assert isinstance(error, QueueUnavailableError)
        assert "feedctl topics apply" in str(error)
        with pytest.raises(QueueUnavailableError):
            member.commit(done)
        made.make()
        published(opened, 5)
        wait_until(lambda: isinstance(refused(member), PositionLostError))
        with pytest.raises(PositionLostError, match="made again"):
            member.poll(100, 0.1)
        with pytest.raises(PositionLostError):
            member.commit(done)
        wait_until(lambda: isinstance(refused(tail), PositionLostError))
    assert opened.positions(DELIVERIES, "a") == {}
    assert before is not None
    assert opened.topic_id(DELIVERIES) not in (before, None)


def test_what_a_member_commits_that_has_not_heard_of_the_new_topic_counts_as_read_in_none(
    made: Topics, opened: KafkaQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic has more messages than it had read of the earlier one, and no offset is out of range."""
    published(opened, 3)
    with closing(opened.consumer(DELIVERIES, "a")) as member:
        done = after(read(member, 6))
        # Its client asks for the metadata as soon as a fetch fails, in a thread of its own.
        monkeypatch.setattr(member._client._cluster, "update_metadata", lambda _: None)
        made.remove()
        made.make()
        published(opened, 5)
        member.commit(done)
    assert opened.positions(DELIVERIES, "a") == {}

    with closing(opened.consumer(DELIVERIES, "a")) as member:
        assert opened.positions(DELIVERIES, "a") == {0: 0, 1: 0}
        assert len(read(member, 10)) == 10


def test_positions_that_say_nothing_of_their_topic_count(made: Topics, opened: KafkaQueue) -> None:
    """As an earlier program committed them, or an operator moved them."""
    published(opened, 3)
    with closing(connect(made.address)) as admin:
        places = {TopicPartition(made.address.named(DELIVERIES.name), each): OffsetAndMetadata(2) for each in range(2)}
        admin.alter_group_offsets(made.address.group(DELIVERIES.name, "a"), places)
    assert opened.positions(DELIVERIES, "a") == {0: 2, 1: 2}


def test_what_is_published_to_a_topic_that_is_gone_names_it_and_what_to_do(made: Topics, opened: KafkaQueue) -> None:
    published(opened, 1)
    made.remove()
    said: list[str] = []

    def publish() -> None:
        try:
            opened.publish(DELIVERIES, [b"x"])
        except QueueUnavailableError as error:
            said.append(str(error))

    wait_until(lambda: bool(said) and "feedctl topics apply" in said[-1], publish)
    made.make()
    published(opened, 1)


def test_a_topic_that_is_made_again_with_fewer_partitions_has_no_more(made: Topics, opened: KafkaQueue) -> None:
    """Its ticker sent ticks to partitions of the earlier one, and failed until it was started again."""
    opened.publish_each(DELIVERIES, {0: [b"x"], 1: [b"x"]})
    made.remove()
    made.make(partitions=1)

    ends: list[dict[int, int]] = []

    def publish_to_each() -> None:
        with suppress(QueueUnavailableError):
            opened.publish_each(DELIVERIES, {each: [b"x"] for each in range(opened.partitions(DELIVERIES))})
            ends.append(opened.ends(DELIVERIES))

    wait_until(lambda: bool(ends) and ends[-1].keys() == {0} and ends[-1][0] > 0, publish_to_each)
    assert opened.partitions(DELIVERIES) == 1


def test_a_letter_is_buried_again_although_others_were_buried_in_the_new_topic_meanwhile(made: Topics) -> None:
    """It counted as buried, and was lost."""

    def values(letters: KafkaDeadLetters) -> list[bytes]:
        return [letter.value for letter in letters.letters(0, 10)]

    with closing(KafkaDeadLetters.open(made.address)) as letters:
        letters.bury(DELIVERIES, "a", "refused", "", 1, b"message")
        assert letters.count() == 1
        made.remove(DEAD)
        made.make()
        with closing(KafkaDeadLetters.open(made.address)) as others:
            for value in (b"one", b"two"):
                others.bury(DELIVERIES, "a", "refused", "", 1, value)

            def bury() -> None:
                with suppress(QueueUnavailableError):
                    letters.bury(DELIVERIES, "a", "refused", "", 1, b"message")

            wait_until(lambda: values(others) == [b"one", b"two", b"message"], bury)
