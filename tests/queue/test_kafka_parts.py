"""The parts of the Kafka adapter that need no broker: urls, errors, positions, what was fetched ahead."""

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from kafka import errors as kafka_errors
from kafka.cluster import ClusterMetadata
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.metadata import CoordinatorType, MetadataRequest
from kafka.structs import OffsetAndMetadata, TopicPartition

from workers.following.redeliver import redeliver
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.queue.kafka import (
    KafkaAddress,
    KafkaTail,
    coordinators,
    dead_letters,
    parse,
    producers,
    queue,
    reading,
    reconnecting,
    topics,
)
from workers.queue.kafka.errors import REBALANCED, translated
from workers.queue.kafka.positions import Positions
from workers.queue.kafka.prefetch import PrefetchBuffer
from workers.queue.kafka.queue import KafkaQueue, connect
from workers.queue.kafka.reconnecting import LOOK_AGAIN_MS, DirectSocket, WaitingClient
from workers.queue.kafka.topics import TopicDefinition, definitions
from workers.queue.port import (
    MAX_MESSAGE_BYTES,
    Message,
    MessageRefusedError,
    PositionLostError,
    QueueError,
    QueueUnavailableError,
    UnsafeTopicsError,
)

# Addresses.


def test_a_url_names_servers_and_nothing_else_is_needed() -> None:
    address = parse("kafka://one:9092,[::1]:9093", Path(), {})
    assert address.servers == ("one:9092", "[::1]:9093")
    assert address.options() == {
        "bootstrap_servers": ["one:9092", "[::1]:9093"],
        "client_id": "feedstore",
        "kafka_client": WaitingClient,
        "proxy_url": "direct://",
        "security_protocol": "PLAINTEXT",
        "reconnect_backoff_max_ms": 1_000,
    }
    assert address.named(ACTIONS.name) == "feed.actions"


def test_sasl_and_tls_are_passed_through(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).touch()
    url = "kafka://one:9092?security=SASL_SSL&mechanism=SCRAM-SHA-512&user=feed&ca=ca.pem&cert=c.pem&key=k.pem"
    secrets = {"FEED_KAFKA_PASSWORD": "secret", "FEED_KAFKA_KEY_PASSWORD": "secret too"}
    options = parse(url, tmp_path, secrets).options()
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("feed", "secret")
    files = [str(tmp_path / name) for name in ("ca.pem", "c.pem", "k.pem")]
    assert [options["ssl_cafile"], options["ssl_certfile"], options["ssl_keyfile"]] == files
    assert options["ssl_password"] == "secret too"
    assert options["ssl_check_hostname"] is True
    address = parse(f"{url}&password_file={file.name}&prefix=staging.", tmp_path, secrets)
    assert address.options()["sasl_plain_password"] == "from a file"
    assert address.named(ACTIONS.name) == "staging.feed.actions"
    for shown in (repr(address), str(address)):
        assert "secret" not in shown
        assert "from a file" not in shown


