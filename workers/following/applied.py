"""The positions up to which a cluster has applied the messages of its groups, noted in the cluster itself.

Committed positions are in the queue, cells in the cluster, and a cluster can go back: a directory or a snapshot is put
back, a disk comes up with old blocks. So a group commits only what its cluster has noted before. If the cluster has
noted less than its group has committed, the cluster has gone back, and the group follows it to the noted position:
every effect may be repeated (rule 1). If the queue no longer keeps those messages, the cluster must be rebuilt.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from feedstore.following import FEEDS, Witnesses
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import DamagedError, UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.following.groups import EXPANDER, cluster_groups, damaged_message, lost_message
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.pipeline.retry import RETRY_REST
from workers.queue.port import GroupBusyError, PositionLostError, Queue, QueueUnavailableError, Topic, answers, go_back

_log = structlog.get_logger()

NUMBERS: Final[Mapping[Topic[object], int]] = {DELIVERIES: 1, RETRIES: 2}
"""The number of a topic in a cluster's notes. These never change, because clusters keep them."""


WITNESS_EVERY_S: Final = 1.0
"""How often a writer looks at the witnesses of its cluster, and marks them."""


class OlderClusterError(Exception):
    """A cluster has gone back since the last look at it. Its group must go back too, before it does anything else. Or
    the cluster is another one: it was created again, or its times were brought back. What its group remembers of it is
    not true any more.
    """


def begin_groups(queue: Queue, clusters: Iterable[str]) -> None:
    """Gives the groups of clusters their first positions. Call it before the first expander joins its group: the groups
    then have positions before anything is published to them, and a group that has none later has lost its topic.

    Raises QueueUnavailableError: a part is done; do it again.
    """
    for cluster in clusters:
        for topic, group in cluster_groups(cluster):
            begin_group(queue, topic, group)


def begin_group(queue: Queue, topic: Topic[object], group: str) -> None:
    """Gives a group its first positions, if it has none. Raises QueueUnavailableError."""
    # A consumer that is live has given its group positions, or is about to do so.
    with suppress(GroupBusyError):
        queue.consumer(topic, group).close()


def note_all(cluster: str, progress: Progress, queue: Queue) -> None:
    """Notes the positions of a cluster's groups in the cluster, and then its name. The cluster must lack nothing from
    before these positions: it has just been made, or was written by an earlier version.
    """
    _note_topics(progress, _ids(queue))  # first: if a topic is made again now, that shows later
    positions = {
        (NUMBERS[topic], partition): position
        for topic, group in cluster_groups(cluster)
        for partition, position in queue.positions(topic, group).items()
    }
    for topic in NUMBERS:
        queue.sync(topic)  # as in `Applied.note`
    _note_complete(progress, positions)
    progress.note_name(cluster)


def note_parked(progress: Progress, since_ms: Iterable[int], queue: Queue, partition: int) -> None:
    """Notes in a cluster that it waits for what was parked, until its retries have applied all that is in a partition
    of their topic now. since_ms: when the parked actions committed. Raises UnavailableError, QueueUnavailableError.
    """
    ends = answers(queue.ends, RETRIES, known=True)
    if partition not in ends:
        raise QueueUnavailableError(f"no broker leads {RETRIES}/{partition} any more")
    progress.park(since_ms, {(NUMBERS[RETRIES], partition): ends[partition]})


def furthest(progress: Progress) -> int:
    """The largest offset that a cluster has noted, or waits for, in any partition of any topic."""
    return max([*progress.applied().values(), progress.awaited()])


def is_of_an_earlier_topic(cluster: str, progress: Progress, queue: Queue) -> bool:
    """Whether a topic was made again after deliveries for a cluster had been published to it. Then what the cluster had
    not applied is gone, and its notes claim messages that come only now. The topic's id shows it. Without ids it shows
    if the cluster has applied more than there ever was, or if a group has no position and would begin before what it
    has applied: a group keeps its position from its first read on. If the cluster has noted nothing yet, its groups
    show it: see `begin_groups`. Raises UnavailableError, QueueUnavailableError.
    """
    ids = _ids(queue)
    noted = progress.topics()
    if any(ids.get(number, topic_id) != topic_id for number, topic_id in noted):
        return True
    applied = progress.applied()
    if not noted and not applied:
        return _positions_are_gone(cluster, queue)
    is_same = bool(ids) and noted >= {*ids.items()}
    try:
        return _has_applied_more(cluster, applied, queue, is_same=is_same)
    except QueueUnavailableError:
        if not is_same:
            raise
        return False  # a partition that no broker leads must not keep a cluster from all others (rule 12)


