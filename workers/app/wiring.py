"""Turns the configuration into ports, and ports into a worker: the only place here that knows the adapters."""

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, assert_never

import structlog

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.places import replica
from feedstore.background import on_a_thread
from feedstore.boards import Boards
from feedstore.catalog.settings import posted
from feedstore.errors import ConfigError, NotNowError, needing_extra
from feedstore.following import FEEDS, Limits
from feedstore.lazy import Closable, later
from feedstore.metering import Counting
from feedstore.replicas.replicas import Replica
from feedstore.tracing import UNTRACED, Tracer
from feedstore.widecolumn import Access, Sweep, UnavailableError, UnsafeTableError
from feedstore.widecolumn.metered import Metered
from feedstore.widecolumn.progress import Progress
from workers.app.gauges import LOOK_EVERY_S, ClusterGauges, QueueGauges
from workers.boards import Respacing
from workers.following import Expander, Parking, Writer, landed, lost_actions, metrics
from workers.following.applied import Applied, OlderClusterError, begin_group, begin_groups
from workers.following.canary import CanaryFlights, CanaryWatch
from workers.following.expander import AS_THEY_COME, AT_ONCE, MAX_BATCH, MAX_WAITING, sender_of
from workers.following.groups import EXPANDER, cluster_groups, lost_message, retry_group, writer_group
from workers.following.housekeeping import Housekeeper, LettersKept, sweep
from workers.following.messages import (
    Delivery,
    Hold,
    Parked,
    RangeTask,
    Task,
    encode_action,
    encode_parked,
    wrap_actions,
)
from workers.following.packs import Pack, encode_body
from workers.following.ports import Ports
from workers.following.slots import DeliverySlots, ParkedSlots, TaskSlots
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES, TOPICS
from workers.following.traces import of_deliveries, of_parked, of_tasks
from workers.following.window import FanoutWindow
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.runtime import Every, Loop, Worker
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Begun, Stage
from workers.pipeline.ticks import Tick
from workers.pipeline.traced import in_lots
from workers.pipeline.turns import Turns
from workers.queue.embedded import EmbeddedDeadLetters, EmbeddedQueue, open_dead_letters
from workers.queue.metered import MeteredQueue
from workers.queue.port import DeadLetters, GroupBusyError, Queue, QueueError, QueueUnavailableError, Topic, refuse_live
from workers.queue.traced import TracedDeadLetters, processing, sending

if TYPE_CHECKING:
    from workers.queue.kafka import KafkaAddress, KafkaDeadLetters
    from workers.queue.kafka.topics import TopicDefinition

_log = structlog.get_logger()

Body = TypeVar("Body")
Opened = TypeVar("Opened", bound=Closable)


def open_ports(
    config: Config,
    access: Access,
    clock: Callable[[], int] | None = None,
    *,
    clusters: Collection[str] | None = None,
    feeds: bool = True,
    alone: bool = False,
    may_be_away: bool = False,
    tracer: Tracer = UNTRACED,
) -> Ports:
    """Opens the adapters of a home. access: `write` for the one worker that writes the clusters, `read` for everything
    else. clock: None: the home's (`clock_of`). clusters: only these, as if there were no others; None: all. feeds:
    whether feeds are read or written, or only the notes about each cluster. alone: whether every loop of the home runs
    in this process, so that the queue need not look for what others publish. may_be_away: whether the servers of the
    follow store and of the queue are opened when they are used, as clusters always are; files must be there in any
    case. tracer: the caller closes it, after the ports.

    Raises ConfigError, FollowStoreUnavailableError, QueueUnavailableError. No error of a cluster: these are opened when
    they are used.
    """
    clock = clock or feedstore_wiring.clock_of(config)
    with ExitStack() as stack:
        meter = Counting(time.monotonic)

        def opened(opener: Callable[[], Opened], *, in_files: bool) -> Opened:
            found = later(opener, lambda: NotNowError("closed")) if may_be_away and not in_files else opener()
            stack.callback(found.close)
            return found

        follows = opened(
            lambda: feedstore_wiring.open_follows(config, clock, may_be_away=may_be_away, meter=meter, tracer=tracer),
            in_files=bool(config.shard_files),
        )
        queue_in_files = config.queue_file is not None
        opened_queue = opened(lambda: open_queue(config, clock, alone=alone), in_files=queue_in_files)
        queue = MeteredQueue(opened_queue, topics_of(config), meter, time.monotonic)
        dead: DeadLetters = opened(lambda: _open_dead_letters(config), in_files=queue_in_files)
        if tracer is not UNTRACED:
            dead = TracedDeadLetters(dead, tracer)
        replicas = {}
        for name in [each.name for each in config.clusters] if clusters is None else clusters:
            lazily = feedstore_wiring.open_cluster(config, name, access, feeds=feeds)
            stack.callback(lazily.close)
            replicas[name] = replica(name, lazily)
        entering = {name: _catalog_groups(config.catalogs, name) for name in replicas}
        gone = partial(_is_gone, config)
        return Ports(follows, queue, dead, replicas, clock, stack.pop_all(), entering, meter, tracer, is_gone=gone)


