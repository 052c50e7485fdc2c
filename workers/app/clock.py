"""Sets the time of a home, for an operator who knows that this machine's clock is right.

What was stamped while a clock was ahead keeps its time. From then on stores stamp the right time, and clusters tell it.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from feedstore import durable
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.wiring import home_clock
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.catalog.settings import posted
from feedstore.clocks import APART_MAX_MS, wall_ms
from feedstore.widecolumn import DamagedError
from feedstore.widecolumn.progress import Progress
from workers.app import wiring
from workers.following.landed import groups
from workers.queue.port import refuse_live


class AheadCatalog(NamedTuple):
    """A catalog of a cluster that is ahead: it hides updates from before its times, and takes no batch of now.

    removed: it is gone, and a worker builds it again. path: its directory, if it is in files. error: why it could not
    be looked at, so that it may be ahead; None if it is ahead.
    """

    name: str
    cluster: str
    removed: bool
    path: Path | None
    error: str | None


class Set(NamedTuple):
    """What was done. shards: the shards that were brought back, each with the ms that it was ahead. clusters: those
    whose watermark is unknown until they have heard the right time. lost: those that are gone or damaged. A rebuild
    makes them again, and needs the right time first. catalogs: those that knew a time that has not come yet, and those
    that could not be looked at.
    """

    shards: Mapping[int, int]
    clusters: tuple[str, ...]
    lost: tuple[str, ...]
    catalogs: tuple[AheadCatalog, ...]


def set_clock(config: Config) -> Set:
    """Makes this process's clock that of the home, and brings back what is ahead of it. The caller holds the home; on
    servers no relay, expander or writer runs.

    If it is interrupted at any step, some shards or clusters are still ahead: do it again.

    Raises:
        GroupBusyError: an expander or a writer runs; nothing was brought back.
        FollowStoreUnavailableError, QueueUnavailableError, UnavailableError, OSError: do it again.
    """
    if (clock := home_clock(config)) is not None:
        clock.set()
    with closing(wiring.open_ports(config, "write")) as ports:
        # A writer that runs would note its holds among the times that are replaced, where no look reads them.
        refuse_live(ports.queue, groups(ports))
        now_ms = wall_ms()
        # The shards come last: until then it can be seen that this is unfinished.
        clusters: list[str] = []
        lost: list[str] = []
        for name, replica in ports.replicas.items():
            try:
                if not place(config, name).exists():
                    lost.append(name)
                elif Progress(replica.progress).bring_back(now_ms):
                    clusters.append(name)
            except DamagedError:
                lost.append(name)
        catalogs = tuple(_catalogs_ahead(config, now_ms))
        return Set(ports.follows.bring_back(now_ms), tuple(clusters), tuple(lost), catalogs)


def _catalogs_ahead(config: Config, now_ms: int) -> Iterator[AheadCatalog]:
    """Finds the catalogs that are ahead, or cannot be looked at. One that is made of the follow store, in files, is
    removed.
    """
    if not config.catalogs:
        return
    from feedstore.app import catalogs  # noqa: PLC0415 - a home without catalogs does not pay for their library

    for name, cluster in product(config.catalogs, config.clusters):
        is_built = name not in posted(config.catalogs)
        found = catalogs.place(config, name, cluster.name)
        error: str | None = None
        try:
            with closing(found.store()) as store:
                delta = store.delta()
                known_ms = [delta.known_ms, delta.floor_ms, *(each.as_of_ms for each in store.generations())]
        except CatalogUnavailableError as unavailable:
            error = str(unavailable)
        else:
            # The times of other catalogs are from clocks of their sources.
            if max(known_ms) <= (now_ms if is_built else now_ms + APART_MAX_MS):
                continue
        removed = False
        if is_built and found.path is not None and error is None:  # one that cannot be read may be well
            with suppress(OSError):
                durable.remove_tree(found.path, ignore_errors=True)
                removed = True
        yield AheadCatalog(name, cluster.name, removed, found.path, error)