def _positions_are_gone(cluster: str, queue: Queue) -> bool:
    # The order matters: the expander joins its group after the others have their positions.
    if not queue.positions(ACTIONS, EXPANDER):
        return False
    return not all(queue.positions(topic, group) for topic, group in cluster_groups(cluster))


def are_ahead(applied: Mapping[tuple[int, int], int], queue: Queue) -> bool:
    """Whether more has been applied, as a cluster has noted it, than there ever was. Raises QueueUnavailableError."""
    ends = {number: queue.ends(topic) for topic, number in NUMBERS.items()}
    return any(offset > ends[number].get(partition, 0) for (number, partition), offset in applied.items())


def _has_applied_more(cluster: str, applied: Mapping[tuple[int, int], int], queue: Queue, *, is_same: bool) -> bool:
    """is_same: whether the ids say that the topics are the same. Then positions that are gone have expired or were
    removed, and reading again from the first message on changes nothing (rule 1).
    """
    if are_ahead(applied, queue):
        return True
    for topic, group in cluster_groups(cluster):
        noted = {partition: offset for (number, partition), offset in applied.items() if number == NUMBERS[topic]}
        unread = set() if is_same else noted.keys() - queue.positions(topic, group).keys()
        earliest = queue.earliest(topic) if unread else {}
        if any(earliest.get(partition, 0) < noted[partition] for partition in unread):
            return True
    return False


def _ids(queue: Queue) -> dict[int, bytes]:
    """The ids of the topics that a cluster is written from, by their numbers; empty if the queue has none."""
    found = {number: queue.topic_id(topic) for topic, number in NUMBERS.items()}
    return {number: topic_id for number, topic_id in found.items() if topic_id is not None}


def _note_topics(progress: Progress, ids: Mapping[int, bytes]) -> None:
    if ids:
        progress.note_topics(ids)


def note_new_queue(progress: Progress, partitions: int, first_offset: int) -> None:
    """Notes that a cluster lacks nothing from before the first message of a new queue. first_offset: must not be below
    `furthest` of any cluster: otherwise the notes would claim messages of the new queue that were never applied.
    """
    _note_complete(
        progress, {(number, partition): first_offset for number in NUMBERS.values() for partition in range(partitions)}
    )


def _note_complete(progress: Progress, positions: Mapping[tuple[int, int], int]) -> None:
    """Notes that a cluster lacks nothing from before these positions, in any table."""
    progress.note_covered(positions)
    progress.note_applied(positions)


def behind(progress: Progress, queue: Queue, topic: Topic[object], group: str) -> dict[int, int]:
    """The partitions in which a group is past what its cluster has applied, each with the position to go back to.

    Raises UnavailableError, QueueUnavailableError.
    """
    number = NUMBERS[topic]
    # The group's positions are read first, so that messages which are noted and committed between the two reads count
    # as noted.
    committed = queue.positions(topic, group)
    if _is_unnamed(progress):
        return {}
    applied = progress.applied()
    has = {partition: applied.get((number, partition), 0) for partition in committed}
    if all(has[partition] >= position for partition, position in committed.items()):
        return {}
    # The cluster was put back, and the copies of its tables may be from different moments: the feeds hold what was
    # applied before the witnesses got their number, but perhaps nothing of what was noted after that.
    if covered := progress.covered():
        has = {partition: min(end, covered.get((number, partition), 0)) for partition, end in has.items()}
    return {partition: end for partition, end in has.items() if end < committed[partition]}


def _is_unnamed(progress: Progress) -> bool:
    """Whether this cluster was written by a version that noted neither names nor positions."""
    # The order matters: the name is noted before the first tick.
    return progress.began() and progress.name() is None


