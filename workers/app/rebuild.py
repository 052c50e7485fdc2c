"""Rebuilds feeds from the follow store by refills. A cluster that has lost data is rebuilt from nothing.

A refill only adds. That is enough for a cluster that has had every delivery; one that is gone, or that lost deliveries,
may also lack markers, and is then created again.
"""

import math
from collections.abc import Callable
from contextlib import closing
from typing import Final

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.places import replica
from feedstore.follows.store import FollowStore
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn.progress import Progress
from workers.app import wiring
from workers.following.applied import note_all
from workers.following.expected import followers
from workers.following.faults import fault
from workers.following.groups import cluster_groups
from workers.following.landed import REBUILDING_MS
from workers.following.ports import Ports
from workers.pipeline.runtime import Worker
from workers.queue.port import GroupBusyError, Queue, Topic, lag_of, refuse_live, reset

OnProgress = Callable[[int], None]
"""Is called with the number of users that are done."""

CLOCKS_APART_MS: Final = 10_000
"""Clocks of the follow store differ by less than this, and are set back by less."""

_DISCARD_AT_ONCE: Final = 1_000
_DISCARD_WAIT_S: Final = 1.0
_IN_VAIN: Final = 60
"""After this many polls without a message, the messages that are left are not for this process. A member that has died
loses its partitions long before that."""


def ask_all(follows: FollowStore, cluster: str | None, on_progress: OnProgress) -> int:
    """Asks for a refill of the feed of every user who follows anything; returns the time of the last request. cluster:
    only in this cluster; None: in all.
    """
    asked_ms = follows.now()
    count = 0
    for users in followers(follows):
        asked_ms = max(asked_ms, follows.ask_refill(users, cluster, 0))
        count += len(users)
        on_progress(count)
    return asked_ms


def needs_new(ports: Ports, config: Config, cluster: str, read_s: float = math.inf) -> bool:
    """Whether a cluster is gone, is damaged, or has lost deliveries, so that refills alone do not mend it. read_s: how
    long its feeds are read if it is in files; by default all are.

    Raises UnavailableError, QueueUnavailableError, ConfigError.
    """
    if not place(config, cluster).exists():
        return True
    in_files = config.cluster(cluster).in_files
    with closing(feedstore_wiring.open_cluster(config, cluster, "read")) as opened:
        found = fault(replica(cluster, opened), ports.queue, feedstore_wiring.monotonic_s, read_s if in_files else 0.0)
    return found is not None and not found.is_mended_by_writers


def recreate(
    ports: Ports, config: Config, cluster: str, worker: Callable[[Worker], None], on_progress: OnProgress
) -> None:
    """Replaces a cluster by an empty one, and asks for the refill of every feed. The caller holds the home.

    Deliveries that are queued or parked for the cluster are passed over: their actions are in the indexes before the
    refills are asked for, so that the refills bring what they would have brought. They must not be applied, because the
    markers that mask some of them are gone. Expanders on other machines may publish deliveries later that they read
    before: the new cluster remembers when it was made, and what was read earlier is late there (rule 8). The new
    cluster's watermark stays at the beginning of time until the refills have landed.

    worker: runs a worker until it ends by itself.

    If it is interrupted at any step, the cluster is missing or still lost: do it again.

    Raises GroupBusyError: a writer of the cluster runs; before the first step nothing was changed.
    """
    groups = cluster_groups(cluster)
    # Before anything is removed: a process on another machine holds no home.
    refuse_live(ports.queue, groups)
    place(config, cluster).remove()
    for topic, group in groups:
        reset(ports.queue, topic, group)
    # This brings everything that was recorded so far into the indexes, in which the refills find it. No process writes
    # the cluster meanwhile.
    worker(wiring.worker(ports, config, writers=()))
    for topic, group in groups:
        pass_over(ports.queue, topic, group)
    # All reads after this find in the follow store what was passed over.
    made_ms = ports.follows.now() + CLOCKS_APART_MS
    asked_ms = ask_all(ports.follows, cluster, on_progress)

    def prepare(new: Replica) -> None:
        progress = Progress(new.progress)
        begin(progress, made_ms, asked_ms)
        note_all(cluster, progress, ports.queue)

    feedstore_wiring.create_cluster(config, cluster, prepare)


def begin(progress: Progress, made_ms: int, asked_ms: int) -> None:
    """Notes in an empty cluster what it must know before a writer writes it. made_ms: a delivery that was read before
    this time is late there. asked_ms: when its last refill was asked for.
    """
    progress.made(made_ms)
    progress.hold([(REBUILDING_MS, asked_ms)])


def pass_over(queue: Queue, topic: Topic[object], group: str) -> None:
    """Commits all messages that are there, unread; messages that come meanwhile stay, or are passed over too.

    Raises GroupBusyError: another member has partitions of the group, and only its messages are left.
    """
    with closing(queue.consumer(topic, group)) as consumer:
        left = lag_of(queue, topic, group)
        in_vain = 0
        while left > 0 and (lag := lag_of(queue, topic, group)):
            messages = consumer.poll(_DISCARD_AT_ONCE, _DISCARD_WAIT_S)
            in_vain = 0 if messages else in_vain + 1
            if in_vain >= _IN_VAIN:
                raise GroupBusyError(
                    f"{group}: {lag} messages are left of {topic}, and none comes: another process reads for this"
                    " group; end it, and do this again"
                )
            left -= len(messages)
            consumer.commit({message.partition: message.offset + 1 for message in messages})