def test_the_poll_interval_is_five_minutes_unless_the_url_says_otherwise() -> None:
    assert parse("kafka://one:9092", Path(), {}).max_poll_interval_ms == 300_000
    assert parse("kafka://one:9092?prefix=a.&max_poll_interval_ms=12000", Path(), {}).max_poll_interval_ms == 12_000


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://one:9092", "kafka://"),
        ("kafka://", "HOST:PORT"),
        ("kafka://one", "HOST:PORT"),
        ("kafka://one:99999", "HOST:PORT"),
        ("kafka://one:9092,", "HOST:PORT"),
        ("kafka://one:9092/topic", "kafka://"),
        ("kafka://feed:hunter2@one:9092", "FEED_KAFKA_PASSWORD"),
        ("kafka://feed:a/hunter2@one:9092", "kafka://"),
        ("kafka:feed:hunter2@one:9092", "kafka://"),
        ("kafka://one:9092?password=hunter2", "password"),
        ("kafka://one:9092?security=TLS", "security"),
        ("kafka://one:9092?security=SSL&security=PLAINTEXT", "twice"),
        ("kafka://one:9092?security=", "empty"),
        ("kafka://one:9092?prefix=a/b", "prefix"),
        ("kafka://one:9092?max_poll_interval_ms=5m", "max_poll_interval_ms: expected a number"),
        ("kafka://one:9092?max_poll_interval_ms=999", "max_poll_interval_ms: expected 1000"),
        ("kafka://one:9092?max_poll_interval_ms=86400001", "max_poll_interval_ms: expected 1000 .. 86400000"),
        ("kafka://one:9092?security=SASL_SSL&user=feed", "mechanism"),
        ("kafka://one:9092?security=SASL_SSL&mechanism=PLAIN", "user"),
        ("kafka://one:9092?security=SASL_SSL&mechanism=PLAIN&user=feed", "FEED_KAFKA_PASSWORD"),
        ("kafka://one:9092?ca=ca.pem", "ca: needs security=SSL or SASL_SSL"),
        ("kafka://one:9092?security=SASL_PLAINTEXT&user=feed&cert=c.pem", "cert: needs security=SSL or SASL_SSL"),
        ("kafka://one:9092?security=PLAINTEXT&key=k.pem", "key: needs security=SSL or SASL_SSL"),
        ("kafka://one:9092?user=feed", "user: needs security=SASL_PLAINTEXT or SASL_SSL"),
        ("kafka://one:9092?security=SSL&mechanism=PLAIN", "mechanism: needs security=SASL_PLAINTEXT or SASL_SSL"),
        ("kafka://one:9092?password_file=secret", "password_file: needs security=SASL_PLAINTEXT or SASL_SSL"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_was_expected(url: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as refused:
        parse(url, Path(), {})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["FEED_KAFKA_PASSWORD", "FEED_KAFKA_KEY_PASSWORD"])
def test_a_password_that_is_no_text_is_refused_and_not_repeated(name: str) -> None:
    url = "kafka://one:9092?security=SASL_SSL&mechanism=PLAIN&user=feed"
    with pytest.raises(ValueError, match=rf"^{name}: expected text in UTF-8$"):
        parse(url, Path(), {"FEED_KAFKA_PASSWORD": "s", name: os.fsdecode(b"hunter2\xff")})


@pytest.mark.parametrize("name", ["password_file", "ca", "cert", "key"])
def test_a_file_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        parse(f"kafka://one:9092?security=SASL_SSL&{name}=nowhere", tmp_path, {})


# Brokers that do not answer.


def test_a_broker_that_does_not_answer_is_not_asked_without_a_pause() -> None:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        with closing(WaitingClient(bootstrap_servers=[server], reconnect_backoff_ms=1_000)) as client:
            (broker,) = client.cluster.bootstrap_brokers()
            assert client.connection_delay(broker.node_id) == 0
            client.maybe_connect(broker.node_id)
            assert client.connection_delay(broker.node_id) == LOOK_AGAIN_MS
            client.poll(timeout_ms=0)
            with silent.accept()[0]:
                client.poll(timeout_ms=0)
            assert client.connection_delay(broker.node_id) == LOOK_AGAIN_MS, "connected, and not greeted"
            for _ in range(10):  # as many failures: it is left alone for half a minute
                client._manager.update_backoff(broker.node_id)
            assert 10_000 < client.connection_delay(broker.node_id) <= 36_000


def test_a_coordinator_that_is_being_connected_to_is_not_looked_up_again() -> None:
    """A look-up puts off the next heartbeat: a connection that takes long cost a member of a group its partitions."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        with closing(WaitingClient(bootstrap_servers=[server], reconnect_backoff_ms=1_000)) as client:
            port = silent.getsockname()[1]
            found = SimpleNamespace(error_code=0, node_id=1, host="127.0.0.1", port=port)
            node = client.cluster.add_coordinator(found, CoordinatorType.GROUP, "group")
            of_group = ConsumerCoordinator(client, SubscriptionState(), group_id="group", enable_auto_commit=False)
            of_group.coordinator_id = node
            client.maybe_connect(node)
            assert not of_group.coordinator_unknown()
            client.poll(timeout_ms=0)
            with silent.accept()[0]:
                client.poll(timeout_ms=0)
            assert not of_group.coordinator_unknown(), "connected, and not greeted"
            client._manager.update_backoff(node)
            assert of_group.coordinator_unknown(), "it has failed"


def test_the_coordinator_is_not_asked_for_without_a_pause() -> None:
    """The brokers name one that has died until they have another one."""
    now_s = 10.0
    asked_s: list[float] = []

    async def sleep(wait_s: float) -> None:
        nonlocal now_s
        now_s += wait_s

    async def ask() -> str:
        asked_s.append(now_s)
        return "coordinator-2"

    of_group = SimpleNamespace(
        time_to_next_poll=lambda: 0.0, _send_group_coordinator_request=ask, _net=SimpleNamespace(sleep=sleep)
    )
    coordinators.calm(of_group, lambda: now_s)
    assert of_group.time_to_next_poll() == coordinators.LOOK_S
    for pause_s in (0.0, 0.0, 0.03, 5.0):
        now_s += pause_s
        assert asyncio.run(of_group._send_group_coordinator_request()) == "coordinator-2"
    assert asked_s == pytest.approx([10.0, 10.1, 10.2, 15.2])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets that clients make. None may wait for the garbage collector, which comes rarely to a worker."""
    made: list[socket.socket] = []
    make = DirectSocket.socket

    def noted(self: DirectSocket, *family: Any) -> socket.socket:
        made.append(make(self, *family))
        return made[-1]

    monkeypatch.setattr(DirectSocket, "socket", noted)
    return made


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL"])
def test_a_broker_that_hangs_leaves_a_new_client_the_time_to_ask_another_one(
    security: str, made: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting, "GREETS_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as other:
        servers = [f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, other)]
        in_turn = cycle((0, 1))
        monkeypatch.setattr(random, "choice", lambda brokers: brokers[next(in_turn)])
        options = KafkaAddress(tuple(servers), security).options()
        with closing(options.pop("kafka_client")(**options)) as client, pytest.raises(kafka_errors.KafkaTimeoutError):
            client._manager.bootstrap(2_000)
        assert made
        assert {one.fileno() for one in made} == {-1}
        for each in (silent, other):
            each.setblocking(False)
            each.accept()[0].close()


def test_each_attempt_to_connect_that_fails_closes_its_socket(made: list[socket.socket]) -> None:
    with socket.socket() as taken:  # nothing listens
        taken.bind(("127.0.0.1", 0))
        options = KafkaAddress((f"127.0.0.1:{taken.getsockname()[1]}",)).options()
        with closing(options.pop("kafka_client")(**options)) as client:
            (broker,) = client.cluster.bootstrap_brokers()
            for _ in range(3):
                client._manager.reset_backoff(broker.node_id)
                client.maybe_connect(broker.node_id)
                connection = client._manager._conns[broker.node_id]
                client.poll(timeout_ms=10_000, future=connection.close_future)
    assert [one.fileno() for one in made] == [-1, -1, -1]


def test_a_client_that_is_closed_before_it_has_written_closes_its_socket(made: list[socket.socket]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = KafkaAddress((f"127.0.0.1:{silent.getsockname()[1]}",)).options()
        # With brokers as old as this, a connection begins without a word of theirs.
        with closing(options.pop("kafka_client")(api_version=(0, 9), **options)) as client:
            (broker,) = client.cluster.bootstrap_brokers()
            client.maybe_connect(broker.node_id)
            connection = client._manager._conns[broker.node_id]
            client.poll(timeout_ms=10_000, future=connection.init_future)
            client.send(broker.node_id, MetadataRequest(topics=[]))
    assert [one.fileno() for one in made] == [-1]


# Errors.


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (kafka_errors.KafkaTimeoutError("slow"), QueueUnavailableError),
        (kafka_errors.NotLeaderForPartitionError(), QueueUnavailableError),
        (kafka_errors.SaslAuthenticationFailedError("who"), QueueUnavailableError),
        (kafka_errors.TopicAuthorizationFailedError({"t"}), QueueUnavailableError),
        (kafka_errors.CorruptRecordError("crc"), QueueUnavailableError),
        (ConnectionResetError("gone"), QueueUnavailableError),
        (kafka_errors.MessageSizeTooLargeError("large"), MessageRefusedError),
        (kafka_errors.IllegalStateError("closed"), QueueError),
        (PositionLostError("as it is"), PositionLostError),
    ],
)
def test_errors_become_the_ports_own(raised: Exception, expected: type[QueueError]) -> None:
    with pytest.raises(expected) as found, translated("here"):
        raise raised
    assert type(found.value) is expected
    assert found.value is raised or "here" in str(found.value)


