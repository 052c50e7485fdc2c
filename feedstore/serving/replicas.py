"""One read of one row, by whichever cluster answers first.

The preferred cluster is asked; another one at once where that raises, or after a short wait where it says nothing (a
*hedge*). Who is asked and when is decided in `choice`; here it is done.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

import msgspec

from feedstore.feeds import Replica
from feedstore.feeds.behind import behind_ms
from feedstore.serving.attempts import Attempt, InPlace, Reads, Told
from feedstore.serving.choice import Standing, Turn
from feedstore.serving.hedging import HEDGE_S_MAX, Pace
from feedstore.serving.ledger import Ledger, Tally
from feedstore.widecolumn import UnavailableError

ATTEMPT_S_MIN = 0.25
"""A read goes on for so long, even where its page has hardly any time: a gateway is not to be judged by our hurry."""


class DeadlineExceededError(UnavailableError):
    """No cluster answered in time."""


class Answer(msgspec.Struct, frozen=True):
    """The columns that were read, by whom, and how far that cluster may be behind (None: unknown)."""

    columns: Sequence[bytes]
    served_by: str
    behind_ms: int | None


@dataclass(frozen=True)
class Source:
    """A cluster, and how its reads are made."""

    replica: Replica
    reads: Reads


class Replicas:
    """Thread-safe.

    sources: in the order of preference. clock_ms: that of the watermarks. within_s: how long a read may take that
    brings no deadline of its own. clock: that of the deadlines, in s; `time.monotonic` if a cluster is across a
    network, because its sockets wait by that.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        clock_ms: Callable[[], int],
        within_s: float,
        clock: Callable[[], float],
    ) -> None:
        if not sources:
            raise ValueError("sources: expected at least one")
        self._sources = {source.replica.name: source for source in sources}
        self._in_place = {name: each.replica for name, each in self._sources.items() if type(each.reads) is InPlace}
        self._clock_ms = clock_ms
        self._within_s = within_s
        self._watermarks: dict[str, int | None] = dict.fromkeys(self._sources)
        self._clock = clock
        self._ledger = Ledger(list(self._sources), clock)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> Answer:
        """As `WideColumnStore.read`, of the feeds.

        deadline_s: a time of the clock. A cluster in files of this machine does not look at it.

        Raises:
            DeadlineExceededError: an UnavailableError.
            UnavailableError: every cluster failed, or has too many reads under way.
        """
        name = self._ledger.quiet
        replica = None if name is None else self._in_place.get(name)
        if replica is None:
            return self._race(row, after, limit, deadline_s)
        # Heard of before the read: what is heard of meanwhile may count what landed after the row was read.
        watermark_ms = self._watermarks[replica.name]
        try:
            return Answer(replica.feeds.read(row, after, limit), replica.name, self._behind_ms(watermark_ms))
        except UnavailableError as error:
            self._ledger.failed(replica.name)
            return self._race(row, after, limit, deadline_s, (replica.name, str(error)))

    def standing_in(self, row: bytes, column: bytes, deadline_s: float) -> dict[str, bool | None]:
        """In which clusters a column stands; None where one does not answer. Each is asked, whatever is known of it:
        for people who want to know, not for pages.
        """
        before = (int.from_bytes(column, "big") - 1).to_bytes(len(column), "big")
        found: dict[str, bool | None] = {}
        for name, source in self._sources.items():
            try:
                found[name] = list(source.replica.feeds.read(row, before, 1, deadline_s)) == [column]
            except UnavailableError:
                found[name] = None
        return found

    def behind_ms(self, name: str) -> int | None:
        """How far a cluster may be behind, by what was heard of it last; None where that is unknown."""
        return self._behind_ms(self._watermarks[name])

    def heard(self, name: str, watermark_ms: int | None) -> None:
        """Notes a cluster's watermark."""
        self._watermarks[name] = watermark_ms
        self._ledger.heard(name, watermark_ms)

    def first(self) -> str:
        """The cluster that a read would ask now."""
        return self._ledger.turns[0].name

    def standing(self) -> list[Standing]:
        """Of every cluster, in the order of preference."""
        return self._ledger.standing()

    def tally(self) -> Tally:
        return self._ledger.tally()

    def close(self) -> None:
        for source in self._sources.values():
            source.reads.close()

    def _race(
        self,
        row: bytes,
        after: bytes | None,
        limit: int,
        deadline_s: float | None,
        failed: tuple[str, str] | None = None,
    ) -> Answer:
        """failed: a cluster that has failed already, and how."""
        began_s = self._clock()
        deadline_s = began_s + self._within_s if deadline_s is None else deadline_s
        until_s = max(deadline_s, began_s + ATTEMPT_S_MIN)
        watermarks_ms = self._watermarks.copy()  # before any read, as in `read`

        def attempt(name: str, told: Told, *, is_probe: bool = False) -> Attempt | None:
            source = self._sources[name]
            read = partial(source.replica.feeds.read, row, after, limit, until_s)
            made = Attempt(name, read, told, self._clock, is_probe=is_probe)
            return made if source.reads.start(made) else None

        turns, hedge_after_s, probe = self._ledger.begin()
        if probe is not None and attempt(probe, self._ledger.ended, is_probe=True) is None:
            self._ledger.failed(probe, probe=True)
        race = _Race(self._ledger, attempt, Pace(hedge_after_s), self._clock)
        if failed is not None:
            turns = [turn for turn in turns if turn.name != failed[0]]
            race.failures.append(": ".join(failed))
        winner = race.run(turns, deadline_s)
        return Answer(winner.columns, winner.name, self._behind_ms(watermarks_ms[winner.name]))

    def _behind_ms(self, watermark_ms: int | None) -> int | None:
        return behind_ms(watermark_ms, self._clock_ms())


