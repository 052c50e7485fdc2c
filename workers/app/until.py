"""When a worker may end: once recorded actions have landed, or have been expanded."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Final, NamedTuple

from feedstore.app.config import Config
from feedstore.errors import NotNowError
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.app.wiring import ticker
from workers.following.groups import EXPANDER, cluster_groups
from workers.following.landed import drained
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.queue.port import Topic, lag_of

_PAUSE_S: Final = 1.0
"""The first pause of the ticks."""
_PAUSE_MAX_S: Final = 32.0
_TICKS_FOR: Final = 4
"""Between two pauses, ticks come for this many times as long as the last pause took: watermarks, and the rest of large
fanouts, wait for them.
"""


def idle(ports: Ports, clusters: Iterable[str] | None = None) -> bool:
    """Whether nothing is on its way: there is no outbox row to relay, and no group has anything left to do. clusters:
    only the writers of these clusters count.

    If a later stage sends something back to an earlier one (a refill), that is on its way before the later stage
    commits. So two looks at all stages, in their order, miss nothing.
    """
    names = list(ports.replicas if clusters is None else clusters)
    return all(_quiet(ports, names) for _ in range(2))


def _quiet(ports: Ports, clusters: Sequence[str]) -> bool:
    return not ports.follows.unrelayed(1) and drained(ports, clusters)


class End:
    """Says when a worker may end. While a port is unavailable, the answer is no: the loops log which one, and keep
    trying.

    yes: the last answer. away: clusters that are no longer waited for, each with the reason. rests_within_s: once the
    answer is yes, the worker waits at most this long until nothing is on its way.
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


class _QuietMoment:
    """Looks for a moment in which nothing is on its way. A tick is, for a while. If that is longer than the time
    between two ticks, as on a slow machine, one always is. So ticks pause now and then, for longer each time.

    pause: asks the tickers to rest; returns whether they do. resume: lets them continue. clock: monotonic seconds.
    """

    def __init__(self, pause: Callable[[], bool], resume: Callable[[], None], clock: Callable[[], float]) -> None:
        self._pause = pause
        self._resume = resume
        self._clock = clock
        self._for_s = _PAUSE_S
        self._next_s = clock() + _TICKS_FOR * _PAUSE_S
        self._over_s: float | None = None

    def is_now(self, is_idle: Callable[[], bool]) -> bool:
        """Whether it is found by this look. Raises what `is_idle` raises; a pause ends at a later call then, too."""
        now_s = self._clock()
        if self._over_s is None and now_s >= self._next_s:
            self._over_s = now_s + self._for_s
        elif self._over_s is not None and now_s >= self._over_s:
            self._continue(now_s)
        if self._over_s is not None and not self._pause():
            return False  # a tick is being sent
        found = is_idle()
        if found and self._over_s is not None:
            self._continue(now_s)
        return found

    def _continue(self, now_s: float) -> None:
        self._resume()
        self._over_s = None
        self._next_s = now_s + _TICKS_FOR * self._for_s
        self._for_s = min(2 * self._for_s, _PAUSE_MAX_S)


