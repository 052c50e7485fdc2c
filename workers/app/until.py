"""When a worker may end: what was recorded has landed, or has been expanded."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from feedstore.app.config import Config
from feedstore.errors import NotNowError
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.app.wiring import ticker
from workers.following.groups import EXPANDER
from workers.following.landed import drained
from workers.following.ports import Ports
from workers.following.topics import ACTIONS


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


class End:
    """Says when a worker may end. A port that is unavailable gives no answer: the loops say which, and keep trying.

    yes: what it said last. away: clusters that it does not wait for any more, each with what is the matter with it.
    rests_within_s: how long, once it says so, the worker waits at most until nothing is on its way.
    """

    rests_within_s: float
    yes = False
    away: Mapping[str, str] = MappingProxyType({})

    def __call__(self) -> bool:
        try:
            self.yes = self._holds()
        except NotNowError:
            self.yes = False
        return self.yes

    def _holds(self) -> bool:
        raise NotImplementedError


class Idle(End):
    """Says when everything that was recorded has landed, and the watermarks say so too: a last tick is sent after it.
    It never does while something is recorded all the time.

    clusters: asked for the names of those that are waited for; a cluster whose writer has ended is none of them.
    away_s: how long it waits for clusters that do not answer while nothing else is left to do.
    clock: monotonic seconds.
    """

    rests_within_s = math.inf

    def __init__(
        self,
        ports: Ports,
        config: Config,
        clusters: Callable[[], Iterable[str]],
        away_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ports = ports
        self._ticker = ticker(ports, config)
        self._clusters = clusters
        self._away_s = away_s
        self._clock = clock
        self._waits_since_s: float | None = None
        self._settled_ms: int | None = None

    def _holds(self) -> bool:
        waited = [name for name in self._clusters() if name not in self.away]
        try:
            if self._settled_ms is None and idle(self._ports, waited):
                self._settled_ms = self._ticker.tick()
                return False
            if self._settled_ms is not None and _reach(self._ports, waited, self._settled_ms):
                return True
        except UnavailableError:
            pass  # a cluster: which one is found out now
        self._look_for_away(waited)
        return False

    def _look_for_away(self, waited: Sequence[str]) -> None:
        """Gives up the clusters that are away if they are all that there is to wait for, and have been for long."""
        away: dict[str, str] = {}
        if self._away_s < math.inf and _quiet(self._ports, []):
            found = ((name, _matter(self._ports, name)) for name in waited)
            away = {name: matter for name, matter in found if matter is not None}
        if not away or not idle(self._ports, set(waited) - away.keys()):
            self._waits_since_s = None
            return
        if self._waits_since_s is None:
            self._waits_since_s = self._clock()
        if self._clock() - self._waits_since_s >= self._away_s:
            self.away = {**self.away, **away}


class RecordedLanded(End):
    """Says when what had been recorded before it was first asked has landed, as the watermarks say (rule 10), whatever
    is recorded meanwhile. clusters: as of Idle.
    """

    rests_within_s = 5.0

    def __init__(self, ports: Ports, clusters: Callable[[], Iterable[str]]) -> None:
        self._ports = ports
        self._clusters = clusters
        self._recorded_ms: int | None = None

    def _holds(self) -> bool:
        if self._recorded_ms is None:
            self._recorded_ms = _latest_ms(self._ports)
        return _reach(self._ports, self._clusters(), self._recorded_ms + 1)


class RecordedExpanded(End):
    """Says when what had been recorded before it was first asked has been relayed, and then passed by the expander: it
    is in the indexes, and expanded but for what was left of large fanouts. Whatever is recorded meanwhile.
    """

    rests_within_s = 5.0

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._recorded_ms: int | None = None
        self._ends: dict[int, int] | None = None

    def _holds(self) -> bool:
        follows, queue = self._ports.follows, self._ports.queue
        if self._recorded_ms is None:
            self._recorded_ms = _latest_ms(self._ports)
        if self._ends is None:
            # In this order: what was relayed by then is in front of these ends.
            if follows.settled_ms() <= self._recorded_ms:
                return False
            self._ends = queue.ends(ACTIONS)
        positions = queue.earliest(ACTIONS) | queue.positions(ACTIONS, EXPANDER)
        return all(positions[partition] >= end for partition, end in self._ends.items())


def _matter(ports: Ports, cluster: str) -> str | None:
    """Why nothing lands in a cluster; None if it answers. Of its tables a worker has none but the notes of progress."""
    try:
        Progress(ports.replicas[cluster].progress).watermark()
    except UnavailableError as error:
        return f"cluster {cluster} does not answer: {error}"
    return None


def _latest_ms(ports: Ports) -> int:
    """By the clock that is furthest ahead: what has committed in any shard is before it."""
    return max(ports.follows.now(shard) for shard in range(ports.follows.shards()))


def _reach(ports: Ports, clusters: Iterable[str], time_ms: int) -> bool:
    """Whether the watermark of each cluster is at a time, or later."""
    marks = (Progress(ports.replicas[name].progress).watermark() for name in clusters)
    return all(mark is not None and mark >= time_ms for mark in marks)
