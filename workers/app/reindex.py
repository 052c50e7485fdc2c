"""Brings back from the follow store what the queue has lost. The outbox keeps actions for the purge window, which is
longer than anything is in flight.

A queue in a file that is gone is made again, and all actions that the outbox keeps are relayed again. An action that
had landed lands once more and changes nothing (rule 1). An action that had not been expanded, or whose deliveries had
not landed, lands now. A cluster whose watermark is older than the outbox is removed, to be created again.

The order makes it safe to kill this at any step. First each cluster notes that these actions have not landed; then the
outbox is marked; the queue is made last. Until then no worker starts, because there is no queue, and all is done again.

If the queue is there and has lost actions, these are relayed again: `lost_actions` says how.
"""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.catalog.settings import posted
from feedstore.errors import ConfigError
from feedstore.widecolumn import Cluster, DamagedError
from feedstore.widecolumn.progress import PROGRESS, Progress
from workers.app import wiring
from workers.following.applied import furthest, note_new_queue
from workers.following.landed import NOT_KNOWN_MS
from workers.queue.embedded import NoQueueError, stored_partitions
from workers.queue.port import QueueUnavailableError


class Reindexed(NamedTuple):
    """What was done. again: how many actions are relayed again. gone: clusters that must be created again: they were
    missing, or were removed because the outbox no longer has all that they lack; none, unless the queue was made again.
    unindexed_before_ms: actions that were recorded before this time, and had not been expanded, are in no index any
    more; None if all actions are in one. lacking: clusters that may lack actions which the outbox no longer has.
    """

    again: int
    gone: tuple[str, ...]
    unindexed_before_ms: int | None
    lacking: tuple[str, ...] = ()


def is_lost(path: Path) -> bool:
    """Whether there is no queue, or one whose creation was not finished. path: of a queue in a file.

    Raises QueueUnavailableError: there is a file that is no queue: an operator has to look at it.
    """
    if not path.exists() or path.stat().st_size == 0:
        return True
    try:
        return not stored_partitions(path)
    except NoQueueError:
        return True


def reindex(config: Config) -> Reindexed:
    """Creates a queue in a file again. The caller holds the home, and `is_lost` says that the queue is gone.

    Raises:
        ConfigError, DamagedError: an operator must act; then do it again.
        FollowStoreUnavailableError, UnavailableError, CatalogUnavailableError, QueueError: do it again.
    """
    with ExitStack() as stack:
        follows = feedstore_wiring.open_follows(config, feedstore_wiring.clock_of(config))
        stack.callback(follows.close)
        clusters: dict[str, Progress] = {}
        for cluster in config.clusters:
            if place(config, cluster.name).exists():
                opened = stack.enter_context(closing(feedstore_wiring.open_cluster(config, cluster.name, "write")))
                clusters[cluster.name] = _progress(opened, cluster.name)
        _refuse_other_partitions(config, clusters)
        now_ms = follows.now()
        marks = {name: progress.watermark() or 0 for name, progress in clusters.items()}
        for name, progress in clusters.items():
            # Until everything is relayed again, no tick is later than now. The hold is noted before the notes on parked
            # deliveries are removed: their actions are among those that are relayed again.
            # A cluster that has no watermark yet is not one that is being rebuilt.
            progress.hold([(marks[name] or NOT_KNOWN_MS, now_ms)])
            progress.lift_all(now_ms)
        # Clusters note offsets, and treat messages with smaller offsets as applied (0032).
        first_offset = max(map(furthest, clusters.values()), default=0)
        for progress in clusters.values():
            note_new_queue(progress, config.partitions, first_offset)
        _note_gaps(config)
        again = follows.relay_again()
    kept_ms = 0 if again.is_whole else now_ms - config.limits.purge_window_ms
    for name in (name for name, mark in marks.items() if mark < kept_ms):
        place(config, name).remove()
    # Including those that an earlier reindex removed before it was killed.
    gone = [cluster.name for cluster in config.clusters if not place(config, cluster.name).exists()]
    _remove_leftovers(config)
    wiring.create_queue(config, first_offset)
    unindexed = max(marks.values(), default=0) < kept_ms
    return Reindexed(again.actions, tuple(gone), kept_ms if unindexed else None)


def _progress(cluster: Cluster, name: str) -> Progress:
    try:
        progress = Progress(cluster.table(PROGRESS))
        progress.state()
    except DamagedError as error:
        # It is not removed: it may be a healthy one of another name.
        raise DamagedError(
            f"{error}. No queue was made. First move the directory of cluster {name} away, then: feedctl reindex"
        ) from error
    return progress


def _note_gaps(config: Config) -> None:
    """Notes a gap in each catalog with posted updates: updates that had not been entered are nowhere else."""
    names = posted(config.catalogs)
    if not names:
        return
    from feedstore.app.catalogs import open_store  # noqa: PLC0415 - other homes do not pay for it
    from feedstore.catalog.posting import AHEAD_MAX_MS  # noqa: PLC0415 - the same

    until_ms = feedstore_wiring.clock_of(config)() + AHEAD_MAX_MS
    for name in names:
        for cluster in config.clusters:
            with open_store(config, name, cluster.name) as store:
                store.note_gap(until_ms)


def _refuse_other_partitions(config: Config, clusters: dict[str, Progress]) -> None:
    """Raises ConfigError if the lost queue had other partitions: ticks of partitions that no longer exist
    would keep the watermarks back for ever.
    """
    for name, progress in clusters.items():
        if (had := progress.partitions()) > config.partitions:
            raise ConfigError(
                f"{config.sources.blamed('queue.partitions')}: queue.partitions: {config.partitions}, and cluster"
                f" {name} was written from a queue of {had}: set it to {had}"
            )


def _remove_leftovers(config: Config) -> None:
    """Removes the log of the lost file: the new file must not use it as its own."""
    path = config.path(config.queue)
    try:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise QueueUnavailableError(f"{path}: {error.strerror or error}") from error