def test_an_error_without_a_text_is_its_name() -> None:
    with pytest.raises(QueueUnavailableError) as found, translated("here"):
        raise kafka_errors.KafkaTimeoutError(None)
    assert str(found.value) == "here: KafkaTimeoutError"


def test_mistakes_of_ours_are_not_hidden() -> None:
    with pytest.raises(KeyError), translated("here"):
        raise KeyError


def test_a_rebalance_is_told_from_an_outage() -> None:
    assert issubclass(kafka_errors.CommitFailedError, REBALANCED)
    assert issubclass(kafka_errors.RebalanceInProgressError, REBALANCED)
    assert not issubclass(kafka_errors.KafkaTimeoutError, REBALANCED)


@pytest.mark.processes
def test_a_broker_that_does_not_answer_is_unavailable() -> None:
    # In a process of its own: the client leaves a socket behind that it could not connect.
    program = """
from pathlib import Path
from workers.queue.kafka import KafkaQueue, parse, queue
queue.REQUEST_MS = 300
KafkaQueue.open(parse("kafka://127.0.0.1:1", Path(), {}), [])
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    said = "QueueUnavailableError: kafka://127.0.0.1:1: KafkaTimeoutError: 127.0.0.1:1: KafkaConnectionError: 111"
    assert said in ended.stderr, "which server, and why"


# Positions.


def learned(stored: dict[int, int | None]) -> Positions:
    positions = Positions()
    positions.gained(stored)
    for partition, position in stored.items():
        positions.learned(partition, position)
    return positions


def test_positions_are_due_once_what_is_stored_is_known() -> None:
    positions = Positions()
    positions.gained([0, 1])
    positions.owe({0: 5})
    assert positions.unknown() == [0]
    assert positions.due() == {}
    positions.learned(0, 3)
    assert (positions.unknown(), positions.due()) == ([], {0: 5})
    positions.stored({0: 5})
    assert positions.due() == {}


def test_a_stored_position_never_goes_back() -> None:
    positions = learned({0: 10})
    for position in (9, 10):
        positions.owe({0: position})
        assert positions.due() == {}
    positions.owe({0: 12})
    positions.owe({0: 11})
    assert positions.due() == {0: 12}


def test_a_group_that_was_never_there_may_store_the_very_beginning() -> None:
    positions = learned({0: None})
    positions.owe({0: 0})
    assert positions.due() == {0: 0}


def test_positions_of_partitions_that_are_not_held_are_dropped() -> None:
    positions = learned({0: 1, 1: 1})
    positions.owe({0: 5, 1: 5, 2: 5})
    positions.gave_up([0])
    assert (positions.held, positions.due()) == ({1}, {1: 5})
    positions.stored({0: 5, 1: 5})
    assert positions.due() == {}


def test_a_partition_that_came_back_is_learned_anew() -> None:
    positions = learned({0: 1})
    positions.owe({0: 5})
    positions.gave_up([0])
    positions.gained([0])
    positions.owe({0: 6})
    assert positions.unknown() == [0]
    positions.learned(0, 8)  # another member went on from where this one was
    assert positions.due() == {}


def test_a_position_that_could_not_be_stored_stays_due() -> None:
    positions = learned({0: 1, 1: 1})
    positions.owe({0: 5})
    positions.owe({1: 7})
    assert positions.due() == {0: 5, 1: 7}


# What was fetched ahead.


def messages(partition: int, count: int) -> list[Message]:
    return [Message(partition, offset, b"12345") for offset in range(count)]


def test_every_partition_has_its_turn() -> None:
    ahead = PrefetchBuffer()
    for partition in range(3):
        ahead.add(partition, messages(partition, 100))
    assert (ahead.count, ahead.size) == (300, 1_500)
    first = [ahead.take(10) for _ in range(3)]
    assert [{message.partition for message in taken} for taken in first] == [{0}, {1}, {2}]
    rest = []
    while taken := ahead.take(70):
        rest += taken
    assert (ahead.count, ahead.size) == (0, 0)
    for partition in range(3):
        own = [message.offset for taken in [*first, rest] for message in taken if message.partition == partition]
        assert own == list(range(100))


def test_a_poll_that_is_full_of_bytes_leaves_the_rest_here() -> None:
    ahead = PrefetchBuffer()
    for partition in range(2):
        ahead.add(partition, [Message(partition, offset, bytes(200_000)) for offset in range(3)])
    taken = []
    while some := ahead.take(10):
        assert len(some) == 2
        taken += some
    assert (len(set(taken)), ahead.count, ahead.size) == (6, 0, 0)


def test_a_partition_that_was_given_up_leaves_nothing() -> None:
    ahead = PrefetchBuffer()
    ahead.add(0, messages(0, 3))
    ahead.add(1, messages(1, 2))
    ahead.drop(0)
    ahead.drop(7)
    assert (ahead.count, ahead.size, ahead.of(0)) == (2, 10, 0)
    assert {message.partition for message in ahead.take(10)} == {1}
    ahead.add(0, messages(0, 1))
    assert ahead.take(10) == messages(0, 1)


# Topics.

ADDRESS = parse("kafka://one:9092", Path(), {})
ACTION_AGE_MS = 172_800_000


def defined(partitions: int = 2, replication: int = 1) -> list[TopicDefinition]:
    return definitions(ADDRESS, TOPICS, partitions=partitions, replication=replication, action_age_ms=ACTION_AGE_MS)


def test_retention_outlives_an_action() -> None:
    for topic in defined(replication=3):
        retention_ms = int(topic.config["retention.ms"])
        assert retention_ms == -1 or retention_ms > ACTION_AGE_MS
        assert topic.config["min.insync.replicas"] == "2"
        assert topic.config["unclean.leader.election.enable"] == "false"


@pytest.mark.parametrize(("replication", "in_sync"), [(1, "1"), (2, "2"), (3, "2"), (5, "4")])
def test_rule_11_a_message_is_acknowledged_by_two_brokers_where_there_are_two(replication: int, in_sync: str) -> None:
    assert {topic.config["min.insync.replicas"] for topic in defined(replication=replication)} == {in_sync}


class Brokers:
    """Brokers whose topics are as they must be, but for what a test sets."""

    def __init__(self, wanted: list[TopicDefinition], settings: dict[str, str], replicas: int) -> None:
        self._wanted = {topic.name: topic for topic in wanted}
        self.settings = settings
        self._replicas = replicas

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        of = {"partition_index": 0, "replica_nodes": list(range(self._replicas))}
        return [{"name": name, "error_code": 0, "partitions": [of] * self._wanted[name].partitions} for name in names]

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": []}

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        settings = {each.name: {**self._wanted[each.name].config, **self.settings} for each in resources}
        return {"topic": {name: {key: {"value": value} for key, value in of.items()} for name, of in settings.items()}}

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("replication", "setting", "value", "is_unsafe"),
    [
        (2, "min.insync.replicas", "1", True),
        (3, "min.insync.replicas", "1", True),
        (5, "min.insync.replicas", "2", False),
        (3, "min.insync.replicas", "3", False),
        (1, "min.insync.replicas", "2", False),
        (1, "unclean.leader.election.enable", "true", True),
        (1, "cleanup.policy", "compact", True),
        (1, "cleanup.policy", "compact,delete", True),
        (1, "retention.ms", "1000", True),
        (1, "retention.bytes", "1000000", True),
        (1, "message.timestamp.type", "CreateTime", True),
        (1, "max.message.bytes", "1000", False),
        (1, "compression.type", "zstd", True),
        (1, "compression.type", "lz4", True),
        (1, "compression.type", "snappy", True),
        (1, "compression.type", "gzip", False),
        (1, "compression.type", "uncompressed", False),
    ],
)
def test_topics_that_could_lose_what_they_acknowledged_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, replication: int, setting: str, value: str, is_unsafe: bool
) -> None:
    wanted = defined(replication=replication)
    monkeypatch.setattr(topics, "connect", lambda _: Brokers(wanted, {setting: value}, replication))
    found = topics.differences(ADDRESS, wanted)
    assert {(each.what, each.is_unsafe) for each in found} == {(setting, is_unsafe)}
    if not is_unsafe:
        topics.refuse_unsafe(ADDRESS, wanted)
        return
    with pytest.raises(
        UnsafeTopicsError, match=rf"feed\.actions: {setting}: expected .*, found {value} \(unsafe\).*topics apply"
    ):
        topics.refuse_unsafe(ADDRESS, wanted)


def test_a_topic_with_fewer_replicas_than_asked_for_is_refused_and_the_message_says_what_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = defined(replication=3)
    monkeypatch.setattr(topics, "connect", lambda _: Brokers(wanted, {}, 1))
    with pytest.raises(
        UnsafeTopicsError, match=r"replication: expected 3, found 1 \(unsafe\).*; give each partition .* more copies"
    ):
        topics.refuse_unsafe(ADDRESS, wanted)


def test_a_topic_of_which_one_partition_has_fewer_replicas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a reassignment had covered the other partitions only."""

    class Uneven(Brokers):
        def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
            found = super().describe_topics(names)
            for topic in found:
                topic["partitions"][-1] = {"partition_index": 1, "replica_nodes": [0]}
            return found

    wanted = defined(replication=3)
    monkeypatch.setattr(topics, "connect", lambda _: Uneven(wanted, {}, 3))
    with pytest.raises(UnsafeTopicsError, match=r"feed\.actions: replication: expected 3, found 1 \(unsafe\)"):
        topics.refuse_unsafe(ADDRESS, wanted)


