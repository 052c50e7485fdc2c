"""Finds the fault of a cluster, and says in one sentence what mends it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from feedstore.following import FEEDS, trusted_watermark
from feedstore.following.witnesses import ROWS
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import DamagedError, UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.following.applied import behind, is_of_an_earlier_topic
from workers.following.groups import away_message, cluster_groups, damaged_message, lost_message, older_message
from workers.queue.port import Queue, lost_of

ANSWER_S: Final = 2.0
"""How long a part of a cluster may take to answer. The first part that takes longer ends the look."""


class PartAwayError(UnavailableError):
    """A part of the table of the feeds does not answer, while the cluster does."""


@dataclass(frozen=True)
class ReplicaFault:
    """A fault of a cluster. message: names the cluster and the command. is_mended_by_writers: whether its writers bring
    back what is missing by themselves; otherwise the cluster must be rebuilt.
    """

    message: str
    is_mended_by_writers: bool = False


def fault(replica: Replica, queue: Queue | None, clock: Callable[[], float], read_s: float) -> ReplicaFault | None:
    """The fault of a cluster; None if none is found.

    queue: None: it is away, and faults that only show in it are not found. clock: monotonic seconds. read_s: how long
    rows of the feeds are read: only reading finds a block that cannot be read.

    Raises:
        UnavailableError: the cluster does not answer within ANSWER_S.
        PartAwayError: only a part of the cluster does not answer.
        QueueUnavailableError
    """
    name = replica.name
    if queue is not None and any(lost_of(queue, topic, group, known=True) for topic, group in cluster_groups(name)):
        return ReplicaFault(lost_message(name))
    try:
        _refuse_away(replica, clock)
        trusted_watermark(replica)
        found = None if queue is None else _behind_its_groups(name, Progress(replica.progress), queue)
        if found is None or found.is_mended_by_writers:
            until_s, rows = clock() + read_s, replica.tables[FEEDS].scan()
            while clock() < until_s and next(rows, None) is not None:
                pass
    except DamagedError as error:
        return ReplicaFault(damaged_message(name, str(error)))
    return found


def _behind_its_groups(name: str, progress: Progress, queue: Queue) -> ReplicaFault | None:
    """What is wrong if a cluster has not applied what its groups have committed, or was written from another topic."""
    if is_of_an_earlier_topic(name, progress, queue):
        return ReplicaFault(lost_message(name))
    older = False
    for topic, group in cluster_groups(name):
        back = behind(progress, queue, topic, group)
        earliest = queue.earliest(topic) if back else {}
        if any(position < earliest[partition] for partition, position in back.items()):
            return ReplicaFault(lost_message(name))
        older = older or bool(back)
    return ReplicaFault(older_message(name), is_mended_by_writers=True) if older else None


def _refuse_away(replica: Replica, clock: Callable[[], float]) -> None:
    """Asks every part of a cluster. Raises UnavailableError; if one part is away, a PartAwayError with its rows."""
    replica.progress.read(ROWS[0], None, 1, clock() + ANSWER_S)
    for row in ROWS:
        try:
            replica.tables[FEEDS].read(row, None, 1, clock() + ANSWER_S)
        except DamagedError:
            raise
        except UnavailableError as error:
            raise PartAwayError(away_message(replica.name, f"{row[0]:02x}..", str(error))) from error
