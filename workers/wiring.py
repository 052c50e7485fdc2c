"""Turns the configuration into ports and ports into a worker: the one place in this package that knows the adapters."""

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from feedstore.feeds import Limits, Progress, Replica
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError, OutdatedStoreError
from feedstore.serving import wiring as feedstore_wiring
from feedstore.serving.clusters import replica
from feedstore.serving.config import Config, ConfigError
from feedstore.serving.wiring import wall_ms
from feedstore.widecolumn import Access, UnavailableError, UnsafeTableError
from workers.applied import Applied, FromItsCluster
from workers.groups import cluster_groups, lost_message, retry_group, writer_group
from workers.handlers import Expander, Parking, Writer
from workers.handlers.expander import AS_THEY_COME, AT_ONCE, MAX_BATCH, MAX_WAITING, sender_of
from workers.handlers.slots import DeliverySlots, ParkedSlots
from workers.handlers.task_slots import TaskSlots
from workers.housekeeping import Housekeeper, LettersKept, Sweeper
from workers.messages import Delivery, Hold, Parked, Tick, decode_action, decode_delivery, decode_parked
from workers.queue.embedded import EmbeddedQueue, NoQueueError, open_dead_letters
from workers.queue.port import (
    ACTIONS,
    DELIVERIES,
    RETRIES,
    TOPICS,
    DeadLetters,
    Queue,
    QueueError,
    QueueUnavailableError,
    Topic,
)
from workers.relay import Relay, Ticker
from workers.retry import Rest, RetryPolicy
from workers.runtime import Loop, Worker
from workers.stage import Stage
from workers.turns import Turns

if TYPE_CHECKING:
    from workers.queue.kafka import Address
    from workers.queue.kafka.topics import Definition

REBUILDING_MS = 1
"""The watermark of a cluster that is being rebuilt from nothing: nothing is known to have landed."""

RELAY = "relay"
"""What waits for the relays, in what says how much is left to do."""
TICKER = "ticker"
"""The name of the loop that sends ticks."""
EXPANDER = "expander"

Body = TypeVar("Body")


