"""Canaries: made-up users, one in each part of the feeds' table, who follow a made-up user with one pin again and
again.

Each follow goes the whole way: follow store, outbox, queue, expander, queue, the writer of each cluster. Then the row
is read where pages are read. Nothing grows: following again only gives an edge and its one cell a new time. The users
are in the follow store like all others, so that checks, repairs and rebuilds find what they expect.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from feedstore.domain import MAX_ID, RESERVED_FROM, Follow, Followed, Pin, SavePin, user
from feedstore.errors import NotNowError
from feedstore.following import FEEDS, bucket, row_key
from feedstore.following.witnesses import PARTS
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.metering import Meter
from feedstore.replicas.replicas import Replica
from workers.following import metrics

_log = structlog.get_logger()

LATE_S: Final = 60.0
"""A canary that takes longer than this counts as late, and is no longer waited for."""
_LOOK_S: Final = 0.01
"""The least time between two looks at a cluster."""
_LOOK_SHARE: Final = 0.05
"""The next look comes after this share of the time that has passed, so a measured time is too long by this share at
most."""
_LOOK_MOST_S: Final = 1.0
_NEWEST_S: Final = 0.02
"""How often the watch looks for new canaries; that asks no store."""

FOLLOWEE: Final = MAX_ID
PIN: Final = Pin(MAX_ID, MAX_ID, MAX_ID, 1)
"""The pin in their feeds: of the user FOLLOWEE, on a board with the same id, from 1970."""


def _of_each_part() -> tuple[int, ...]:
    """The largest reserved id in each part of the table, but for that of the followee."""
    found: dict[int, int] = {}
    for each in range(MAX_ID - 1, RESERVED_FROM - 1, -1):
        found.setdefault(bucket(each) * PARTS // 256, each)
    assert len(found) == PARTS
    return tuple(found[part] for part in range(PARTS))


USERS: Final = _of_each_part()


class Flown(NamedTuple):
    """A round of canaries that was recorded, with the time of each canary's edge. number: the number of the round."""

    number: int
    ts: Mapping[int, int]


def fly(follows: FollowStore, number: int) -> Flown:
    """Makes every canary follow again. Raises FollowStoreUnavailableError."""
    answers = follows.record([Request(SavePin(PIN)), *(Request(Follow(each, user(FOLLOWEE))) for each in USERS)])
    return Flown(number, {each.follower: each.ts for each in answers if isinstance(each, Followed)})


def arrived(replica: Replica, waiting: Mapping[int, int]) -> set[int]:
    """The canaries whose edge, or a later one, can be read in a cluster. waiting: the time of each canary's edge.
    Raises UnavailableError.
    """
    users = list(waiting)
    rows = replica.tables[FEEDS].cells_of([row_key(each) for each in users])
    newest = {each: max((cell.timestamp for cell in cells), default=0) for each, cells in zip(users, rows, strict=True)}
    return {each for each, ts in newest.items() if ts >= waiting[each]}


class CanaryFlights:
    """Makes the canaries follow again. clusters: the clusters in which they are looked for.

    newest: the last round. Other threads may read it.
    """

    def __init__(self, follows: FollowStore, clusters: list[str], meter: Meter) -> None:
        self._follows = follows
        self._clusters = clusters
        self._meter = meter
        self.newest = Flown(0, {})

    def fly(self) -> None:
        """Begins a round. Counts a FollowStoreUnavailableError, and raises it."""
        try:
            self.newest = fly(self._follows, self.newest.number + 1)
        except NotNowError:
            for cluster in self._clusters:
                self._meter.add(metrics.CANARIES, len(USERS), cluster, "unrecorded")
            raise


class CanaryWatch:
    """Looks for the canaries in one cluster, as its readers do. now_ms: the time of the home."""

    def __init__(
        self,
        replica: Replica,
        flights: CanaryFlights,
        meter: Meter,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.name = f"canary-{replica.name}"
        self._replica = replica
        self._flights = flights
        self._meter = meter
        self._clock = clock
        self._now_ms = now_ms
        self._flown = Flown(0, {})
        self._waiting: dict[int, int] = {}
        self._began_s = self._look_s = clock()
        self._unreadable = False
        meter.since(metrics.CANARY_AGE, clock(), replica.name)
        meter.observe(metrics.CANARY_SECONDS, [], replica.name)
        for outcome in ("seen", "late", "unreadable", "unrecorded"):
            meter.add(metrics.CANARIES, 0, replica.name, outcome)

    @property
    def rest_s(self) -> float:
        return _LOOK_S if self._waiting else _NEWEST_S

    def step(self) -> bool:
        """Looks if it is time; False, so that a rest follows."""
        now_s = self._clock()
        if not self._waiting:
            flown = self._flights.newest
            if flown.number == self._flown.number:
                return False
            self._flown, self._waiting, self._unreadable = flown, dict(flown.ts), False
            self._began_s = self._look_s = now_s
        if now_s < self._look_s:
            return False
        self._look()
        ended_s = self._clock()
        self._look_s = ended_s + min(_LOOK_MOST_S, _LOOK_SHARE * (ended_s - self._began_s))
        if self._waiting and ended_s - self._began_s >= LATE_S:
            self._count(len(self._waiting), "unreadable" if self._unreadable else "late")
            _log.warning("canary.late", cluster=self._replica.name, parts=len(self._waiting))
            self._waiting = {}
        return False

    def _look(self) -> None:
        try:
            seen = arrived(self._replica, self._waiting)
        except NotNowError:
            self._unreadable = True
            return
        self._unreadable = False
        now_ms = self._now_ms()
        self._meter.observe(
            metrics.CANARY_SECONDS, [max(0, now_ms - self._waiting[each]) / 1_000 for each in seen], self._replica.name
        )
        self._count(len(seen), "seen")
        for each in seen:
            del self._waiting[each]
        if not self._waiting:
            oldest_ms = min(self._flown.ts.values())
            at_s = self._clock() - (now_ms - oldest_ms) / 1_000
            self._meter.since(metrics.CANARY_AGE, at_s, self._replica.name)

    def _count(self, canaries: int, outcome: str) -> None:
        self._meter.add(metrics.CANARIES, canaries, self._replica.name, outcome)

    def close(self) -> None:
        """Nothing to release."""