def _is_gone(config: Config, cluster: str) -> bool:
    try:
        return not place(config, cluster).exists()
    except UnavailableError:
        return False


def create(config: Config) -> None:
    """Makes every store of a home; existing ones stay as they are, except that a follow store of an earlier version is
    migrated. The caller holds the home.

    Raises:
        GroupBusyError: the follow store would be migrated, and `refuse_running` refuses that.
        ConfigError, FollowStoreUnavailableError, QueueError, UnavailableError: a part is done; do it again.
    """
    if not is_embedded(config) and feedstore_wiring.outdated_follows(config):
        _create_topics(config, 0)  # the groups are asked for in them, and not all of them need be there
        refuse_running(config)
    feedstore_wiring.create_follows(config)
    feedstore_wiring.clock_of(config)()  # from now on every process of the home is compared with this one
    create_queue(config)
    for cluster in config.clusters:
        feedstore_wiring.create_cluster(config, cluster.name)


def create_queue(config: Config, first_offset: int = 0) -> None:
    """Makes the queue with its groups; an existing one stays as it is. first_offset: the offset of the first messages,
    if a queue in a file replaces another one. Raises QueueError, ConfigError.
    """
    _create_topics(config, first_offset)
    with closing(open_queue(config, feedstore_wiring.clock_of(config))) as queue:
        # From now on each group notices if retention drops messages before it has read them.
        for topic, group in _groups(config):
            begin_group(queue, topic, group)


def _groups(config: Config) -> Iterator[tuple[Topic[object], str]]:
    """Every consumer group of a home, and the topic that it reads; that of the expander comes after those of what it
    publishes (`begin_groups`).
    """
    for cluster in config.clusters:
        yield from cluster_groups(cluster.name)
    yield ACTIONS, EXPANDER
    for cluster in config.clusters:
        yield from _catalog_groups(config.catalogs, cluster.name)


def refuse_running(config: Config) -> None:
    """Refuses to migrate a follow store on servers while an expander, a writer or an updater of catalogs runs. A relay
    cannot be seen: it is in no group. Raises GroupBusyError, QueueUnavailableError, ConfigError.
    """
    with closing(open_queue(config, feedstore_wiring.clock_of(config))) as queue:
        try:
            refuse_live(queue, _groups(config))
        except GroupBusyError as error:
            raise GroupBusyError(
                f"{error}: the tables of the follow store are of an earlier version, so stop all processes of the home"
                " first, the relays too, which this command cannot see; no table was changed"
            ) from error


def topics_of(config: Config) -> tuple[Topic[object], ...]:
    if not posted(config.catalogs):
        return TOPICS
    from workers.catalog.topics import UPDATES  # noqa: PLC0415 - other homes do not pay for it

    return (*TOPICS, UPDATES)


def _catalog_groups(catalogs: Collection[str], cluster: str) -> list[tuple[Topic[object], str]]:
    """The topic and group of each stage that enters updates of these catalogs into a cluster."""
    if not catalogs:
        return []
    from workers.catalog.topics import UPDATES  # noqa: PLC0415 - other homes do not pay for it
    from workers.catalog.updater import updater_group  # noqa: PLC0415 - the same

    posts = posted(catalogs)
    return [(UPDATES if name in posts else ACTIONS, updater_group(name, cluster)) for name in catalogs]


