"""Pins for pages out of a catalog, and out of the follow store what the catalog cannot say."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from feedstore.catalog.pins import keys_of, live_pins, pin_of
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.catalog.reader import Catalog
from feedstore.domain import Pin
from feedstore.errors import NotNowError
from feedstore.follows.pin_source import Hydrated, PinSource
from feedstore.replicas.attempts import Attempt, Reads
from feedstore.replicas.breaker import Breaker

SOURCE_MAX: Final = 50
"""The most pins of one page that the follow store is asked for: its primaries must not drown when a catalog is away."""

CATALOG_SHARE: Final = 0.6
"""How much of a page's time the catalog may take if the follow store can be asked after it."""


class CatalogPins:
    """A `PinSource`. Thread-safe.

    source: what is asked for pins that the catalog has no record of, and for those that it does not answer; None: none.
    clock: of deadlines, in s.
    """

    def __init__(self, catalog: Catalog, source: "BoundedSource | None", clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._source = source
        self._clock = clock

    def look_up(self, pins: Sequence[int], deadline_s: float) -> Hydrated:
        """Of a pin without a record, which was saved a moment ago or never, the source decides. If it does not answer
        either, the pin is left out, as one that the feed does not show yet: `behind_ms` says so.

        Raises CatalogUnavailableError: neither answers for the first of them.
        """
        now_s = self._clock()
        until_s = deadline_s if self._source is None else now_s + CATALOG_SHARE * max(0.0, deadline_s - now_s)
        got = self._catalog.begin(keys_of(dict.fromkeys(pins)), until_s).result()
        found = live_pins(got.records)
        unanswered = {pin_of(key) for key in got.unanswered}
        if got.missing and self._source is not None:
            asked = [pin for pin in pins if pin not in found][:SOURCE_MAX]
            self._catalog.count_source(len(asked))
            found.update(self._source.look_up(asked, deadline_s))
        for key in got.missing - got.unanswered:
            found.setdefault(pin_of(key), None)
        if pins and pins[0] not in found:
            raise CatalogUnavailableError(f"pins cannot be looked up: {got.failure}") from got.failure
        answered = len(unanswered) < len({*pins})
        return Hydrated(found, got.behind_ms if answered else 0)


class BoundedSource:
    """The follow store as a fallback: it is waited for no longer than a page may wait, and left alone while it fails.
    Thread-safe.

    reads: how it is asked: on a bounded number of threads if it is across a network.
    """

    def __init__(self, source: PinSource, reads: Reads, clock: Callable[[], float]) -> None:
        self._source = source
        self._reads = reads
        self._clock = clock
        self._breaker = Breaker()
        self._lock = threading.Lock()

    def look_up(self, pins: Sequence[int], deadline_s: float) -> Mapping[int, Pin | None]:
        """Nothing, if it does not answer in time."""
        probe = False
        with self._lock:
            if self._breaker.state != "closed":
                probe = self._breaker.take_probe(self._clock())
                if not probe:
                    return {}
        ended: SimpleQueue[Attempt[Hydrated]] = SimpleQueue()
        attempt = Attempt("follows", partial(self._source.look_up, pins, deadline_s), ended.put, self._clock)
        if not self._reads.start(attempt):
            self._note(failed=True, probe=probe)
            return {}
        try:
            done = ended.get(timeout=max(0.0, deadline_s - self._clock()))
        except Empty:
            self._note(failed=True, probe=probe)
            return {}
        if done.error is not None:
            self._note(failed=True, probe=probe)
            if not isinstance(done.error, NotNowError):
                raise done.error
            return {}
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