@dataclass(frozen=True)
class Ports:
    """Everything that a worker works on. Tests wrap these to make them fail."""

    follows: FollowStore
    queue: Queue
    dead: DeadLetters
    replicas: dict[str, Replica]
    opened: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Closes what was opened for them."""
        self.opened.close()


def open_ports(
    config: Config, access: Access, clock: Callable[[], int] = wall_ms, *, feeds: bool = True, alone: bool = False
) -> Ports:
    """Opens the adapters of a home. access: `owner` for the one worker that writes the clusters, `beside` for anybody
    else. feeds: whether feeds are read or written, or only how far each cluster is. alone: whether every loop of the
    home runs in this process, as of `EmbeddedQueue.open`.

    Raises:
        ConfigError, FollowStoreUnavailableError, QueueUnavailableError: clusters are opened later, when they are used.
    """
    with ExitStack() as stack:
        follows = feedstore_wiring.open_follows(config, clock)
        stack.callback(follows.close)
        queue, dead = _open_queue(config, clock, stack, alone=alone)
        replicas = {}
        for cluster in config.clusters:
            opened = feedstore_wiring.open_cluster(config, cluster.name, access, feeds=feeds)
            stack.callback(opened.close)
            replicas[cluster.name] = replica(cluster.name, opened)
        return Ports(follows, queue, dead, replicas, stack.pop_all())


def create(config: Config) -> None:
    """Makes every store of a home; what is there stays as it is.

    Raises:
        ConfigError, FollowStoreUnavailableError, QueueError, UnavailableError: done in part; do it again.
    """
    feedstore_wiring.create_follows(config)
    create_queue(config)
    for cluster in config.clusters:
        feedstore_wiring.create_cluster(config, cluster.name)


def create_queue(config: Config, first_offset: int = 0) -> None:
    """Makes the queue with its groups; one that is there stays as it is. first_offset: of a queue in a file that takes
    the place of another one. Raises QueueError, ConfigError.
    """
    _create_topics(config, first_offset)
    with ExitStack() as stack:
        queue, _ = _open_queue(config, wall_ms, stack)
        # From now on, what retention takes before a group has read it is noticed.
        queue.consumer(ACTIONS, EXPANDER).close()
        for cluster in config.clusters:
            for topic, group in cluster_groups(cluster.name):
                queue.consumer(topic, group).close()


def is_embedded(config: Config) -> bool:
    """Whether one worker holds the home, because its queue or one of its clusters is a file of it."""
    return config.queue.startswith("embedded:") or any(each.in_files for each in config.clusters)


def _open_queue(
    config: Config, clock: Callable[[], int], stack: ExitStack, *, alone: bool = False
) -> tuple[Queue, DeadLetters]:
    """Opens what `stack` closes."""
    queue: Queue
    dead: DeadLetters
    if config.queue.startswith("kafka:"):
        address = kafka_address(config)  # first: it says what to install
        from workers.queue.kafka import KafkaDeadLetters, KafkaQueue  # noqa: PLC0415 - its library is an extra

        queue = stack.enter_context(closing(KafkaQueue.open(address)))
        dead = stack.enter_context(closing(KafkaDeadLetters.open(address)))
    else:
        path = config.path(config.queue, "embedded")
        try:
            queue = stack.enter_context(closing(EmbeddedQueue.open(path, clock, alone=alone)))
        except NoQueueError as error:
            raise NoQueueError(lost_queue(error)) from error
        dead = stack.enter_context(closing(open_dead_letters(path)))
    return queue, dead


def _create_topics(config: Config, first_offset: int) -> None:
    if config.queue.startswith("kafka:"):
        address = kafka_address(config)  # first: it says what to install
        from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

        # What the brokers themselves should be set to otherwise stops nobody: feedctl topics check names it.
        if left := [each for each in topics.apply(address, topic_definitions(config)) if not each.is_broker]:
            raise QueueError("; ".join(map(str, left)))
        return
    path = config.path(config.queue, "embedded")
    EmbeddedQueue.create(path, dict.fromkeys(TOPICS, config.partitions), first_offset)
    open_dead_letters(path).close()


def lost_queue(error: NoQueueError) -> str:
    """What is said of a home without its queue."""
    return f"{error}: the queue is lost; make a new one from the follow store with: feedctl reindex"


def outdated(error: OutdatedStoreError) -> str:
    """What is said of a home whose follow store is of an earlier program."""
    return f"{error}: feedctl migrate (on servers: feedctl schema apply)"


def kafka_address(config: Config) -> "Address":
    """Where the queue's brokers are. Raises ConfigError."""
    try:
        from workers.queue.kafka import parse  # noqa: PLC0415 - its library is an extra
    except ImportError as error:
        raise ConfigError(f"the queue is Kafka: install feedstore[kafka]: {error}") from error
    try:
        return parse(config.queue, os.environ)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{config.sources.blamed('queue.url')}: queue.url: {error}") from error


def topic_definitions(config: Config) -> "list[Definition]":
    """What the topics of the queue must be, where it is Kafka. Raises ConfigError."""
    address = kafka_address(config)
    from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

    return topics.definitions(
        address,
        partitions=config.partitions,
        replication=config.replication,
        action_age_ms=config.limits.action_age_ms,
    )


def refuse_unsafe(ports: Ports, config: Config, clusters: Iterable[str] = ()) -> None:
    """Refuses a queue whose topics could lose what they acknowledged. Then opens clusters that are to be written, and
    refuses those whose tables would break the rules. One that is away is fine: its writer waits, and looks again (rule
    12). A follow store refuses by itself what could lose actions.

    Raises:
        UnsafeTopicsError, UnsafeTableError: the message names each setting.
        QueueUnavailableError: no broker answers, as when the queue was opened.
        ConfigError
    """
    if config.queue.startswith("kafka:"):
        address = kafka_address(config)  # first: it says what to install
        from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

        topics.refuse_unsafe(address, topic_definitions(config))
    for name in clusters:
        try:
            Progress(ports.replicas[name].progress).watermark()
        except UnsafeTableError:
            raise
        except UnavailableError:
            continue


def worker(ports: Ports, config: Config, writers: Sequence[str] | None = None) -> Worker:
    """A worker that runs everything in this process: relay, expander, housekeeping, and what writes each cluster.
    writers: only these clusters are written.
    """
    names = list(ports.replicas if writers is None else writers)
    each = [loop for name in names for loop in writing(ports, config, name)]
    return Worker([*relays(ports, config), expander(ports, config), *each, housekeeper(ports, config)])