def is_embedded(config: Config) -> bool:
    """Whether one worker holds the home, because its queue or one of its clusters is in files of the home."""
    return config.queue_file is not None or any(each.in_files for each in config.clusters)


def open_queue(config: Config, clock: Callable[[], int], *, alone: bool = False) -> Queue:
    """Opens the queue of a home. clock: ms since 1970. alone: whether every loop of the home runs in this process.
    Raises ConfigError, QueueUnavailableError.
    """
    match config.queue_scheme:
        case "embedded":
            return EmbeddedQueue.open(config.path(config.queue), topics_of(config), clock, alone=alone)
        case "kafka":
            address = kafka_address(config)  # first: it says what to install
            from workers.queue.kafka import KafkaQueue  # noqa: PLC0415 - its library is an extra

            return KafkaQueue.open(address, topics_of(config))
        case _:
            assert_never(config.queue_scheme)


def _open_dead_letters(config: Config) -> "EmbeddedDeadLetters | KafkaDeadLetters":
    match config.queue_scheme:
        case "embedded":
            return open_dead_letters(config.path(config.queue))
        case "kafka":
            address = kafka_address(config)  # first: it says what to install
            from workers.queue.kafka import KafkaDeadLetters  # noqa: PLC0415 - its library is an extra

            return KafkaDeadLetters.open(address)
        case _:
            assert_never(config.queue_scheme)


def _create_topics(config: Config, first_offset: int) -> None:
    match config.queue_scheme:
        case "embedded":
            path = config.path(config.queue)
            EmbeddedQueue.create(path, dict.fromkeys(topics_of(config), config.partitions), first_offset)
            open_dead_letters(path).close()
        case "kafka":
            address = kafka_address(config)  # first: it says what to install
            from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

            # Differences in the brokers' own settings stop no worker; feedctl topics check names them.
            if left := [each for each in topics.apply(address, topic_definitions(config)) if not each.is_broker]:
                raise QueueError(topics.named(left))
        case _:
            assert_never(config.queue_scheme)


def kafka_address(config: Config) -> "KafkaAddress":
    """Where the queue's brokers are. Raises ConfigError."""
    with needing_extra("the queue is Kafka", "kafka"):
        from workers.queue.kafka import parse  # noqa: PLC0415 - its library is an extra
    try:
        return parse(config.queue, config.home, os.environ)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{config.sources.blamed('queue.url')}: queue.url: {error}") from error


def topic_definitions(config: Config) -> "list[TopicDefinition]":
    """The definitions of the queue's topics, if it is Kafka. Raises ConfigError."""
    address = kafka_address(config)
    from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

    return topics.definitions(
        address,
        topics_of(config),
        partitions=config.partitions,
        replication=config.replication,
        action_age_ms=config.limits.action_age_ms,
    )


def refuse_unsafe_topics(config: Config) -> None:
    """Refuses a queue whose topics could lose acknowledged messages.

    Raises:
        UnsafeTopicsError: the message names each setting.
        QueueUnavailableError: no broker answers.
        ConfigError
    """
    match config.queue_scheme:
        case "embedded":
            pass  # its file has no settings to check
        case "kafka":
            address = kafka_address(config)  # first: it says what to install
            from workers.queue.kafka import topics  # noqa: PLC0415 - its library is an extra

            topics.refuse_unsafe(address, topic_definitions(config))
        case _:
            assert_never(config.queue_scheme)


def refuse_unsafe(ports: Ports, config: Config, clusters: Iterable[str] = ()) -> None:
    """Refuses a queue whose topics could lose acknowledged messages. Then opens the clusters that will be written, and
    refuses those whose tables would break the rules. If a cluster is away, it is not refused: its writer waits, and
    checks later (rule 12). A follow store refuses by itself settings that could lose actions.

    Raises:
        UnsafeTopicsError, UnsafeTableError: the message names each setting.
        QueueUnavailableError: no broker answers, as when the queue was opened.
        ConfigError
    """
    refuse_unsafe_topics(config)
    for name in clusters:
        try:
            Progress(ports.replicas[name].progress).watermark()
        except UnsafeTableError:
            raise
        except UnavailableError:
            continue


