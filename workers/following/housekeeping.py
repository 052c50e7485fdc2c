"""Housekeeping deletes what is no longer needed: expired rows, messages and dead letters, and feeds beyond the caps."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from feedstore.following import FEEDS, Limits
from feedstore.follows.store import FollowStore
from feedstore.metering import UNCOUNTED, Meter
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Sweep
from feedstore.widecolumn.progress import Progress
from workers.following import metrics
from workers.queue.port import DeadLetter, DeadLetters, Queue, Topic

_log = structlog.get_logger()

_ROWS_AT_ONCE = 5_000
_LETTERS_AT_ONCE = 100


@dataclass(frozen=True)
class LettersKept:
    """Bounds of the dead letters: their greatest age in ms, and their greatest number."""

    age_ms: int
    letters: int


class Housekeeper:
    """Deletes what the follow store, the queue and the dead letters no longer need. One is enough; several do no harm.

    readers: the groups that read each topic; no message that one of them still needs is dropped. wall_ms: this
    machine's clock, ms since 1970.
    """

    def __init__(
        self,
        follows: FollowStore,
        queue: Queue,
        dead: DeadLetters,
        limits: Limits,
        kept: LettersKept,
        readers: Mapping[Topic[object], Collection[str]],
        wall_ms: Callable[[], int],
        meter: Meter = UNCOUNTED,
    ) -> None:
        self._meter = meter
        for what in ("messages", "rows", "letters"):
            meter.add(metrics.EXPIRED, 0, what)
        self._dead = dead
        self._kept = kept
        self._wall_ms = wall_ms
        self._readers = readers
        self._follows = follows
        self._queue = queue
        self._limits = limits

    def forget(self) -> None:
        """Does a round. Raises FollowStoreUnavailableError, QueueError: a part may be done; do it again."""
        window_ms = self._limits.purge_window_ms
        # The queue's own clock decides: the follow store's clock may have been ahead for a moment, and never goes back.
        self._meter.add(metrics.EXPIRED, self._queue.expire(window_ms, self._readers), "messages")
        rows = _ROWS_AT_ONCE
        while rows >= _ROWS_AT_ONCE:
            rows = self._follows.expire(window_ms, _ROWS_AT_ONCE)
            self._meter.add(metrics.EXPIRED, rows, "rows")
        # A letter is too old only by both clocks: if one clock has jumped, a new letter looks old.
        expire_letters(self._dead, self._kept, min(self._wall_ms(), self._follows.now()), self._note_expired)
        self._meter.add(metrics.HOUSEKEEPING, 1)

    def _note_expired(self, letter: DeadLetter, why: str) -> None:
        self._meter.add(metrics.EXPIRED, 1, "letters")
        _log.error(
            "dead_letter.expired",
            letter=letter.id,
            topic=letter.topic,
            group=letter.group,
            reason=letter.reason,
            died_ms=letter.died_ms,
            why=why,
        )


def expire_letters(
    dead: DeadLetters, kept: LettersKept, now_ms: int, on_dropped: Callable[[DeadLetter, str], None]
) -> None:
    """Drops dead letters that are too old and, if there are too many, the oldest. on_dropped: is called with each
    letter that this call has dropped, and the reason. Any number of processes may do it at once.

    Raises QueueError: some may have gone; do it again.
    """
    while page := dead.letters(0, _LETTERS_AT_ONCE):
        # Counted after the page was read: letters that another process drops in between must not count as too many
        # again. If it drops letters after this, those are the same oldest ones.
        too_many = dead.count() - kept.letters
        for number, letter in enumerate(page):
            if number >= too_many and now_ms - letter.died_ms <= kept.age_ms:
                return
            if dead.drop(letter.id):
                on_dropped(letter, "too many" if number < too_many else "too old")


def sweep(
    replica: Replica, follows: FollowStore, limits: Limits, clock: Callable[[], float], meter: Meter = UNCOUNTED
) -> Sweep | None:
    """Trims one cluster, and drops masked versions and expired markers. None: the cluster does that by itself. It runs
    where the cluster's writer runs. clock: monotonic seconds.

    Raises UnavailableError, FollowStoreUnavailableError: do it again later.
    """
    began_s = clock()
    now_ms = follows.now()
    Progress(replica.progress).forget(now_ms - limits.purge_window_ms)
    replica.progress.sweep(now_ms)
    swept = replica.tables[FEEDS].sweep(now_ms)
    if swept is not None:
        meter.add(metrics.SWEEPS, 1, replica.name, "done")
        meter.note(metrics.SWEEP_SECONDS, clock() - began_s, replica.name)
        for reason in ("trimmed", "masked", "markers"):
            meter.add(metrics.SWEPT, getattr(swept, reason), replica.name, reason)
        _log.info("sweep.done", cluster=replica.name, **dataclasses.asdict(swept))
    return swept
