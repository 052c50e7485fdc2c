"""The topics of a Kafka queue: `apply` makes them, and `differences` compares them with their definition.

Nothing here deletes anything, and partitions are never taken away. Retention must satisfy rule 8: a message that a
group has not read in time must still exist when its age is counted, so the topics keep messages longer than
`action_age`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import kafka
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, NoError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.dead_letters import DEAD
from workers.queue.kafka.errors import describe, translated
from workers.queue.kafka.producers import MAX_RECORD_BYTES
from workers.queue.kafka.queue import connect
from workers.queue.port import MAX_MESSAGE_BYTES, QueueUnavailableError, Topic, UnsafeTopicsError

RETENTION_FACTOR: Final = 2
"""The topics keep messages this many times as long as an action may be under way: time to bring back what is down."""

OFFSETS_RETENTION_MIN: Final = 90 * 24 * 60
"""Brokers should remember the positions of a group whose members are all gone for at least this long. A forgotten group
counts as new: it starts at the earliest message, whatever it has missed (rule 8).
"""

IN_SYNC_MIN: Final = 2
"""If a topic has several replicas, this many brokers must have a message before it is acknowledged. With 1, a message
could be acknowledged that only the leader has, and be lost with the leader's disk. A single broker can promise no more.
"""

_BY_HAND: Final[Mapping[str, str]] = {
    "partitions": "Kafka cannot remove partitions: set queue.partitions in feed.toml to {found}",
    "replication": "give each partition of the topic more copies (kafka-reassign-partitions.sh), or set"
    " queue.replication in feed.toml to {found}",
    "offsets.retention.minutes": "set it in the configuration of the brokers; ask again once all of them answer",
}
"""What corrects a difference that `apply` does not."""

_BY_APPLY: Final = "feedctl topics apply mends it"
_AFTER_APPLY: Final[Mapping[str, str]] = {
    "compression.type": "; to read the messages that are there already, install the Python package of their codec (lz4,"
    " python-snappy or zstandard) wherever this program reads them"
}
"""What is left to do once `apply` has corrected a difference."""

_READ_CODECS: Final = frozenset({"gzip", "uncompressed"})
"""The compressions that every reader can read, without a package for them."""

_RECORD_OVERHEAD_BYTES = 48_576
_FOREVER = -1
_BROKER: Final = "broker "
"""The beginning of a broker's name in a difference; no topic's name has a space."""


@dataclass(frozen=True)
class TopicDefinition:
    """A topic as it must be. config: settings by Kafka's names. retention_ms_min: the least time that messages are
    kept; -1: for ever.
    """

    name: str
    partitions: int
    replication: int
    retention_ms_min: int
    config: Mapping[str, str]


class TopicDifference(NamedTuple):
    """How a topic differs from its definition. what: `missing`, `partitions`, `replication` or a setting's name.
    fixable: whether `apply` mends it; if not, the operator of the brokers must. is_unsafe: whether acknowledged
        messages could be lost, or be gone before a group has read them, or come in a form that no reader can read.
    """

    topic: str
    what: str
    expected: str
    found: str
    fixable: bool
    is_unsafe: bool = False

    @property
    def is_broker(self) -> bool:
        """Whether it is a setting of a broker, not of a topic."""
        return self.topic.startswith(_BROKER)

    @property
    def mend(self) -> str:
        """What corrects it, in words that may end a sentence."""
        if self.fixable:
            return _BY_APPLY + _AFTER_APPLY.get(self.what, "")
        return _BY_HAND[self.what].format(found=self.found)

    def __str__(self) -> str:
        unsafe = " (unsafe)" if self.is_unsafe else ""
        return f"{self.topic}: {self.what}: expected {self.expected}, found {self.found}{unsafe}"


def definitions(
    address: KafkaAddress, topics: Iterable[Topic[object]], *, partitions: int, replication: int, action_age_ms: int
) -> list[TopicDefinition]:
    """The topics as they must be. Raises ValueError if a number is below 1."""
    for name, value in (("partitions", partitions), ("replication", replication), ("action_age_ms", action_age_ms)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    common = {
        "cleanup.policy": "delete",
        # Otherwise brokers compress what they take, by codecs that readers may not have.
        "compression.type": "producer",
        # Retention counts by the brokers' clock: no other machine's can shorten it.
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(1 if replication == 1 else max(IN_SYNC_MIN, replication - 1)),
        "unclean.leader.election.enable": "false",
    }
    retention_ms = RETENTION_FACTOR * action_age_ms
    queue = common | {
        "max.message.bytes": str(MAX_MESSAGE_BYTES + _RECORD_OVERHEAD_BYTES),
        "retention.ms": str(retention_ms),
        "retention.bytes": "-1",
    }
    dead = common | {
        "max.message.bytes": str(MAX_RECORD_BYTES),
        "retention.ms": str(_FOREVER),
        "retention.bytes": "-1",
    }
    return [
        *(
            TopicDefinition(address.named(topic.name), partitions, replication, action_age_ms + 1, queue)
            for topic in topics
        ),
        TopicDefinition(address.named(DEAD), 1, replication, _FOREVER, dead),
    ]


def differences(address: KafkaAddress, wanted: list[TopicDefinition]) -> list[TopicDifference]:
    """Every way in which topics and brokers differ from what they must be; empty if workers may start.

    A retention counts as a difference only if rule 8 forbids it: a longer one does not. Raises QueueUnavailableError.
    """
    with closing(connect(address)) as admin, translated(str(address)):
        return [*_topic_differences(admin, wanted), *_broker_differences(admin)]


def refuse_unsafe(address: KafkaAddress, wanted: list[TopicDefinition]) -> None:
    """Raises UnsafeTopicsError, which names each unsafe setting, if these topics have any; QueueUnavailableError."""
    with closing(connect(address)) as admin, translated(str(address)):
        unsafe = [each for each in _topic_differences(admin, wanted) if each.is_unsafe]
    if unsafe:
        raise UnsafeTopicsError(named(unsafe))


def named(differences: Collection[TopicDifference]) -> str:
    """A sentence that names differences, and then what corrects them: last, what a command does."""
    mends = dict.fromkeys(each.mend for each in sorted(differences, key=lambda each: each.fixable))
    return "; ".join([*map(str, differences), *mends])


def apply(
    address: KafkaAddress,
    wanted: list[TopicDefinition],
    on_corrected: Callable[[TopicDifference], None] = lambda _: None,
) -> list[TopicDifference]:
    """Makes missing topics, adds partitions, changes settings; returns the differences that only an operator can mend.

    Raises QueueUnavailableError: later; some may have been done. Doing it again is fine.
    """
    with closing(connect(address)) as admin, translated(str(address)):
        found = _topic_differences(admin, wanted)
        missing = {difference.topic for difference in found if difference.what == "missing"}
        for topic in wanted:
            of_topic = [difference for difference in found if difference.topic == topic.name and difference.fixable]
            if topic.name in missing:
                _create(admin, topic)
            else:
                _change(admin, topic, of_topic)
            for each in of_topic:
                on_corrected(each)
    # Fixable ones are left out: a broker may hear of a change a moment later.
    return [each for each in differences(address, wanted) if not each.fixable]


def _create(admin: kafka.KafkaAdminClient, topic: TopicDefinition) -> None:
    try:
        admin.create_topics(
            {
                topic.name: {
                    "num_partitions": topic.partitions,
                    "replication_factor": topic.replication,
                    "configs": dict(topic.config),
                }
            },
            wait_for_metadata=True,
        )
    except TopicAlreadyExistsError:
        return  # another process made it just now


def _change(admin: kafka.KafkaAdminClient, topic: TopicDefinition, found: list[TopicDifference]) -> None:
    fixable = {difference.what for difference in found}
    if "partitions" in fixable:
        admin.create_partitions({topic.name: topic.partitions})
    settings = {name: topic.config[name] for name in fixable if name in topic.config}
    if settings:
        wanted = [ConfigResource(ConfigResourceType.TOPIC, topic.name, settings)]
        # A broker itself refuses what it does not know, in an answer like any other.
        answer = admin.alter_configs(wanted, raise_on_unknown=False)["topic"][topic.name]
        if answer != "OK":  # the client does not raise it
            raise QueueUnavailableError(f"{topic.name}: {', '.join(sorted(settings))}: not changed: {answer}")


def _topic_differences(admin: kafka.KafkaAdminClient, wanted: list[TopicDefinition]) -> list[TopicDifference]:
    found = {topic["name"]: topic for topic in admin.describe_topics([topic.name for topic in wanted])}
    there = [topic for topic in wanted if _is_there(found[topic.name])]
    settings = _settings(admin, ConfigResourceType.TOPIC, [topic.name for topic in there])
    differences = [
        TopicDifference(topic.name, "missing", "a topic", "none", True) for topic in wanted if topic not in there
    ]
    for topic in there:
        if not settings[topic.name]:  # so brokers answer a user without that right
            raise QueueUnavailableError(
                f"no settings of topic {topic.name}, which every topic has: give this user the right DescribeConfigs"
            )
        differences += _compare(topic, found[topic.name]["partitions"], settings[topic.name])
    return differences


def _is_there(topic: Mapping[str, Any]) -> bool:
    error = for_code(topic["error_code"])
    if error is UnknownTopicOrPartitionError:
        return False
    if error is not NoError:
        raise error(topic["name"])
    return True


def _compare(
    topic: TopicDefinition, partitions: list[Mapping[str, Any]], found: Mapping[str, str]
) -> Iterator[TopicDifference]:
    if len(partitions) != topic.partitions:
        # Partitions cannot be taken away: if there are more, the definition must change.
        fixable = len(partitions) < topic.partitions
        yield TopicDifference(topic.name, "partitions", str(topic.partitions), str(len(partitions)), fixable)
    replication = min(len(partition["replica_nodes"]) for partition in partitions)
    if replication < topic.replication:
        yield TopicDifference(
            topic.name, "replication", str(topic.replication), str(replication), False, is_unsafe=True
        )
    for name, expected in topic.config.items():
        value = found.get(name, "")
        if name == "retention.ms" and value and _keeps_long_enough(int(value), topic.retention_ms_min):
            continue
        if value != expected:
            is_unsafe = not _is_safe(name, value, topic)
            yield TopicDifference(topic.name, name, expected, value or "nothing", True, is_unsafe)


def _is_safe(name: str, value: str, topic: TopicDefinition) -> bool:
    """Whether a setting is safe although it differs from the definition."""
    match name:
        case "max.message.bytes":
            return True  # what is too large is refused before it is acknowledged
        case "compression.type":
            return value in _READ_CODECS
        case "min.insync.replicas":
            return value.isdecimal() and int(value) >= min(IN_SYNC_MIN, topic.replication)
        case _:
            return False


def _keeps_long_enough(retention_ms: int, least_ms: int) -> bool:
    return retention_ms == _FOREVER or (least_ms != _FOREVER and retention_ms >= least_ms)


def _broker_differences(admin: kafka.KafkaAdminClient) -> Iterator[TopicDifference]:
    """Settings of the brokers themselves, which no client may change. Each broker is asked for its own: one that is
    away must not hide what the others say.
    """
    name = "offsets.retention.minutes"
    for broker in admin.describe_cluster()["brokers"]:
        number = str(broker["broker_id"])
        try:
            found = _settings(admin, ConfigResourceType.BROKER, [number])[number]
        except KafkaError as error:
            found = {name: f"nothing: it does not answer ({describe(error)})"}
        value = found.get(name, str(OFFSETS_RETENTION_MIN))
        if not value.isdecimal() or int(value) < OFFSETS_RETENTION_MIN:
            yield TopicDifference(f"{_BROKER}{number}", name, f"at least {OFFSETS_RETENTION_MIN}", value, False)


def _settings(admin: kafka.KafkaAdminClient, kind: ConfigResourceType, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    described = admin.describe_configs([ConfigResource(kind, name) for name in names], config_filter="all")
    found = described.get(kind.name.lower(), {})
    if set(found) < set(names):
        raise QueueUnavailableError(f"no settings of {kind.name.lower()} {', '.join(set(names) - set(found))}")
    return {
        name: {key: setting["value"] for key, setting in found[name].items() if setting["value"] is not None}
        for name in names
    }
