"""Several brokers, as in production: one of them is restarted, killed or hangs, and the queue does its work.

The topics have three copies. Each broker leads a part of the partitions, and knows a part of the groups.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import kafka
import pytest
from kafka.coordinator.base import BaseCoordinator
from kafka.structs import TopicPartition
from kafka_bench import wait_until
from queue_benches import after

from tests import threads
from tests.stack import homes
from tests.stack.own_brokers import Brokers, own_brokers
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import KafkaAddress, KafkaQueue, parse, topics
from workers.queue.kafka.errors import translated
from workers.queue.kafka.queue import connect
from workers.queue.kafka.topics import TopicDefinition
from workers.queue.port import Consumer, Message, PartitionsAwayError, QueueUnavailableError, lags_of, lost_of

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("several_brokers")]

PARTITIONS = 6
AT_ONCE = 20
GROUP = "a"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with own_brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture
def address(brokers: Brokers) -> KafkaAddress:
    return replace(parse(f"kafka://{brokers.servers}", Path(), {}), prefix=f"test-{uuid4().hex[:12]}.")


@pytest.fixture
def wanted(address: KafkaAddress) -> list[TopicDefinition]:
    """The topics, which are made."""
    made = topics.definitions(address, TOPICS, partitions=PARTITIONS, replication=3, action_age_ms=86_400_000)
    are_made(address, made)
    return made


def are_made(address: KafkaAddress, wanted: list[TopicDefinition]) -> None:
    """A broker that has just come back is not known to all others yet."""
    homes.eventually(lambda: not topics.apply(address, wanted), "the topics are made, and every broker answers")


@pytest.fixture
def opened(address: KafkaAddress, wanted: list[TopicDefinition]) -> Iterator[KafkaQueue]:
    with closing(KafkaQueue.open(address, TOPICS)) as queue:
        yield queue


@contextmanager
def restarted(brokers: Brokers, number: int) -> Iterator[None]:
    brokers.stop(number)
    try:
        yield
    finally:
        brokers.start(number)


@contextmanager
def killed(brokers: Brokers, number: int) -> Iterator[None]:
    brokers.kill(number)
    try:
        yield
    finally:
        brokers.start(number)


@contextmanager
def suspended(brokers: Brokers, number: int) -> Iterator[None]:
    brokers.suspend(number)
    try:
        yield
    finally:
        brokers.resume(number)


class Load:
    """Two publishers and two members of a group, each with a client of its own, as in processes of their own. They do
    again what is refused for now.
    """

    _names = (1, 2)

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._published: set[bytes] = set()
        self._read: set[bytes] = set()
        self._errors: list[BaseException] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        working = [
            threading.Thread(target=self._noting, args=(work, name))
            for work in (self._publish, self._consume)
            for name in self._names
        ]
        with threads.running(working, self._ended):
            yield

    def passes(self) -> None:
        """Returns when both publishers have published what they began from now on, and all of it is read."""
        with self._lock:
            before = set(self._published)

        def all_read() -> bool:
            with self._lock:
                new = [value.partition(b"/")[0] for value in self._published - before]
                is_enough = all(new.count(b"%d" % name) > 2 * AT_ONCE for name in self._names)
                return bool(self._errors) or (is_enough and self._published <= self._read)

        wait_until(all_read)
        assert not self._errors, self._errors

    def _noting(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self._errors.append(error)
            raise

    def _publish(self, name: int) -> None:
        count = 0
        with closing(KafkaQueue.open(self._address, TOPICS)) as opened:
            while not self._ended.is_set():
                values = [b"%d/%d" % (name, count + each) for each in range(AT_ONCE)]
                count += AT_ONCE
                while not self._ended.wait(0.05):
                    with suppress(QueueUnavailableError):
                        opened.publish(DELIVERIES, values)
                        with self._lock:
                            self._published |= set(values)
                        break

    def _consume(self, _: int) -> None:
        with (
            closing(KafkaQueue.open(self._address, TOPICS)) as opened,
            closing(opened.consumer(DELIVERIES, GROUP)) as member,
        ):
            while not self._ended.is_set():
                with suppress(QueueUnavailableError):
                    messages = member.poll(100, 0.2)
                    with self._lock:
                        self._read |= {message.value for message in messages}
                    member.commit(after(messages))


@pytest.mark.parametrize(("away", "numbers"), [(restarted, (1, 2, 3)), (killed, (1, 2, 3)), (suspended, (2,))])
@pytest.mark.usefixtures("wanted")
def test_all_is_read_that_was_published_while_one_broker_after_the_other_is(
    away: Callable[..., "contextmanager[None]"], numbers: Sequence[int], brokers: Brokers, address: KafkaAddress
) -> None:
    load = Load(address)
    with load.running():
        load.passes()
        for number in numbers:
            with away(brokers, number):
                load.passes()
        load.passes()


def test_workers_start_while_a_broker_is_away_and_the_check_names_it(
    brokers: Brokers, address: KafkaAddress, wanted: list[TopicDefinition]
) -> None:
    with killed(brokers, 2):
        # Until the others have noticed, they name it among those that lead.
        queue = homes.eventually(lambda: KafkaQueue.open(address, TOPICS), "the queue is opened")
        with closing(queue) as opened:
            published = {b"%d" % number for number in range(100)}
            opened.publish(DELIVERIES, sorted(published))
            read: set[bytes] = set()
            with closing(opened.consumer(DELIVERIES, GROUP)) as member:
                wait_until(lambda: read >= published, lambda: read.update(each.value for each in member.poll(100, 0.1)))
        topics.refuse_unsafe(address, wanted)
        (found,) = topics.differences(address, wanted)
        assert found.is_broker
        assert not found.fixable
        assert str(found).startswith("broker 2: offsets.retention.minutes: expected at least 129600, found nothing: it")
        assert topics.apply(address, wanted) == [found]
    homes.eventually(lambda: not topics.differences(address, wanted), "every broker answers")


def test_rule_12_partitions_that_no_broker_leads_keep_no_member_from_the_others(
    brokers: Brokers, address: KafkaAddress
) -> None:
    """Each has one copy, and its broker is away. A group that has read before begins all the same."""
    single = topics.definitions(address, TOPICS, partitions=PARTITIONS, replication=1, action_age_ms=86_400_000)
    are_made(address, single)
    with closing(KafkaQueue.open(address, TOPICS)) as opened:
        every = frozenset(range(PARTITIONS))
        opened.consumer(DELIVERIES, GROUP).close()
        opened.publish_each(DELIVERIES, {partition: [b"x"] for partition in every})
        with killed(brokers, 2):
            away = homes.eventually(lambda: unled(address), "the others notice that it is away")
            with closing(homes.eventually(lambda: opened.consumer(DELIVERIES, GROUP), "a member begins")) as member:
                read: set[int] = set()
                wait_until(
                    lambda: read == every - away,
                    lambda: read.update(each.partition for each in member.poll(100, 0.1)),
                )
            with pytest.raises(QueueUnavailableError, match="no broker leads"):
                opened.tail(DELIVERIES)
            named = ", ".join(f"{address.named(DELIVERIES.name)}/{each}" for each in sorted(away))
            for ask in opened.ends, opened.earliest:
                with pytest.raises(PartitionsAwayError, match=f"no broker leads {named}:") as raised:
                    ask(DELIVERIES)
                assert raised.value.others.keys() == every - away
            assert lags_of(opened, DELIVERIES, GROUP, known=True) == dict.fromkeys(every - away, 1)
            assert lost_of(opened, DELIVERIES, GROUP, known=True) == 0


def test_rule_12_a_new_group_reads_what_is_led_and_the_rest_from_its_earliest_message_once_it_is_led_again(
    brokers: Brokers, address: KafkaAddress
) -> None:
    single = topics.definitions(address, TOPICS, partitions=PARTITIONS, replication=1, action_age_ms=86_400_000)
    are_made(address, single)
    every = frozenset(range(PARTITIONS))
    with closing(KafkaQueue.open(address, TOPICS)) as opened, closing(connect(address)) as admin:
        opened.publish_each(DELIVERIES, {partition: [b"gone", b"x", b"y"] for partition in every})
        # Its first messages have expired.
        admin.delete_records({TopicPartition(address.named(DELIVERIES.name), each): 1 for each in every})
        read: set[tuple[int, int]] = set()

        def reads(member: Consumer) -> None:
            read.update((each.partition, each.offset) for each in member.poll(100, 0.1))

        with restarted(brokers, 2):
            away = homes.eventually(lambda: unled(address), "the others notice that it is away")
            member = homes.eventually(lambda: opened.consumer(DELIVERIES, GROUP), "a member begins")
            wait_until(lambda: read >= {(each, 2) for each in every - away}, lambda: reads(member))
            assert {partition for partition, _ in read} == every - away
        wait_until(lambda: read >= {(each, 2) for each in every}, lambda: reads(member))
        assert read == {(each, offset) for each in every for offset in (1, 2)}
        member.commit(dict.fromkeys(every, 3))
        wait_until(lambda: opened.positions(DELIVERIES, GROUP) == dict.fromkeys(every, 3), member.keep_alive)
        member.close()


@pytest.mark.parametrize("away", [suspended, killed])
def test_a_member_whose_coordinator_is_away_does_not_look_again_and_again(
    away: Callable[..., "contextmanager[None]"],
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    opened: KafkaQueue,
) -> None:
    """While it hangs, the next heartbeat is overdue. If it has died, the others name it until they have another one."""
    calls: Counter[str] = Counter()

    def count(of: type, name: str) -> None:
        call = getattr(of, name)

        def counted(*arguments: object, **more: object) -> object:
            calls[name] += 1
            return call(*arguments, **more)

        monkeypatch.setattr(of, name, counted)

    count(kafka.KafkaConsumer, "_poll_once")
    count(BaseCoordinator, "_send_group_coordinator_request")
    with closing(opened.consumer(DELIVERIES, GROUP)) as member:
        opened.publish(DELIVERIES, [b"x"])
        read: list[Message] = []
        wait_until(lambda: bool(read), lambda: read.extend(member.poll(100, 0.1)))
        coordinator = int(member._client._coordinator.coordinator_id.removeprefix("coordinator-"))
        calls.clear()
        with away(brokers, coordinator):
            for _ in range(8):
                with suppress(QueueUnavailableError):
                    member.poll(100, 1.0)
    assert 0 < calls["_poll_once"] < 200
    assert calls["_send_group_coordinator_request"] < 200


def unled(address: KafkaAddress) -> set[int]:
    """The partitions of deliveries that no broker leads."""
    with closing(connect(address)) as admin, translated(str(address)):
        (found,) = admin.describe_topics([address.named(DELIVERIES.name)])
    return {each["partition_index"] for each in found["partitions"] if each["leader_id"] < 0}


def test_rule_12_a_partition_that_has_moved_and_that_no_broker_leads_keeps_no_other_position_back(
    brokers: Brokers, address: KafkaAddress
) -> None:
    """What a member has read of it before is committed together with the rest of its batch."""
    single = topics.definitions(address, TOPICS, partitions=PARTITIONS, replication=1, action_age_ms=86_400_000)
    are_made(address, single)
    with closing(KafkaQueue.open(address, TOPICS)) as opened, closing(KafkaQueue.open(address, TOPICS)) as other:
        opened.publish_each(DELIVERIES, {partition: [b"x"] * 3 for partition in range(PARTITIONS)})
        member = opened.consumer(DELIVERIES, GROUP)
        done: dict[int, int] = {}
        while len(done) < PARTITIONS:
            done |= after(member.poll(100, 0.2))
        ended = threading.Event()

        def read_elsewhere() -> None:
            with closing(other.consumer(DELIVERIES, GROUP)) as second:
                while not ended.is_set():
                    with suppress(QueueUnavailableError):
                        second.poll(1, 0.1)

        with threads.running([threading.Thread(target=read_elsewhere)], ended):
            wait_until(lambda: len(member.held()) == PARTITIONS // 2, member.keep_alive)
            (described,) = opened._admin.describe_topics([address.named(DELIVERIES.name)])
            leaders = {each["partition_index"]: each["leader_id"] for each in described["partitions"]}
            coordinator = int(member._client._coordinator.coordinator_id.removeprefix("coordinator-"))
            moved = sorted(leaders.keys() - member.held())
            gone = next(leaders[each] for each in moved if leaders[each] != coordinator)
            with killed(brokers, gone):
                homes.eventually(lambda: unled(address), "the others notice that it is away")

                def has_stored() -> bool:
                    member.keep_alive()
                    member.commit(done)
                    stored = opened.positions(DELIVERIES, GROUP)
                    return any(stored.get(each) == 3 for each in member.held() if leaders[each] != gone)

                wait_until(has_stored)
        member.close()