def refuse_older_queue(ports: Ports, config: Config) -> None:
    """Refuses a queue in a file that was put back from a copy: `lost_actions.refuse_older`. Topics of Kafka have ids,
    which say that. Raises DamagedQueueError, QueueUnavailableError.
    """
    if config.queue_file is not None:
        lost_actions.refuse_older(ports, config.queue_file)


def other_partitions(config: Config, found: Iterable[int]) -> str | None:
    """The fault of a queue whose topics have other numbers of partitions than feed.toml says, and how to mend it; None
    if they agree. Everything works with the partitions that exist; a queue that is made again gets what feed.toml says.
    """
    wanted = config.partitions
    other = min((count for count in found if count != wanted), default=None)
    if other is None:
        return None
    said = f"queue.partitions: {wanted}, and the queue has {other}"
    if config.queue_file is not None:
        return f"{said}: an embedded queue keeps the number that it was made with: set it to {other}"
    if other < wanted:
        return f"{said}: feedctl topics apply adds partitions"
    return f"{said}: Kafka cannot remove any: set it to {other}"


def warn_of_partitions(ports: Ports, config: Config) -> None:
    """Logs `other_partitions`, if the queue answers now."""
    with suppress(QueueUnavailableError):
        if said := other_partitions(config, map(ports.queue.partitions, topics_of(config))):
            _log.warning("queue.partitions_differ", error=said)


_WRITER_BYTES = 8_000_000
"""The most bytes of messages that a writer keeps: some 400,000 cells in packs, which take twice as many bytes as
arrays."""


def worker(ports: Ports, config: Config, writers: Sequence[Loop] | None = None, looking: Sequence[Loop] = ()) -> Worker:
    """Makes a worker: relay, expander, housekeeping, and the writers of the clusters. writers: loops that write the
    clusters, or that watch processes which do; None: all clusters are written in this process. looking: loops that
    update the gauges.
    """
    loops = list(looking)
    try:
        loops += relays(ports, config)
        loops.append(expander(ports, config))
        if writers is not None:
            loops += writers
        else:
            for name in ports.replicas:
                loops += writing(ports, config, name)
        loops.append(housekeeping(ports, config))
    except BaseException:
        # A consumer that stayed open would keep the next worker out of its group.
        for loop in loops:
            loop.close()
        raise
    # Strict: while a partition is away, nothing says that it is restored.
    return Worker(loops, ports.meter, are_lost={EXPANDER: partial(lost_actions.are_lost, ports, can_wait=True)})


def gauges(ports: Ports, config: Config, *, faults: bool) -> list[Loop]:
    """The loops that update the gauges of stores, queue and clusters. faults: whether every part of each cluster is
    looked at; then the tables of the feeds must be open.
    """
    clusters = [ClusterGauges(ports, name, time.monotonic, faults=faults) for name in ports.replicas]
    looks = {"gauges": QueueGauges(ports, config).look} | {each.name: each.look for each in clusters}
    return [Every(name, look, LOOK_EVERY_S, time.monotonic, "gauges.unavailable") for name, look in looks.items()]


def canaries(ports: Ports, config: Config) -> list[Loop]:
    """The loops that send canaries the whole way and look for them in each cluster, if the configuration wants any. The
    tables of the feeds must be open. A worker that ends when everything has landed has none: they never end.
    """
    if config.worker.canary_ms is None:
        return []
    flights = CanaryFlights(ports.follows, list(ports.replicas), ports.meter)
    watches = [
        CanaryWatch(replica, flights, ports.meter, time.monotonic, ports.clock) for replica in ports.replicas.values()
    ]
    return [
        Every("canary", flights.fly, config.worker.canary_ms / 1_000, time.monotonic, "canary.unrecorded"),
        *watches,
    ]


def relays(ports: Ports, config: Config) -> list[Loop]:
    """A relay for each shard of the follow store, and the loops that send ticks."""
    every = [
        Relay(
            ports.follows,
            shard,
            ports.queue,
            ACTIONS,
            ports.dead,
            time.monotonic,
            ports.clock,
            wrap_actions,
            ports.meter,
            ports.tracer,
            partial(ports.follows.may_relay, shard),
            partial(lost_actions.begin_all_groups, ports),
        )
        for shard in range(ports.follows.shards())
    ]
    tickers: list[Loop] = [ticker(ports, config)]
    if posted(config.catalogs):
        from workers.app import catalogs  # noqa: PLC0415 - other homes do not pay for it

        tickers.append(catalogs.ticker(ports, config))
    return [*every, *tickers]


