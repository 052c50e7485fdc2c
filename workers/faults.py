"""What is wrong with a cluster, in one sentence that says what heals it."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from feedstore.feeds import Progress, Replica, trusted_watermark
from feedstore.widecolumn import DamagedError, WideColumnStore
from workers.applied import behind
from workers.groups import cluster_groups, damaged_message, lost_message, older_message
from workers.queue.port import Queue

_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Fault:
    """message: names the cluster and the command. is_mended_by_writers: they bring back what is missing by themselves;
    otherwise the cluster must be made anew.
    """

    message: str
    is_mended_by_writers: bool = False


def fault(replica: Replica, queue: Queue, in_time: Callable[[], bool]) -> Fault | None:
    """What is wrong with a cluster; None if nothing is found. A block that cannot be read is found if it is read: rows
    of the feeds are read as long as `in_time` says so.

    Raises:
        UnavailableError: the cluster does not answer.
        QueueUnavailableError
    """
    name = replica.name
    if any(queue.lost(topic, group) for topic, group in cluster_groups(name)):
        return Fault(lost_message(name))
    try:
        trusted_watermark(replica)
        older = False
        for topic, group in cluster_groups(name):
            back = behind(Progress(replica.progress), queue, topic, group)
            earliest = queue.earliest(topic) if back else {}
            if any(position < earliest[partition] for partition, position in back.items()):
                return Fault(lost_message(name))
            older = older or bool(back)
        read_through(replica.feeds, in_time)
    except DamagedError as error:
        return Fault(damaged_message(name, str(error)))
    return Fault(older_message(name), is_mended_by_writers=True) if older else None


def read_through(store: WideColumnStore, in_time: Callable[[], bool]) -> None:
    """Reads rows from the first one on, as long as `in_time` says so. Raises DamagedError, UnavailableError."""
    rows = store.scan()
    while in_time() and next(itertools.islice(rows, _ROWS_AT_ONCE - 1, None), None) is not None:
        pass
