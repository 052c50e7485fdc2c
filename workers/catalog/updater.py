"""Keeps a catalog fresh: each recorded action, or posted update, is entered into the delta of one cluster.

The delta says how far it is, and the queue says how far its group is; one of them may have been put back from a copy.
So each time the updater begins, the group goes back to what the delta knows: updates may be repeated. It begins again
if the delta suddenly knows less. If the queue no longer keeps these messages, there is a gap, and the delta notes it: a
later generation heals it. The topic may also have been removed and made again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import structlog

from feedstore.catalog.port import MAX_KEYS, CatalogStore, Update
from feedstore.catalog.posting import AHEAD_MAX_MS
from feedstore.portions import chunks
from workers.catalog.messages import Posted
from workers.pipeline.ticks import KnownPartitions, Tick
from workers.queue.port import GroupBusyError, Queue, Topic, lost_of, reset, rewind

_log = structlog.get_logger()

Body = TypeVar("Body")

CLOCKS_APART_MS: Final = 10_000
"""The clocks of the source and of the queue differ by less than this."""

_THE_CATALOG: Final = frozenset({0})
_NOTHING: Final = frozenset[int]()

_AHEAD_AGAIN_MS: Final = 600_000
"""A tick that is ahead is logged only if none was for this long: otherwise each would be a line of the log."""


class UpdateSlots(Generic[Body]):
    """The slots of a catalog, as a stage asks for them: it is one slot. A message that says nothing to it needs none:
    so it neither waits if the catalog is away, nor shows that the catalog answers.

    updates_of: returns what a message says to the catalog.
    """

    count = 1

    def __init__(self, updates_of: Callable[[Body], Iterable[Update]]) -> None:
        self._updates_of = updates_of

    def needed(self, body: Body) -> frozenset[int]:
        return _THE_CATALOG if any(True for _ in self._updates_of(body)) else _NOTHING

    def divided(self, body: Body, slots: frozenset[int]) -> None:
        """None: no message needs several slots."""

    def halved(self, body: Body) -> None:
        """None: a message is entered as a whole."""


class OlderDeltaError(Exception):
    """The delta knows less than before: it was put back from a copy, or lost."""


def updater_group(catalog: str, cluster: str) -> str:
    return f"catalog-{catalog}-{cluster}"


class Updater(Generic[Body]):
    """Enters updates into a catalog that has a builder: the next generation mends a gap. Used by one thread.

    store: the catalog in one cluster; if it is in files, this process owns its delta. updates_of: returns what a
    message says to the catalog. now: the time by the clock that dates ticks and the queue's messages. kept_ms: the
    least time for which the queue keeps messages.
    """

    takes_all_kept = False
    """Whether the messages that the queue keeps are read even for a delta that knows nothing."""

    def __init__(
        self,
        store: CatalogStore,
        updates_of: Callable[[Body], Iterable[Update]],
        queue: Queue,
        topic: Topic[object],
        group: str,
        now: Callable[[], int],
        kept_ms: int,
    ) -> None:
        self._store = store
        self._updates_of = updates_of
        self._queue = queue
        self._topic: Topic[object] = topic
        self._known = KnownPartitions(queue, topic)
        self._group = group
        self._now = now
        self._kept_ms = kept_ms
        self._known_ms = 0
        """What the delta knew when this looked last."""
        self._ahead_ms = -_AHEAD_AGAIN_MS
        """When the latest tick that was ahead came."""

    def begin(self) -> None:
        """Moves the group back to what its delta knows, and notes a gap if messages are gone. Call it before the
        group's consumer is made.

        Raises CatalogUnavailableError, QueueUnavailableError, GroupBusyError, and the errors of `now`: later.
        """
        known_ms = self._store.delta().known_ms
        now_ms = self._now()
        lost: int | None = lost_of(self._queue, self._topic, self._group)
        if known_ms and self._is_another_topic(known_ms):
            lost = None  # an unknown number
        self._note_gaps(known_ms, now_ms, lost)
        try:
            if lost:
                reset(self._queue, self._topic, self._group)
            if known_ms or self.takes_all_kept:
                again = rewind(self._queue, self._topic, self._group, max(1, known_ms - CLOCKS_APART_MS))
                _log.info("catalog.begins", group=self._group, messages_again=again)
        except GroupBusyError:
            # Another member has already gone back, unless the delta was put back since: then all must leave the group
            # first, as each will with its next tick. Lost messages are passed over only while there is no member: one
            # that is given such a partition leaves, and must not join again before that.
            if lost or known_ms < self._known_ms:
                raise
        self._known_ms = known_ms

    def enter(self, bodies: Iterable[Body]) -> None:
        """Enters the updates of messages; durable when it returns. Raises CatalogUnavailableError: enter all again."""
        updates = [update for body in bodies for update in self._updates_of(body)]
        for some in chunks(updates, MAX_KEYS):
            self._store.update(some)

    def tick(self, ticks: Sequence[tuple[int, Tick]]) -> None:
        """Notes how far each partition is; other members of the group hear the ticks of other partitions. A tick that
        is ahead of the source's time is ignored, and logged: it is from before a clock was set back, or from a machine
        whose clock is ahead. So is a tick of partitions that do not exist, without a line.

        Raises:
            OlderDeltaError: begin again.
            CatalogUnavailableError: note all again.
        """
        known_ms = self._store.delta().known_ms
        if known_ms < self._known_ms:
            raise OlderDeltaError(f"the delta knew every update up to {self._known_ms}, and now up to {known_ms}")
        now_ms = self._now()
        latest: dict[tuple[int, int], int] = {}
        for _, tick in ticks:
            if tick.settled_ms > now_ms + CLOCKS_APART_MS:
                self._tell_ahead(tick.settled_ms, now_ms)
            elif self._known.had(tick):
                place = tick.source, tick.sources
                latest[place] = max(tick.settled_ms, latest.get(place, 0))
        for (source, sources), settled_ms in latest.items():
            self._store.note_known(settled_ms - 1, source, sources)
        self._known_ms = self._store.delta().known_ms

    def _tell_ahead(self, tick_ms: int, now_ms: int) -> None:
        if now_ms - self._ahead_ms >= _AHEAD_AGAIN_MS:
            _log.warning("catalog.tick_ahead", group=self._group, ahead_ms=tick_ms - now_ms)
        self._ahead_ms = now_ms

    def _is_another_topic(self, known_ms: int) -> bool:
        """Whether the topic was made again since the delta knew this. The group has positions from its first read on,
        and they go with their topic. If somebody deleted only these, the topic still has messages from before.
        """
        if self._queue.positions(self._topic, self._group):
            return False
        earliest, ends = self._queue.earliest(self._topic), self._queue.ends(self._topic)
        later = ends | self._queue.since(self._topic, max(1, known_ms - CLOCKS_APART_MS))
        return any(later[partition] <= first for partition, first in earliest.items())

    def _note_gaps(self, known_ms: int, now_ms: int, lost: int | None) -> None:
        """lost: how many messages are gone; None: that is unknown."""
        if lost != 0:
            self._warn(now_ms, lost)
        if lost != 0 or known_ms < now_ms - self._kept_ms:
            # An action that committed before now may be in the queue before the first message that is read from here
            # on.
            self._store.note_gap(now_ms)

    def _warn(self, until_ms: int, lost: int | None) -> None:
        _log.warning("catalog.gap", group=self._group, until_ms=until_ms, messages_lost=lost)


class PostedUpdater(Updater[Posted]):
    """Enters updates that are posted to one catalog.

    These catalogs have no builder: only a file from their source mends a gap. So a gap is noted only if the queue no
    longer keeps messages. If the topic has lost nothing yet, the delta is complete from the first update, and takes a
    generation of any age.
    """

    takes_all_kept = True

    def _note_gaps(self, known_ms: int, now_ms: int, lost: int | None) -> None:
        # An update may have a date later than the moment at which it was posted.
        if lost != 0:
            gone_ms = now_ms + AHEAD_MAX_MS
        elif any(self._queue.earliest(self._topic).values()):
            gone_ms = max(1, now_ms - self._kept_ms + AHEAD_MAX_MS)
        else:
            gone_ms = 1  # nothing is gone
        if not known_ms:
            # First, the group gets its positions: without them, a delta that knows something has lost its topic.
            self._queue.consumer(self._topic, self._group).close()
            sources = self._queue.partitions(self._topic)
            for source in range(sources):
                self._store.note_known(gone_ms, source, sources)
        if lost != 0 or (gone_ms > 1 and 0 < known_ms < now_ms - self._kept_ms):
            self._warn(gone_ms, lost)
            self._store.note_gap(gone_ms)


def posted_to(catalog: str) -> Callable[[Posted], Iterable[Update]]:
    """Makes the function that returns what a message says to one catalog."""
    return lambda posted: posted.said() if posted.catalog == catalog else ()