def ticker(ports: Ports, config: Config) -> Ticker:
    every_s = config.worker.tick_ms / 1_000

    def settled_ms() -> int:
        settled_ms = ports.follows.settled_ms()
        ago_s = max(0, ports.follows.about_now().latest_ms - settled_ms) / 1_000
        ports.meter.observe(metrics.STAGE_SECONDS, [ago_s], "relayed")
        return settled_ms

    return Ticker(settled_ms, ports.queue, ACTIONS, time.monotonic, encode_action, every_s, meter=ports.meter)


def expander(ports: Ports, config: Config) -> Loop:
    respacing = Respacing(Boards(ports.follows), time.monotonic, meter=ports.meter)
    groups = list(map(writer_group, ports.replicas))
    window = FanoutWindow(ports.queue, groups, time.monotonic, ports.clock, on_a_thread("fanout-window"))
    handler = Expander(
        ports.follows, ports.queue, config.limits, respacing.respace, ports.meter, ports.tracer, window=window
    )
    about = processing(ACTIONS, EXPANDER)

    def stage() -> Stage[Task | RangeTask]:
        spec: StageSpec[Task | RangeTask] = StageSpec(
            group=EXPANDER,
            topic=ACTIONS,
            encode=encode_action,
            handle=in_lots(ports.tracer, f"process {ACTIONS}", about, of_tasks, handler.expand),
            ticks=lambda ticks: handler.tick([tick for _, tick in ticks]),
            begin=handler.begin,
            batch=MAX_BATCH,
            in_flight=MAX_WAITING,
            turns=Turns(sender_of, AS_THEY_COME, AT_ONCE),
            slots=TaskSlots(ports.follows),
            due_ms=handler.due_ms,
            lost=lost_actions.LOST,
        )
        return _stage(ports, config, spec)

    def begin() -> None:
        lost_actions.refuse_lost(ports, can_wait=True)
        refuse_older_queue(ports, config)
        if not ports.queue.positions(ACTIONS, EXPANDER):
            begin_groups(ports.queue, ports.replicas)

    return Begun(EXPANDER, begin, stage, time.monotonic, (), ports.meter)


def writing(ports: Ports, config: Config, cluster: str) -> list[Loop]:
    """The loops that write a cluster, in one process: its writer, retries and sweeper, and those of its catalogs."""
    loops = [loop(ports, config, cluster) for loop in (writer, retries, _sweeper)]
    if config.catalogs:
        from workers.app import catalogs  # noqa: PLC0415 - a home without catalogs does not pay for their library

        loops += catalogs.loops(ports, config, cluster, _stage)
    return loops


def writer(ports: Ports, config: Config, cluster: str) -> Loop:
    def stage(applied: Applied) -> Stage[Delivery | Hold | Pack]:
        # Made again with each stage: what it remembers of its cluster is true until the cluster goes back.
        handler = _writer(ports, config.limits, cluster)
        about = {**processing(DELIVERIES, writer_group(cluster)), "feedstore.cluster": cluster}
        moving = {**sending(RETRIES), "feedstore.cluster": cluster}
        park = _parking(ports, handler, cluster).park
        spec: StageSpec[Delivery | Hold | Pack] = StageSpec(
            group=writer_group(cluster),
            topic=DELIVERIES,
            encode=encode_body,
            handle=in_lots(ports.tracer, f"process {DELIVERIES}", about, of_deliveries, handler.write),
            ticks=handler.tick,
            lost=lost_message(cluster),
            slots=DeliverySlots(cluster, handler.late_before_ms),
            in_flight_bytes=_WRITER_BYTES,
            gather_s=config.worker.gather_ms / 1_000,
            park=in_lots(ports.tracer, f"send {RETRIES}", moving, of_deliveries, park, "producer"),
            note=applied.note,
        )
        return _stage(ports, config, spec)

    return _from_its_cluster(ports, cluster, DELIVERIES, writer_group(cluster), stage)