class Applied:
    """The messages that one group has applied. Used by one thread at a time.

    replica: the cluster. topic, group: one of `cluster_groups`. clock: monotonic seconds.
    """

    def __init__(
        self, replica: Replica, queue: Queue, topic: Topic[object], group: str, clock: Callable[[], float]
    ) -> None:
        self._cluster = replica.name
        self._replica = replica
        self._progress = Progress(replica.progress)
        self._witnesses = Witnesses(replica.tables[FEEDS], self._progress)
        self._queue = queue
        self._topic: Topic[object] = topic
        self._group = group
        self._clock = clock
        self._mark_again_s = clock()
        self._seen: dict[tuple[int, int], int] = {}
        self._renewals: tuple[int, int] | None = None

    def begin(self) -> None:
        """Moves the group back to what its cluster has applied, if it is past that. Call it before the group's consumer
        is made.

        Raises:
            PositionLostError: the cluster must be rebuilt; the message says how.
            GroupBusyError: other members of the group are still there: later.
            UnavailableError, QueueUnavailableError: later.
        """
        self._progress = Progress(self._replica.progress)  # another one: see `renewals`
        self._witnesses = Witnesses(self._replica.tables[FEEDS], self._progress)
        with suppress(UnavailableError):
            self._refuse_lost()
        self._renewals = self._progress.renewals()
        ids = _ids(self._queue)  # before the look: if a topic is made again now, that shows later
        self._refuse_earlier_topic()
        _note_topics(self._progress, ids)
        back = behind(self._progress, self._queue, self._topic, self._group)
        if back:
            again = go_back(self._queue, self._topic, self._group, back)
            _log.warning("cluster.older", cluster=self._cluster, group=self._group, messages_again=again)
        if _is_unnamed(self._progress):
            note_all(self._cluster, self._progress, self._queue)
        elif self._progress.name() is None:
            # The cluster is new or has lost everything: its groups have just gone back to the first message.
            self._progress.note_name(self._cluster)
        self._seen = self._progress.applied()

    def note(self, spans: Mapping[int, tuple[int, int]]) -> None:
        """Notes what has been applied; durable when it returns. spans: for each partition, the offset of the first
        message and the one after the last. If it is empty, this only looks whether the cluster has gone back.

        Raises:
            OlderClusterError: the cluster has gone back, or is another one; nothing was noted.
            PositionLostError: the cluster's feeds were emptied or put back, or the topic was made again, and the
                cluster must be rebuilt; nothing was noted.
            UnavailableError, QueueUnavailableError: later.
        """
        number = NUMBERS[self._topic]
        # Commands that change this wait for the end of all writers. One that is suspended, or cut off from the queue,
        # counts as ended after some seconds, and may continue later.
        renewals = self._progress.renewals()
        if self._renewals not in {None, renewals}:
            raise OlderClusterError(f"{self._cluster}: was created again, or its times were brought back")
        noted = self._progress.applied()
        for key, offset in self._seen.items():
            if noted.get(key, 0) < offset:
                raise OlderClusterError(f"{self._cluster}: had applied {offset} of {key}, now {noted.get(key, 0)}")
        self._seen = noted
        if not spans:
            return
        for partition, (first, _) in spans.items():
            if noted.get((number, partition), 0) < first:
                raise OlderClusterError(f"{self._cluster}: {self._topic}/{partition} lacks messages before {first}")
        if any(end < noted.get((number, partition), 0) for partition, (_, end) in spans.items()):
            self._refuse_earlier_topic()  # otherwise they come once more after a restart or a rewind
        # If the queue lost what the cluster has noted, its topic would count as made again.
        self._queue.sync(self._topic)
        witness = self._next_witness()
        new = {(number, partition): end for partition, (_, end) in spans.items()}
        self._progress.note_applied(new, witness)
        self._seen = noted | {key: max(offset, noted.get(key, 0)) for key, offset in new.items()}
        if witness is not None:
            self._progress.note_covered(self._seen)

    def _next_witness(self) -> int | None:
        """Checks the witnesses and gives them a new number, once every WITNESS_EVERY_S. None if it is not time, or if a
        region is away: then the noted number stays, and stages note what is done in the other regions (rule 12).
        """
        began_s = self._clock()
        if began_s < self._mark_again_s:
            return None
        try:
            self._refuse_lost()
            number = self._witnesses.mark()
        except UnavailableError:
            ended_s = self._clock()
            self._mark_again_s = ended_s + max(WITNESS_EVERY_S, RETRY_REST * (ended_s - began_s))
            return None
        self._mark_again_s = began_s + WITNESS_EVERY_S
        return number

    def _refuse_earlier_topic(self) -> None:
        if is_of_an_earlier_topic(self._cluster, self._progress, self._queue):
            raise PositionLostError(lost_message(self._cluster))

    def _refuse_lost(self) -> None:
        try:
            self._witnesses.refuse_lost()
        except DamagedError as error:
            raise PositionLostError(damaged_message(self._cluster, str(error))) from error