def test_each_difference_that_a_command_does_not_correct_says_who_does() -> None:
    def mend(what: str, *, fixable: bool) -> str:
        return topics.TopicDifference("feed.actions", what, "1", "2", fixable).mend

    assert mend("partitions", fixable=True) == mend("missing", fixable=True) == "feedctl topics apply mends it"
    assert "set queue.partitions in feed.toml to 2" in mend("partitions", fixable=False)
    assert "kafka-reassign-partitions.sh" in mend("replication", fixable=False)
    assert "configuration of the brokers" in mend("offsets.retention.minutes", fixable=False)


def test_topics_that_compress_are_refused_with_what_reads_the_messages_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = defined()
    monkeypatch.setattr(topics, "connect", lambda _: Brokers(wanted, {"compression.type": "zstd"}, 1))
    with pytest.raises(UnsafeTopicsError, match=r"messages that are there .*lz4, python-snappy or zstandard"):
        topics.refuse_unsafe(ADDRESS, wanted)


def test_settings_that_this_user_may_not_see_are_not_read_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = defined()
    brokers = Brokers(wanted, {}, 1)
    brokers.describe_configs = lambda resources, config_filter: {  # type: ignore[method-assign]
        "topic": {each.name: {} for each in resources}
    }
    monkeypatch.setattr(topics, "connect", lambda _: brokers)
    for ask in (topics.refuse_unsafe, topics.differences, topics.apply):
        with pytest.raises(QueueUnavailableError, match=r"no settings of topic feed\.actions, .* DescribeConfigs"):
            ask(ADDRESS, wanted)