def worker_around(ports: Ports, config: Config, writer_apart: Callable[[str], Loop]) -> Worker:
    """A worker that runs everything but what writes the clusters, which is elsewhere. writer_apart: starts that of a
    cluster.
    """
    apart = [writer_apart(name) for name in ports.replicas]
    return Worker([*relays(ports, config), expander(ports, config), *apart, housekeeper(ports, config)])


def relays(ports: Ports, config: Config) -> list[Loop]:
    """A relay for each shard of the follow store, and what sends the ticks."""
    every = [Relay(ports.follows, shard, ports.queue, time.monotonic) for shard in range(ports.follows.shards())]
    return [*every, ticker(ports, config)]


def ticker(ports: Ports, config: Config) -> Ticker:
    return Ticker(ports.follows, ports.queue, time.monotonic, config.tick_ms / 1_000)


def expander(ports: Ports, config: Config) -> Loop:
    handler = Expander(ports.follows, ports.queue, config.limits)
    return _stage(ports, config, EXPANDER, ACTIONS, decode_action)(
        handle=handler.expand,
        ticks=lambda ticks: handler.tick([tick for _, tick in ticks]),
        batch=MAX_BATCH,
        in_flight=MAX_WAITING,
        turns=Turns(sender_of, AS_THEY_COME, AT_ONCE),
        slots=TaskSlots(ports.follows),
        lost="actions were lost before they were expanded: rebuild every cluster",
    )


def writing(ports: Ports, config: Config, cluster: str) -> list[Loop]:
    """What writes a cluster, in one process: its writer, what lands its retries, its sweeper."""
    return [loop(ports, config, cluster) for loop in (writer, retries, sweeper)]


def writer(ports: Ports, config: Config, cluster: str) -> Loop:
    def stage(applied: Applied) -> Stage[Delivery | Hold]:
        # Made with the stage: what it remembers of its cluster holds until the cluster goes back.
        handler = _writer(ports, config.limits, cluster)
        made: partial[Stage[Delivery | Hold]] = _stage(
            ports, config, writer_group(cluster), DELIVERIES, decode_delivery
        )
        return made(
            handle=handler.write,
            ticks=handler.tick,
            lost=lost_message(cluster),
            slots=DeliverySlots(cluster, handler.late_before_ms),
            park=_parking(ports, handler, cluster).park,
            note=applied.note,
        )

    return _from_its_cluster(ports, cluster, DELIVERIES, writer_group(cluster), stage)


def retries(ports: Ports, config: Config, cluster: str) -> Loop:
    def stage(applied: Applied) -> Stage[Parked]:
        handler = _writer(ports, config.limits, cluster)
        parking = _parking(ports, handler, cluster)
        return _stage(ports, config, retry_group(cluster), RETRIES, decode_parked)(
            handle=parking.land,
            ticks=_no_ticks,
            lost=lost_message(cluster),
            slots=ParkedSlots(cluster, handler.late_before_ms),
            # What is for another cluster waits for nothing.
            due_ms=lambda parked: parked.due_ms if parked.cluster == cluster else 0,
            given_up=parking.give_up,
            note=applied.note,
        )

    return _from_its_cluster(ports, cluster, RETRIES, retry_group(cluster), stage)


def _from_its_cluster(
    ports: Ports, cluster: str, topic: Topic, group: str, stage: Callable[[Applied], Stage[Body]]
) -> Loop:
    applied = Applied(ports.replicas[cluster], ports.queue, topic, group, time.monotonic)
    rest = Rest(RetryPolicy(), random.Random(), time.monotonic)  # noqa: S311 - jitter needs no secrecy
    return FromItsCluster(group, applied.begin, lambda: stage(applied), rest)


def _stage(
    ports: Ports, config: Config, group: str, topic: Topic, decode: Callable[[bytes], Body | Tick]
) -> "partial[Stage[Body]]":
    """What every stage is made of; the caller says what it does."""
    return partial(
        Stage[Body],
        group,
        topic,
        ports.queue.consumer(topic, group),
        decode,
        ports.dead,
        policy=RetryPolicy(dead_in_a_row=config.dead_letters_in_a_row),
        rng=random.Random(),  # noqa: S311 - jitter needs no secrecy
        clock=time.monotonic,
        wall_ms=wall_ms,
    )