class Idle(End):
    """Says when everything that was recorded has landed and the watermarks say so too: a last tick is sent for that. If
    actions are recorded all the time, the answer is never yes.

    clusters: returns the names of the clusters to wait for, without those whose writer has ended. away_s: how long to
    wait for clusters, or their catalogs, that do not answer once nothing else is left to do. clock: monotonic seconds.
    pause, resume: as for `_QuietMoment`; by default nothing else ticks.
    """

    rests_within_s = math.inf

    def __init__(
        self,
        ports: Ports,
        config: Config,
        clusters: Callable[[], Iterable[str]],
        away_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        *,
        pause: Callable[[], bool] = lambda: True,
        resume: Callable[[], None] = lambda: None,
    ) -> None:
        self._ports = ports
        self._config = config
        self._ticker = ticker(ports, config)
        self._clusters = clusters
        self._away_s = away_s
        self._clock = clock
        self._quiet_moment = _QuietMoment(pause, resume, clock)
        self._waits_since_s: float | None = None
        self._settled_ms: int | None = None

    def _holds(self) -> bool:
        waited = [name for name in self._clusters() if name not in self.away]
        try:
            if self._settled_ms is None and self._quiet_moment.is_now(lambda: idle(self._ports, waited)):
                self._settled_ms = self._ticker.tick()
                return False
            if self._settled_ms is not None and _reach(self._ports, waited, self._settled_ms):
                return True
        except UnavailableError:
            pass  # a cluster is away: `_look_for_away` finds out which
        self._look_for_away(waited)
        return False

    def _look_for_away(self, waited: Sequence[str]) -> None:
        """Gives up clusters that have been away for `away_s` since there was nothing else to wait for, if there is
        nothing else now. Ticks come meanwhile, and are work for a moment: that says nothing of what is away.
        """
        if self._away_s == math.inf or not _quiet(self._ports, []):
            return
        found = {name: _matter(self._ports, self._config, name) for name in waited}
        away = {name: matter for name, matter in found.items() if matter is not None}
        if not away:
            self._waits_since_s = None
            return
        left = [group for matter in away.values() for group in matter.groups]
        if any(lag_of(self._ports.queue, *group) for group in left):
            return
        if not idle(self._ports, set(waited) - away.keys()):
            return
        if self._waits_since_s is None:
            self._waits_since_s = self._clock()
        if self._clock() - self._waits_since_s >= self._away_s:
            self.away = {**self.away, **{name: matter.why for name, matter in away.items()}}


class RecordedLanded(End):
    """Says when everything that had been recorded before the first question has landed, by the watermarks (rule 10),
    whatever is recorded meanwhile. clusters: returns the names of the clusters to wait for.
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
    """Says when everything that had been recorded before the first question has been relayed and has passed the
    expander, whatever is recorded meanwhile. It is then in the indexes, and expanded but for the rest of large fanouts.
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
            # The order matters: what was relayed before is in front of these ends.
            if follows.settled_ms() <= self._recorded_ms:
                return False
            self._ends = queue.ends(ACTIONS)
        positions = queue.earliest(ACTIONS) | queue.positions(ACTIONS, EXPANDER)
        return all(positions[partition] >= end for partition, end in self._ends.items())


class _Matter(NamedTuple):
    """Why something that must land in a cluster does not. groups: what else writes the cluster, and can do so."""

    why: str
    groups: Sequence[tuple[Topic[object], str]]


def _matter(ports: Ports, config: Config, cluster: str) -> _Matter | None:
    """What is the matter with a cluster; None if it answers, and so do its catalogs for which something waits. A worker
    can only ask for the notes of progress, and how far catalogs are.
    """
    try:
        Progress(ports.replicas[cluster].progress).watermark()
    except UnavailableError as error:
        return _Matter(f"cluster {cluster} does not answer: {error}", ())
    if not any(lag_of(ports.queue, *each) for each in ports.entering.get(cluster, ())):
        return None
    from feedstore.app import catalogs  # noqa: PLC0415 - a home without such catalogs does not pay for their library

    for name in config.catalogs:
        try:
            with closing(catalogs.place(config, name, cluster).reader()) as reader:
                reader.delta()
        except NotNowError as error:
            why = f"catalog {name} of cluster {cluster} does not answer: {error}"
            return _Matter(why, cluster_groups(cluster))
    return None


def _latest_ms(ports: Ports) -> int:
    """The time by the shard clock that is furthest ahead: everything that has committed in any shard is before it."""
    return max(ports.follows.now(shard) for shard in range(ports.follows.shards()))


def _reach(ports: Ports, clusters: Iterable[str], time_ms: int) -> bool:
    """Whether the watermark of each cluster has reached a time."""
    marks = (Progress(ports.replicas[name].progress).watermark() for name in clusters)
    return all(mark is not None and mark >= time_ms for mark in marks)