@pytest.mark.parametrize("setting", ["retention.ms", "min.insync.replicas"])
def test_a_setting_that_a_broker_does_not_name_is_a_difference(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    wanted = defined()
    monkeypatch.setattr(topics, "connect", lambda _: Brokers(wanted, {setting: ""}, 1))
    assert {(each.what, each.found) for each in topics.differences(ADDRESS, wanted)} == {(setting, "nothing")}


@pytest.mark.parametrize(("retention_ms", "differ"), [(-1, set()), (10**12, {"feed.dead"})], ids=["for ever", "longer"])
def test_messages_may_be_kept_longer_and_letters_are_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch, retention_ms: int, differ: set[str]
) -> None:
    wanted = defined()
    monkeypatch.setattr(topics, "connect", lambda _: Brokers(wanted, {"retention.ms": str(retention_ms)}, 1))
    assert {each.topic for each in topics.differences(ADDRESS, wanted)} == differ


@pytest.mark.parametrize("setting", ["retention.ms", "unclean.leader.election.enable"], ids=["known", "unknown"])
def test_settings_that_the_brokers_refuse_to_change_are_told(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    wanted = defined()
    brokers = SlowBrokers(wanted)
    brokers.settings = {setting: ""}
    brokers.answer = "[Error 44] PolicyViolationError: not here"
    monkeypatch.setattr(topics, "connect", lambda _: brokers)
    with pytest.raises(QueueUnavailableError, match=rf"feed\.actions: {setting}: .*PolicyViolationError: not here"):
        topics.apply(ADDRESS, wanted)


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="partitions"):
        defined(0)


# Groups whose broker changes.


class SlowBrokers(Brokers):
    """They take changes, and say for a while what was there before."""

    def __init__(self, wanted: list[TopicDefinition]) -> None:
        super().__init__(wanted, {"retention.ms": "1000"}, 1)
        self.partitions: dict[str, int] = {}
        self.answer = "OK"

    def create_partitions(self, wanted: dict[str, int]) -> None:
        self.partitions |= wanted

    def alter_configs(self, resources: list[Any], *, raise_on_unknown: bool = True) -> dict[str, dict[str, str]]:
        if raise_on_unknown and any("unclean.leader.election.enable" in each.configs for each in resources):
            raise ValueError("Unrecognized configs: {'unclean.leader.election.enable'}")
        return {"topic": {each.name: self.answer for each in resources}}


def test_what_a_broker_has_not_heard_of_yet_is_no_difference_after_it_was_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, wanted = defined(4), defined(6)
    brokers = SlowBrokers(made)
    monkeypatch.setattr(topics, "connect", lambda _: brokers)
    assert {each.what for each in topics.differences(ADDRESS, wanted)} == {"partitions", "retention.ms"}
    assert topics.apply(ADDRESS, wanted) == []
    assert set(brokers.partitions.values()) == {6}


class Groups:
    """Brokers that answer about groups, as kafka-python's admin client asks them: it remembers whom it has asked."""

    def __init__(self) -> None:
        self.cluster = ClusterMetadata()
        self._manager = self
        self.coordinator = 1

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        one = {"partition_index": 0, "leader_id": 0}
        return [{"name": name, "error_code": 0, "topic_id": str(UUID(int=1)), "partitions": [one]} for name in names]

    def describe_groups(self, names: list[str]) -> dict[str, dict[str, Any]]:
        error = "[Error 16] NotCoordinatorError" if self._asked(names[0]) != self.coordinator else None
        return {names[0]: {"error": error, "group_state": "" if error else "Stable", "members": [] if error else [{}]}}

    def list_group_offsets(self, wanted: dict[str, list[TopicPartition]]) -> dict[str, Any]:
        [(name, places)] = wanted.items()
        self._refuse_other(name)
        return {name: {place: OffsetAndMetadata(7) for place in places}}

    def close(self) -> None: ...

    def _asked(self, name: str) -> int:
        node: int | None = self.cluster.get_coordinator(name)
        if node is None:
            answer = SimpleNamespace(error_code=0, node_id=self.coordinator, host="one", port=9092)
            node = self.cluster.add_coordinator(answer, 0, name, synthesize_node_id=False)
        return node

    def _refuse_other(self, name: str) -> None:
        if self._asked(name) != self.coordinator:
            raise kafka_errors.NotCoordinatorError


def test_a_group_that_another_broker_has_taken_over_is_found_there() -> None:
    """kafka-python would ask the broker that it asked first, for as long as the client is open."""
    brokers = Groups()
    asked = KafkaQueue(ADDRESS, cast(Any, brokers), {DELIVERIES: 1})
    assert (asked.members(DELIVERIES, "writer-a"), asked.positions(DELIVERIES, "writer-a")) == (1, {0: 7})
    for brokers.coordinator in (2, 3):
        assert asked.members(DELIVERIES, "writer-a") == 1, "not none, as the broker says that knows it no more"
    brokers.coordinator = 4
    assert asked.positions(DELIVERIES, "writer-a") == {0: 7}
    asked.close()