def _no_ticks(ticks: Sequence[tuple[int, Tick]]) -> None:
    raise AssertionError(f"{RETRIES} carries no ticks: {ticks}")


def housekeeper(ports: Ports, config: Config) -> Housekeeper:
    readers: dict[Topic, list[str]] = {ACTIONS: [EXPANDER], DELIVERIES: [], RETRIES: []}
    for cluster in ports.replicas:
        for topic, group in cluster_groups(cluster):
            readers[topic].append(group)
    every_s = config.housekeeping_ms / 1_000
    kept = LettersKept(config.dead_letter_age_ms, config.dead_letters)
    return Housekeeper(
        ports.follows, ports.queue, ports.dead, config.limits, kept, time.monotonic, every_s, readers, wall_ms
    )


def sweeper(ports: Ports, config: Config, cluster: str) -> Sweeper:
    replica = ports.replicas[cluster]
    return Sweeper(replica, ports.follows, config.limits, time.monotonic, config.housekeeping_ms / 1_000)


def _writer(ports: Ports, limits: Limits, cluster: str) -> Writer:
    replica = ports.replicas[cluster]
    return Writer(cluster, replica.feeds, Progress(replica.progress), ports.follows, ports.queue, limits)


def _parking(ports: Ports, writer: Writer, cluster: str) -> Parking:
    progress = Progress(ports.replicas[cluster].progress)
    return Parking(cluster, writer, progress, ports.follows, ports.queue, retry_group(cluster))


def lags(ports: Ports) -> dict[str, int]:
    """How much is left to do, by who has to do it: outbox rows for the relay, messages for the groups."""
    found = {
        RELAY: ports.follows.backlog(),
        EXPANDER: ports.queue.lag(ACTIONS, EXPANDER),
    }
    groups = [each for name in ports.replicas for each in cluster_groups(name)]
    return found | {group: ports.queue.lag(topic, group) for topic, group in groups}


def idle(ports: Ports, clusters: Iterable[str] | None = None) -> bool:
    """Whether nothing is on its way: no outbox row to relay, and no group with anything left to do. clusters: only
    these writers count.

    What a later stage sends back to an earlier one (a refill) is on its way before the later stage commits, so that
    looking at all of them twice, in their order, misses nothing.
    """
    names = list(ports.replicas if clusters is None else clusters)
    return all(_quiet(ports, names) for _ in range(2))


def _quiet(ports: Ports, clusters: Sequence[str]) -> bool:
    return not ports.follows.unrelayed(1) and drained(ports, clusters)


def drained(ports: Ports, clusters: Iterable[str]) -> bool:
    """Whether no group has anything left to do, whatever waits for the relay. clusters: only these writers count."""
    if ports.queue.lag(ACTIONS, EXPANDER):
        return False
    return not any(ports.queue.lag(topic, group) for name in clusters for topic, group in cluster_groups(name))


class UntilIdle:
    """Says when everything that was recorded has landed, and the watermarks say so too: a last tick is sent after it.

    clusters: asked for the names of those that are waited for; a cluster whose writer has ended is none of them.
    yes: what it said last.
    """

    def __init__(self, ports: Ports, config: Config, clusters: Callable[[], Iterable[str]]) -> None:
        self._ports = ports
        self._ticker = ticker(ports, config)
        self._clusters = clusters
        self._settled_ms: int | None = None
        self.yes = False

    def __call__(self) -> bool:
        try:
            self.yes = self._landed()
        except (FollowStoreUnavailableError, QueueUnavailableError, UnavailableError):
            self.yes = False  # the loops say what is unavailable, and go on trying
        return self.yes

    def _landed(self) -> bool:
        if self._settled_ms is None:
            if idle(self._ports, self._clusters()):
                self._settled_ms = self._ticker.tick()
            return False
        return all(self._passed(name, self._settled_ms) for name in self._clusters())

    def _passed(self, cluster: str, settled_ms: int) -> bool:
        mark = Progress(self._ports.replicas[cluster].progress).watermark()
        return mark is not None and mark >= settled_ms
