"""A rewind: a cluster that has lost its latest writes, for example because its zone lost its power, reads them again.

It only takes time: every write is in the queue for days, and may be repeated (rule 1). Deliveries that are too old by
now are expanded again (rule 8).
"""

from typing import NamedTuple

from feedstore.errors import NeverError
from feedstore.following import FEEDS, Limits, Witnesses
from feedstore.widecolumn.progress import Progress
from workers.following.groups import cluster_groups
from workers.following.ports import Ports
from workers.queue import port


class TooFarBackError(NeverError):
    """The queue may no longer keep messages of that time. The error's message says what to do."""


class Rewound(NamedTuple):
    """The result of a rewind. to_ms: to which time of the store. again: how many messages each group reads again."""

    to_ms: int
    again: dict[str, int]


def rewind(ports: Ports, limits: Limits, cluster: str, by_ms: int) -> Rewound:
    """Moves the groups that write a cluster back by a time, and its watermark with them. ports: opened as the cluster's
    owner.

    If it is interrupted at any step, the watermark is too early at worst: do it again.

    Raises:
        TooFarBackError: the topics certainly keep only `action_age`.
        GroupBusyError: a writer of the cluster runs; nothing was moved.
        UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: later; some groups may have moved.
    """
    if by_ms > limits.action_age_ms:
        raise TooFarBackError(
            f"cluster {cluster} goes back by {limits.action_age_ms / 3_600_000:g} h (limits.action_age) at most: the"
            f" queue may keep no more; refill it (feedctl rebuild --all --cluster {cluster}), then remove what must"
            f" not be there (feedctl repair --cluster {cluster})"
        )
    groups = cluster_groups(cluster)
    port.refuse_live(ports.queue, groups)
    now_ms = ports.follows.now()
    to_ms = max(1, now_ms - by_ms)
    # This comes first: from here on the cluster says that it may lack what was committed since, until a tick from after
    # this call has come through every partition, behind all that is read again. If a position moved without this, the
    # watermark would claim writes that were lost (rule 10).
    replica = ports.replicas[cluster]
    progress = Progress(replica.progress)
    progress.hold([(to_ms, now_ms)])
    again = {group: port.rewind(ports.queue, topic, group, to_ms) for topic, group in groups}
    # Witnesses may be among the lost writes. The writes are on their way again; until this step the cluster counts as
    # damaged, and no writer starts.
    Witnesses(replica.tables[FEEDS], progress).renew()
    return Rewound(to_ms, again)