def test_a_group_that_no_broker_knows_has_no_members() -> None:
    brokers = Groups()
    brokers.describe_groups = lambda names: {  # type: ignore[method-assign]
        names[0]: {"error": "[Error 69] GroupIdNotFoundError", "group_state": "Dead", "members": []}
    }
    asked = KafkaQueue(ADDRESS, cast(Any, brokers), {DELIVERIES: 1})
    assert asked.members(DELIVERIES, "writer-a") == 0
    asked.close()


def test_what_reaches_no_broker_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and workers try again and again, for as long as the brokers are away."""
    for module in (queue, producers):
        monkeypatch.setattr(module, "REQUEST_MS", 100)
    monkeypatch.setattr(reading, "REQUEST_S", 0.1)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        address = parse(f"kafka://127.0.0.1:{silent.getsockname()[1]}", Path(), {})
        threads, descriptors = {*threading.enumerate()}, len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(QueueUnavailableError):
            connect(address)
        with pytest.raises(QueueUnavailableError), translated(str(address)):
            reading.client(address, group_id=None)
        with pytest.raises(QueueUnavailableError), translated(str(address)):
            producers.producer(address)
        # Those of earlier tests may end meanwhile.
        assert {*threading.enumerate()} <= threads
        assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


# Publishing.


class Shared:
    """A producer that several threads use. Of the first topic that is asked for it hears late, of others never."""

    def __init__(self) -> None:
        self.config = {"api_version": (4, 0)}
        self._metadata = SimpleNamespace(topic_id=lambda _: None)
        self.asked, self.answers = threading.Event(), threading.Event()
        self.sent: list[bytes] = []
        self.closed = False

    def partitions_for(self, _: str) -> set[int]:
        if self.asked.is_set():
            raise kafka_errors.KafkaTimeoutError("Failed to update metadata")
        self.asked.set()
        assert self.answers.wait(60)
        return {0}

    def send(self, _: str, value: bytes, partition: int) -> SimpleNamespace:
        assert not self.closed, "what a closed one raises is none of the queue's errors"
        self.sent.append(value)
        return SimpleNamespace(get=lambda timeout: partition)

    def flush(self, timeout: float) -> None: ...

    def close(self, timeout: float) -> None:
        self.closed = True


def test_a_producer_that_failed_is_closed_when_no_other_call_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two relays share one: that of one shard must not end because that of another has waited for too long."""
    shared = Shared()
    monkeypatch.setattr(producers, "producer", lambda *_: shared)
    opened = KafkaQueue(ADDRESS, cast(Any, Groups()), {ACTIONS: 1, DELIVERIES: 1})
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(opened.publish, DELIVERIES, [b"x"])
        assert shared.asked.wait(60)
        with pytest.raises(QueueUnavailableError):
            opened.publish(ACTIONS, [b"lost"])
        assert not shared.closed
        shared.answers.set()
        other.result(60)
    assert shared.sent == [b"x"]
    assert shared.closed
    opened.close()


class Partitions:
    """The four partitions of a topic, as producers see them. topic: its id. away: those that acknowledge nothing.
    taken: the messages of the others. opened: how many producers there were.
    """

    def __init__(self) -> None:
        self.topic = UUID(int=1)
        self.away: set[int] = set()
        self.taken: list[tuple[int, bytes]] = []
        self.opened = 0

    def producer(self, *_: object) -> "Partitioned":
        self.opened += 1
        return Partitioned(self)

    def send(self, _: str, value: bytes, partition: int) -> SimpleNamespace:
        def get(timeout: float) -> None:
            if partition in self.away:
                raise kafka_errors.NotEnoughReplicasError

        if partition not in self.away:
            self.taken.append((partition, value))
        return SimpleNamespace(get=get)


class Partitioned:
    """A producer for them."""

    def __init__(self, partitions: Partitions) -> None:
        self.config = {"api_version": (4, 0)}
        self._metadata = SimpleNamespace(topic_id=lambda _: partitions.topic)
        self.send = partitions.send

    def partitions_for(self, _: str) -> set[int]:
        return set(range(4))

    def flush(self, timeout: float) -> None: ...

    def close(self, timeout: float) -> None: ...


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Partitions:
    """All of them take what is published to ACTIONS."""
    brokers = Partitions()
    monkeypatch.setattr(producers, "producer", brokers.producer)
    return brokers


@pytest.fixture
def opened() -> Iterator[KafkaQueue]:
    with closing(KafkaQueue(ADDRESS, cast(Any, Groups()), {ACTIONS: 4})) as opened:
        yield opened


def publish_all(opened: KafkaQueue, values: list[bytes]) -> int:
    """Publishes each until it is taken, as callers do; returns how many calls failed."""
    failed = 0
    for value in values:
        while True:
            try:
                opened.publish(ACTIONS, [value])
            except QueueUnavailableError:
                failed += 1
            else:
                break
    return failed


def test_rule_12_a_partition_that_takes_nothing_does_not_keep_messages_from_the_others(
    brokers: Partitions, opened: KafkaQueue
) -> None:
    """Too few of its replicas are in sync, say: each attempt takes as long as a producer tries a message."""
    brokers.away = {1}
    values = [b"%d" % number for number in range(40)]
    assert publish_all(opened, values) == 1
    assert [value for _, value in brokers.taken] == values
    assert {partition for partition, _ in brokers.taken} == {0, 2, 3}
    with pytest.raises(QueueUnavailableError):
        opened.publish_each(ACTIONS, {each: [b"tick"] for each in range(4)})

    brokers.away.clear()
    opened.publish_each(ACTIONS, {each: [b"tick"] for each in range(4)})
    brokers.taken.clear()
    assert publish_all(opened, values) == 0
    assert {partition for partition, _ in brokers.taken} == {0, 1, 2, 3}