class _Begin(Protocol):
    def __call__(self, name: str, told: Told) -> Attempt | None:
        """Begins an attempt; None where it could not."""
        ...


class _Race:
    """The attempts of one read. failures: what became of those that failed."""

    def __init__(self, ledger: Ledger, begin: _Begin, pace: Pace, clock: Callable[[], float]) -> None:
        self.failures: list[str] = []
        self._ledger = ledger
        self._begin = begin
        self._pace = pace
        self._clock = clock
        self._ended: SimpleQueue[Attempt] = SimpleQueue()
        self._under_way: list[Attempt] = []

    def run(self, turns: Sequence[Turn], deadline_s: float) -> Attempt:
        """The first attempt that succeeds."""
        left = deque(turns)
        while left or self._under_way:
            now_s = self._clock()
            if now_s >= deadline_s:
                self._ledger.overtaken([each for each in self._under_way if now_s - each.began_s > HEDGE_S_MAX])
                raise DeadlineExceededError("; ".join(["no cluster answered in time", *self.failures]))
            if left and (not self._under_way or now_s >= self._pace.due_s):
                self._ask_next(left, now_s)
                continue
            until_s = min(self._pace.due_s, deadline_s) if left else deadline_s
            try:
                attempt = self._ended.get(timeout=until_s - now_s)
            except Empty:
                continue
            self._under_way.remove(attempt)
            if attempt.error is None:
                self._ledger.overtaken(self._under_way)
                return attempt
            if not isinstance(attempt.error, UnavailableError):
                raise attempt.error
            self.failures.append(f"{attempt.name}: {attempt.error}")
        raise UnavailableError("no cluster answered: " + "; ".join(self.failures))

    def _ask_next(self, left: "deque[Turn]", now_s: float) -> None:
        is_hedge = bool(self._under_way)
        if is_hedge and self._pace.is_early(now_s) and not (left[0].is_well and self._ledger.may_hedge()):
            self._pace.put_off()
            return
        name = left.popleft().name
        if is_hedge or self.failures:
            self._ledger.count(hedge=is_hedge)
        self._pace.asked(now_s)
        begun = self._begin(name, self._told)
        if begun is None:
            self.failures.append(f"{name}: too many reads are under way")
        else:
            self._under_way.append(begun)

    def _told(self, attempt: Attempt) -> None:
        self._ledger.ended(attempt)
        self._ended.put(attempt)