def retries(ports: Ports, config: Config, cluster: str) -> Loop:
    def stage(applied: Applied) -> Stage[Parked]:
        handler = _writer(ports, config.limits, cluster)
        parking = _parking(ports, handler, cluster)
        about = {**processing(RETRIES, retry_group(cluster)), "feedstore.cluster": cluster}
        spec: StageSpec[Parked] = StageSpec(
            group=retry_group(cluster),
            topic=RETRIES,
            encode=encode_parked,
            handle=in_lots(ports.tracer, f"process {RETRIES}", about, of_parked, parking.land),
            ticks=_no_ticks,
            lost=lost_message(cluster),
            slots=ParkedSlots(cluster, handler.late_before_ms),
            # A message for another cluster is never delayed.
            due_ms=lambda parked: parked.due_ms if parked.cluster == cluster else 0,
            given_up=parking.give_up,
            note=applied.note,
        )
        return _stage(ports, config, spec)

    return _from_its_cluster(ports, cluster, RETRIES, retry_group(cluster), stage)


def _from_its_cluster(
    ports: Ports, cluster: str, topic: Topic[object], group: str, stage: Callable[[Applied], Stage[Body]]
) -> Loop:
    applied = Applied(ports.replicas[cluster], ports.queue, topic, group, time.monotonic)
    return Begun(group, applied.begin, lambda: stage(applied), time.monotonic, OlderClusterError, ports.meter)


def _stage(ports: Ports, config: Config, spec: StageSpec[Body]) -> Stage[Body]:
    """A stage of this home, with a consumer of its own."""
    return Stage(
        spec,
        ports.queue.consumer(spec.topic, spec.group),
        ports.dead,
        RetryPolicy(dead_in_a_row=config.worker.dead_letters_in_a_row),
        random.Random(),  # noqa: S311 - jitter needs no secrecy
        time.monotonic,
        ports.clock,
        meter=ports.meter,
    )


def _no_ticks(ticks: Sequence[tuple[int, Tick]]) -> None:
    raise AssertionError(f"{RETRIES} carries no ticks: {ticks}")


def housekeeping(ports: Ports, config: Config) -> Loop:
    every_s = config.worker.housekeeping_ms / 1_000
    do = housekeeper(ports, config).forget
    return Every("housekeeper", do, every_s, time.monotonic, "housekeeping.unavailable", ports.meter)


def _sweeper(ports: Ports, config: Config, cluster: str) -> Loop:
    every_s = config.worker.housekeeping_ms / 1_000
    do = sweeping(ports, config, cluster)
    return Every(f"sweeper-{cluster}", do, every_s, time.monotonic, "sweep.unavailable", ports.meter)


def housekeeper(ports: Ports, config: Config) -> Housekeeper:
    readers: dict[Topic[object], list[str]] = {topic: [] for topic in topics_of(config)}
    for topic, group in landed.groups(ports):
        # The catalog of pins is not waited for: if it has not read what expires, it notes a gap, and is built again.
        if topic != ACTIONS or group == EXPANDER:
            readers[topic].append(group)
    kept = LettersKept(config.dead_letter_age_ms, config.dead_letters)
    return Housekeeper(ports.follows, ports.queue, ports.dead, config.limits, kept, readers, ports.clock, ports.meter)


def sweeping(ports: Ports, config: Config, cluster: str) -> Callable[[], Sweep | None]:
    return partial(sweep, _metered(ports, cluster), ports.follows, config.limits, time.monotonic, ports.meter)


def _writer(ports: Ports, limits: Limits, cluster: str) -> Writer:
    replica = _metered(ports, cluster)
    progress = Progress(replica.progress)
    return Writer(
        cluster, replica.tables[FEEDS], progress, ports.follows, ports.queue, limits, ports.meter, ports.tracer
    )


def _metered(ports: Ports, cluster: str) -> Replica:
    """A cluster whose calls are counted."""
    tables = ports.replicas[cluster].tables
    return Replica(
        cluster, {name: Metered(table, cluster, ports.meter, time.monotonic) for name, table in tables.items()}
    )


def _parking(ports: Ports, writer: Writer, cluster: str) -> Parking:
    progress = Progress(ports.replicas[cluster].progress)
    return Parking(cluster, writer, progress, ports.follows, ports.queue, retry_group(cluster))