def test_if_all_partitions_take_nothing_each_is_tried(brokers: Partitions, opened: KafkaQueue) -> None:
    brokers.away = {0, 1, 2, 3}
    for _ in range(8):
        with pytest.raises(QueueUnavailableError):
            opened.publish(ACTIONS, [b"x"])
    brokers.away.remove(2)
    assert publish_all(opened, [b"x"]) <= 3


def test_a_partition_is_tried_again_after_a_while(
    brokers: Partitions, opened: KafkaQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.away = {1}
    monkeypatch.setattr(queue, "AWAY_S", 0.0)
    publish_all(opened, [b"x"] * 4)
    brokers.away.clear()
    publish_all(opened, [b"x"] * 4)
    assert {partition for partition, _ in brokers.taken} == {0, 1, 2, 3}


def test_what_waits_for_one_partition_delays_no_call_that_may_choose(brokers: Partitions, opened: KafkaQueue) -> None:
    """A flush waits for all messages of its producer."""
    for _ in range(3):
        opened.publish(ACTIONS, [b"x"])
        opened.publish(ACTIONS, [b"tick"], 1)
    assert brokers.opened == 2


@pytest.mark.parametrize(("topic", "partitions"), [(1, 4), (2, 1)], ids=["the same topic", "an earlier one"])
def test_partitions_that_a_producer_has_heard_of_count_if_they_are_of_the_same_topic(
    topic: int, partitions: int, brokers: Partitions
) -> None:
    """One broker hears of a partition before another. A producer may believe in a topic that was made again."""
    brokers.topic = UUID(int=topic)
    opened = KafkaQueue(ADDRESS, cast(Any, Groups()), {ACTIONS: 1})
    assert opened.partitions(ACTIONS) == 1
    opened.publish(ACTIONS, [b"x"])
    assert opened.partitions(ACTIONS) == partitions
    opened.close()


# Dead letters.


class DeadTopic:
    """The broker of dead letters, and a client that reads them."""

    def __init__(self) -> None:
        self.id = UUID(int=1)
        self._cluster = SimpleNamespace(topic_id=lambda _: self.id)
        self.records: list[SimpleNamespace] = []
        self._at = 0

    def beginning_offsets(self, places: list[TopicPartition], timeout_ms: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def end_offsets(self, places: list[TopicPartition], timeout_ms: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, len(self.records))

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._at = offset

    def position(self, _: TopicPartition, timeout_ms: float) -> int:
        return self._at

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[SimpleNamespace]]:
        found, self._at = self.records[self._at :], len(self.records)
        return {TopicPartition("feed.dead", 0): found}

    def close(self, autocommit: bool) -> None: ...


class Sender:
    """A producer for that topic. fails: whether no message is acknowledged. tries_on: how often it cannot be closed,
    because it still tries a message.
    """

    def __init__(self, topic: DeadTopic, *, fails: bool = False, tries_on: int = 0) -> None:
        self.config = {"api_version": (4, 0)}
        self.closed = False
        self._topic = topic
        self._fails = fails
        self._tries_on = tries_on

    def send(self, _: str, value: bytes | None, key: bytes, headers: list[Any], partition: int) -> "Sender":
        if len(value or b"") + sum(len(text) for _, text in headers) > producers.MAX_RECORD_BYTES:
            raise kafka_errors.MessageSizeTooLargeError
        if not self._fails:
            offset = len(self._topic.records)
            self._topic.records.append(SimpleNamespace(offset=offset, key=key, value=value, headers=headers))
        return self

    def flush(self, timeout: float) -> None: ...

    def get(self, timeout: float) -> None:
        if self._fails:
            raise kafka_errors.NotEnoughReplicasError

    def close(self, timeout: float) -> None:
        if self._tries_on:
            self._tries_on -= 1
            raise kafka_errors.KafkaTimeoutError
        self.closed = True


def letters_of(
    topic: DeadTopic, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> tuple[dead_letters.KafkaDeadLetters, list[object]]:
    """Dead letters whose producers are these, one after the other; and the version that each of them is told. No broker
    deletes what they have dropped.
    """
    versions: list[object] = []
    following = iter(senders)

    def opened(_: KafkaAddress, version: object) -> Sender:
        versions.append(version)
        return next(following)

    def unreachable(_: KafkaAddress) -> Any:
        raise QueueUnavailableError("no broker answers")

    monkeypatch.setattr(producers, "producer", opened)
    monkeypatch.setattr(dead_letters, "connect", unreachable)  # the real one would wait for it for ten seconds
    return dead_letters.KafkaDeadLetters(ADDRESS, cast(Any, topic)), versions


def test_dead_letters_are_buried_again_by_a_new_producer_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = DeadTopic()
    failing, working = Sender(topic, fails=True), Sender(topic)
    letters, versions = letters_of(topic, [failing, working], monkeypatch)
    with pytest.raises(QueueError):
        letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"message")
    assert failing.closed
    letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"message")
    assert versions == [None, (4, 0)], "no broker is asked for it again"
    assert letters.count() == 1
    letters.close()


def test_a_producer_of_dead_letters_that_still_tries_a_message_is_closed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """While too few replicas are in sync, letters can be read, and each attempt to bury one fails."""
    topic = DeadTopic()
    senders = [Sender(topic, fails=True, tries_on=1) for _ in range(3)]
    letters, _ = letters_of(topic, senders, monkeypatch)
    for _ in senders:
        with pytest.raises(QueueUnavailableError):
            letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"message")
    letters.close()
    assert [each.closed for each in senders] == [True, True, True]


