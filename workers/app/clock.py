"""Sets the time of a home, for an operator who knows that this machine's clock is right.

What was stamped while a clock was ahead keeps its time. From then on stores stamp the right time, and clusters tell it.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.wiring import home_clock
from feedstore.clocks import wall_ms
from feedstore.widecolumn import DamagedError
from feedstore.widecolumn.progress import Progress
from workers.app import wiring
from workers.following.landed import groups
from workers.queue.port import refuse_live


class Set(NamedTuple):
    """What was done. shards: the shards that were brought back, each with the ms that it was ahead. clusters: those
    whose watermark is unknown until they have heard the right time. lost: those that are gone or damaged. A rebuild
    makes them again, and needs the right time first.
    """

    shards: Mapping[int, int]
    clusters: tuple[str, ...]
    lost: tuple[str, ...]


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
        return Set(ports.follows.bring_back(now_ms), tuple(clusters), tuple(lost))
