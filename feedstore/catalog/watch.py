"""What each cluster last said of a catalog, so that reports need not ask; and whether it rolled back."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Final, NamedTuple

from feedstore.background import answer_of, on_a_thread
from feedstore.catalog import rule
from feedstore.catalog.port import CatalogUnavailableError, Delta, Generation, NoGenerationError
from feedstore.catalog.replicas import CatalogSource
from feedstore.clocks import behind_ms

OPENED_WITHIN_S: Final = 1.0
"""A look waits this long for what is in use to be opened. If that takes longer, rollbacks must be heard meanwhile."""


class Facts(NamedTuple):
    """What a cluster said. generations: those that are kept, oldest first. answered_ms: when the cluster answered, by
    the source's clock. swaps: how often this process has seen another generation come into use.
    """

    generations: Sequence[Generation]
    delta: Delta
    answered_ms: int
    swaps: int = 0

    @property
    def current(self) -> Generation | None:
        """The generation that fetches read; None: none is in use."""
        return next((each for each in self.generations if each.current), None)

    def after(self, before: "Facts | None") -> "Facts":
        """These facts with the swaps seen before, and one more if the current generation has changed."""
        if before is None:
            return self
        ids = [None if each.current is None else each.current.id for each in (before, self)]
        return self._replace(swaps=before.swaps + (ids[0] != ids[1]))

    @property
    def watermark_ms(self) -> int | None:
        """Reads see every update up to this time. None if that is unknown: the delta may have come back empty. After a
        gap, this is the as_of of the current generation, however new the last update is.
        """
        current, known_ms = self.current, self.delta.known_ms
        if current is None or not known_ms:
            return known_ms or None
        return rule.known_ms(current.as_of_ms, known_ms, self.delta.floor_ms)

    def behind_ms(self, now_ms: int) -> int | None:
        """How far this cluster is behind: reads see every change that is older than this. None if that is unknown, or
        no generation is in use.
        """
        current = self.current
        if current is None:
            return None
        return behind_ms(rule.known_ms(current.as_of_ms, self.delta.known_ms, self.delta.floor_ms), now_ms)


class CatalogWatch:
    """Thread-safe. names: of the clusters, in the order of preference. rolled_back: called when an older generation has
    come into use in one of them, as `Catalog.rolled_back`. clock_ms: of the source.
    """

    def __init__(self, names: Sequence[str], rolled_back: Callable[[], None], clock_ms: Callable[[], int]) -> None:
        self._rolled_back = rolled_back
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._facts: dict[str, Facts | None] = dict.fromkeys(names)
        self._swaps = 0
        self._rollbacks: dict[str, int] = {}
        """The last number of rollbacks that each cluster gave."""
        self._opening: dict[str, Future[None]] = {}
        """What is being opened, by cluster."""

    def look(self, source: CatalogSource) -> int | None:
        """Asks a cluster, and returns up to when its updates are complete; None if that is unknown. Waits for the
        cluster: call it on a thread of the cluster's own. source: must have the reader that the catalog fetches with;
        with another one, a fetch that begins after a rollback was noticed could still read what was rolled back.

        Raises CatalogUnavailableError: the cluster did not answer, and what it said before is kept; or what is in use
        there cannot be read, or is not open yet.
        """
        try:
            facts = self._note_facts(source)
        finally:
            # Even if the rest fails: what was rolled back must not be shown any longer.
            self._hear_rollbacks(source)
        with suppress(NoGenerationError):
            self._open(source)  # last, because it may take long once another generation is in use
        return facts.watermark_ms

    def _note_facts(self, source: CatalogSource) -> Facts:
        with self._lock:
            swaps = self._swaps
        delta = source.reader.delta()
        facts = Facts(source.reader.generations(), delta, self._clock_ms())
        with self._lock:
            if self._swaps == swaps:  # otherwise these facts may be from before the swap
                self._facts[source.name] = facts.after(self._facts[source.name])
        return facts

    def _hear_rollbacks(self, source: CatalogSource) -> None:
        rollbacks = source.reader.rollbacks()
        if self._rollbacks.setdefault(source.name, rollbacks) != rollbacks:
            self._rollbacks[source.name] = rollbacks
            self._rolled_back()

    def _open(self, source: CatalogSource) -> None:
        opening = self._opening.get(source.name)
        if opening is None:
            try:
                opening = answer_of(source.reader.check, on_a_thread(f"catalog-open-{source.name}"))
            except RuntimeError as error:
                raise CatalogUnavailableError(str(error)) from error
            self._opening[source.name] = opening
        try:
            opening.result(OPENED_WITHIN_S)
        except FutureTimeoutError as error:
            raise CatalogUnavailableError("what is in use is not open yet") from error
        finally:
            if opening.done():
                del self._opening[source.name]

    def note_generations(self, cluster: str, generations: Sequence[Generation]) -> None:
        """Takes the generations that a swap of this process has left, without waiting for the next look."""
        with self._lock:
            self._swaps += 1
            facts = self._facts[cluster]
            if facts is not None:
                self._facts[cluster] = facts._replace(generations=generations).after(facts)

    def facts(self) -> dict[str, Facts | None]:
        """The facts by cluster; None: it has not answered yet."""
        with self._lock:
            return dict(self._facts)