def test_a_message_that_no_topic_takes_is_buried_with_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its reader would stop, and meet it again when it is started again."""
    topic = DeadTopic()
    letters, _ = letters_of(topic, [Sender(topic)], monkeypatch)
    value = b"x" * 5_000_000
    for _ in range(2):
        letters.bury(DELIVERIES, "writer-a", "oversized", "too large", 1, value)
    (letter,) = letters.letters(0, 10)
    assert letter.value == value[:MAX_MESSAGE_BYTES]
    assert letter.detail == "too large (of 5000000 bytes the first 1000000 are kept here)"
    letters.close()


def test_a_letter_is_buried_again_in_a_topic_that_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = DeadTopic()
    letters, _ = letters_of(topic, [Sender(topic)], monkeypatch)
    for message in (b"one", b"two"):
        letters.bury(DELIVERIES, "writer-a", "refused", "", 1, message)
    topic.records.clear()
    assert letters.count() == 0
    letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"two")
    assert [letter.value for letter in letters.letters(0, 10)] == [b"two"]
    letters.close()


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (None, []),
        (b"key", [("topic", None), ("died_ms", b"soon")]),
        (None, [("detail", b"\xff"), ("died_ms", b"9" * 14)]),
    ],
)
def test_a_record_that_this_program_did_not_write_is_a_letter_that_can_be_dropped(
    key: bytes | None, headers: list[tuple[str, bytes | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept all letters from being read, and no command removed it."""
    topic = DeadTopic()
    letters, _ = letters_of(topic, [Sender(topic)], monkeypatch)
    letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"message")
    for offset in (1, 2):
        own = key and key + b"%d" % offset
        topic.records.append(SimpleNamespace(offset=offset, key=own, value=b"x", headers=headers, timestamp=5))
    letters.bury(DELIVERIES, "writer-a", "refused", "", 1, b"another message")
    first, one, other, last = letters.letters(0, 10)
    assert letters.letter(2) == one
    assert (one.topic, one.group, one.reason, one.died_ms, one.value) == ("unknown", "unknown", "foreign", 5, b"x")
    said: list[str] = []
    assert redeliver(cast(Any, None), TOPICS, letters, [one], lambda _, why: said.append(why)) == 0
    assert said == ["unknown_topic: this program knows no topic unknown in this home"]
    assert letters.drop(one.id)
    elsewhere, _ = letters_of(topic, [], monkeypatch)
    for each in (letters, elsewhere):
        assert each.letters(0, 10) == [first, other, last]
        each.close()


class Forgetful:
    """A client of kafka-python whose broker has just started, and does not know the topic for a moment."""

    def __init__(self, unauthorized: Iterable[str] = ()) -> None:
        self.ids = [UUID(int=1), UUID(int=0), UUID(int=1)]
        self.place = TopicPartition(DELIVERIES.name, 0)
        self.polled = [{self.place: [SimpleNamespace(offset=5, value=b"x")]}]
        self._cluster = SimpleNamespace(
            topic_id=lambda _: self.ids.pop(0) if len(self.ids) > 1 else self.ids[0],
            unauthorized_topics={*unauthorized},
        )

    def poll(self, **_: object) -> dict[TopicPartition, list[Any]]:
        return self.polled.pop() if self.polled else {}

    def end_offsets(self, places: list[TopicPartition], **_: object) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 5)

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def assignment(self) -> set[TopicPartition]:
        return {self.place}

    def paused(self) -> set[TopicPartition]:
        return set()

    def assign(self, places: object) -> None: ...

    def seek(self, place: object, offset: int) -> None: ...


def tail_of(client: Forgetful, monkeypatch: pytest.MonkeyPatch) -> KafkaTail:
    monkeypatch.setattr(reading, "client", lambda *_, **__: client)
    return KafkaTail(ADDRESS, DELIVERIES.name, 1, lambda: False)


def test_what_was_fetched_while_a_broker_did_not_know_the_topic_is_polled_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tail = tail_of(Forgetful(), monkeypatch)
    with pytest.raises(QueueUnavailableError, match=r"know no topic feed\.deliveries now.*topics apply"):
        tail.poll(10, 0)
    assert [message.offset for message in tail.poll(10, 0)] == [5]


def test_a_right_that_was_taken_away_is_not_told_as_the_loss_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = tail_of(Forgetful([DELIVERIES.name]), monkeypatch)
    with pytest.raises(QueueUnavailableError, match=r"may not see topic feed\.deliveries: .* Describe and Read$"):
        tail.poll(10, 0)


class Truncated(Forgetful):
    """One whose broker has lost the end of the log. It says so once, and answers nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = [UUID(int=1)]
        self.said = False

    def poll(self, **_: object) -> dict[TopicPartition, list[Any]]:
        if not self.said:
            self.said = True
            raise kafka_errors.LogTruncationError({self.place: OffsetAndMetadata(3)})
        return super().poll()

    def position(self, place: TopicPartition, **_: object) -> int:
        return 5

    def beginning_offsets(self, places: list[TopicPartition], **_: object) -> dict[TopicPartition, int]:
        raise kafka_errors.KafkaTimeoutError


def test_the_loss_of_what_was_read_is_said_again_although_the_client_says_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a broker was asked for more, and did not answer, the reader read the next messages as if nothing were lost."""
    tail = tail_of(Truncated(), monkeypatch)
    for _ in range(2):
        with pytest.raises(
            PositionLostError, match=r"feed\.deliveries/0: a tail has read past offset 3.* brokers lost"
        ):
            tail.poll(10, 0)
