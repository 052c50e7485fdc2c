"""Pins for pages: from a catalog, and from the follow store if the catalog lacks them or does not answer."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, cast

from feedstore.catalog.pins import HeldPin
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.catalog.reader import Catalog, Got
from feedstore.domain import Pin
from feedstore.errors import NotNowError
from feedstore.follows.pin_source import Hydrated, PinSource
from feedstore.replicas.attempts import Attempt, Reads
from feedstore.replicas.breaker import Breaker

SOURCE_MAX: Final = 50
"""The most pins of one page that the follow store is asked for, as a catalog that is away must not overload it."""

CATALOG_SHARE: Final = 0.6
"""The share of a page's time that the catalog may take if the follow store can be asked after it."""


class CatalogPins:
    """A `PinSource`. Thread-safe.

    source: is asked for pins that have no record in the catalog, or for which the catalog does not answer; None: no
    source is asked. clock: of deadlines, in s.
    """

    def __init__(self, catalog: Catalog[HeldPin], source: "BoundedSource | None", clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._source = source
        self._clock = clock

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Hydrated:
        """The pins. A pin without a record was saved a moment ago or never: the source decides. If the source does not
        answer either, the pin is left out, as if the feed did not show it yet: `behind_ms` covers that.

        Raises CatalogUnavailableError: neither answers for the first of them.
        """
        held = self._catalog.all_held(pins)
        if held is not None:
            # No pin here is deleted: `all_held` does not count `False` as a record.
            return Hydrated(cast("Sequence[Pin]", held.records), held.behind_ms)
        now_s = self._clock()
        until_s = deadline_s if self._source is None else now_s + CATALOG_SHARE * max(0.0, deadline_s - now_s)
        got = self._catalog.begin(pins, until_s).result()
        if not got.missing:
            known = [pin or None for pin in map(got.records.get, pins)]
            return Hydrated(known, got.behind_ms if known else 0)
        return self._completed(pins, got, deadline_s)

    def _completed(self, pins: Sequence[bytes], got: Got[HeldPin], deadline_s: float) -> Hydrated:
        """The pins of a page if some have no record, or no answer: asks the source for those."""
        lacking = [pin for pin in pins if pin in got.missing]
        there: dict[bytes, Pin | None] = {}
        if self._source is not None:
            asked = list(dict.fromkeys(lacking))[:SOURCE_MAX]
            self._catalog.counting.source(len(asked))
            there = dict(zip(asked, self._source.look_up(asked, deadline_s), strict=False))
        found: list[Pin | None] = []
        for pin in pins:
            if pin in got.records:
                found.append(got.records[pin] or None)
            elif pin in there or pin not in got.unanswered:
                found.append(there.get(pin))
            else:
                break
        if not found:
            raise CatalogUnavailableError(f"pins cannot be looked up: {got.failure}") from got.failure
        answered = len(got.unanswered) < len({*pins})
        return Hydrated(found, got.behind_ms if answered else 0)


class BoundedSource:
    """The follow store as a fallback: a page waits for it until its deadline at most, and it is not asked while it
    fails. Thread-safe.

    reads: how the store is called: on a bounded number of threads if it is across a network.
    """

    def __init__(self, source: PinSource, reads: Reads, clock: Callable[[], float]) -> None:
        self._source = source
        self._reads = reads
        self._clock = clock
        self._breaker = Breaker()
        self._lock = threading.Lock()

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Sequence[Pin | None]:
        """The pins; an empty sequence if the store does not answer in time."""
        probe = False
        with self._lock:
            if self._breaker.state != "closed":
                probe = self._breaker.take_probe(self._clock())
                if not probe:
                    return []
        ended: SimpleQueue[Attempt[Hydrated]] = SimpleQueue()
        attempt = Attempt("follows", partial(self._source.look_up, pins, deadline_s), ended.put, self._clock)
        if not self._reads.start(attempt):
            self._note(failed=True, probe=probe)
            return []
        try:
            done = ended.get(timeout=max(0.0, deadline_s - self._clock()))
        except Empty:
            self._note(failed=True, probe=probe)
            return []
        if done.error is not None:
            self._note(failed=True, probe=probe)
            if not isinstance(done.error, NotNowError):
                raise done.error
            return []
        self._note(failed=False, probe=probe)
        return done.answer.pins

    def close(self) -> None:
        self._reads.close()

    def _note(self, *, failed: bool, probe: bool) -> None:
        with self._lock:
            if failed:
                self._breaker.failed(self._clock(), probe=probe)
            else:
                self._breaker.succeeded()
