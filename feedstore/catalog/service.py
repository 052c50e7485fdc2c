"""The calls of a web tier about the catalogs of a home: their state, records by key, and which generation is in use.

What may be raised, sorted by what the caller should do:
- `UnknownCatalogError`: there is no such catalog.
- `CatalogRefusedError`: the request will never be right; a `SwapRefusedError` has a `reason`.
- `NoGenerationError`: an operator must build or load a generation.
- `CatalogUnavailableError`: not now. Repeat it, which is harmless.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from feedstore.catalog import swaps
from feedstore.catalog.counts import CatalogCounts
from feedstore.catalog.port import (
    CatalogError,
    CatalogRefusedError,
    CatalogStore,
    CatalogUnavailableError,
    NoGenerationError,
    TooFarBehindError,
)
from feedstore.catalog.reader import Catalog, Got
from feedstore.catalog.settings import kind_of
from feedstore.catalog.swaps import Swap
from feedstore.catalog.watch import CatalogWatch, Facts
from feedstore.errors import NeverError, NotNowError
from feedstore.replicas.attempts import Attempt, Reads


class UnknownCatalogError(CatalogError, NeverError):
    """There is no catalog of that name."""


class ServedCatalog(NamedTuple):
    """A catalog in a web process. watch: what its clusters last said. stores: for each cluster, a function that opens
    the store for a swap; the caller closes it.
    """

    catalog: Catalog[Any]
    watch: CatalogWatch
    stores: Mapping[str, Callable[[], CatalogStore]]


class CatalogState(NamedTuple):
    """facts: what each cluster said last; None: nothing yet. counts: of this process. heard_ms: this process has heard
    every update up to this time; None: that is not known, or it does not listen.
    """

    name: str
    facts: Mapping[str, Facts | None]
    counts: CatalogCounts
    cache_bytes: int
    heard_ms: int | None


class Swaps(NamedTuple):
    """The results of a swap in several clusters. done: by cluster. failed: the errors, by cluster."""

    done: Mapping[str, Swap]
    failed: Mapping[str, CatalogError]


class CatalogService:
    """Thread-safe.

    catalogs: by name, in the order of the configuration. swapping: the threads on which clusters are swapped, so that a
    cluster that hangs does not delay a rollback in another. clock: of deadlines, in s. clock_ms: of the source.
    """

    def __init__(
        self,
        catalogs: Mapping[str, ServedCatalog],
        swapping: Reads,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._catalogs = catalogs
        self._swapping = swapping
        self._clock = clock
        self.clock_ms = clock_ms

    def catalog(self, name: str) -> Catalog[Any]:
        """A catalog by name. Raises UnknownCatalogError."""
        return self._found(name).catalog

    def states(self) -> list[CatalogState]:
        """The states of all catalogs. Asks no cluster."""
        return [
            CatalogState(
                name, each.watch.facts(), each.catalog.counts(), each.catalog.cache_bytes(), each.catalog.heard_ms()
            )
            for name, each in self._catalogs.items()
        ]

    def get(self, name: str, keys: Sequence[bytes], deadline_s: float, max_behind_ms: int | None = None) -> Got[Any]:
        """The records of up to MAX_KEYS keys, as `Catalog.begin` and `Fetch.result` give them; keys that are not known
        are listed.

        Raises UnknownCatalogError, CatalogRefusedError; NoGenerationError, TooFarBehindError, CatalogUnavailableError:
        nothing is known of any key.
        """
        found = self._found(name)
        got = found.catalog.begin(keys, deadline_s, max_behind_ms).result()
        if got.failure is not None and len(got.unanswered) == len({*keys}):
            facts = found.watch.facts().values()
            is_there = isinstance(got.failure, TooFarBehindError)  # the facts of the clusters may be a second old
            if not is_there and all(each is not None and each.current is None for each in facts):
                raise NoGenerationError(f"no generation of the catalog {name} is in use: {kind_of(name).fill}")
            raise got.failure
        return got

    def use(self, name: str, generations: Mapping[str, str], deadline_s: float) -> Swaps:
        """Makes a generation current in each of the given clusters. generations: by cluster. The call may be repeated.

        Raises UnknownCatalogError; CatalogRefusedError: there is no such cluster.
        """
        return self._swap(name, generations, deadline_s, swaps.use)

    def roll_back(self, name: str, generations: Mapping[str, str], deadline_s: float) -> Swaps:
        """Makes the generation before the given one current in each of the given clusters. generations: by cluster, the
        wrong one that is in use; because it is named, a repeated call changes nothing more.

        Raises UnknownCatalogError; CatalogRefusedError: there is no such cluster.
        """
        return self._swap(name, generations, deadline_s, swaps.roll_back)

    def close(self) -> None:
        """Ends this: no new swap begins. The owner closes the catalogs."""
        self._swapping.close()

    def _found(self, name: str) -> ServedCatalog:
        try:
            return self._catalogs[name]
        except KeyError:
            raise UnknownCatalogError(f"no catalog {name!r}; there are: {', '.join(self._catalogs)}") from None

    def _swap(
        self, name: str, generations: Mapping[str, str], deadline_s: float, swap: Callable[[CatalogStore, str], Swap]
    ) -> Swaps:
        found = self._found(name)
        for cluster in generations:
            if cluster not in found.stores:
                raise CatalogRefusedError(f"no cluster {cluster!r}; there are: {', '.join(found.stores)}")
        ended: SimpleQueue[Attempt[Swap]] = SimpleQueue()
        left = dict.fromkeys(generations, CatalogUnavailableError("it did not answer in time, and may still do it"))
        done: dict[str, Swap] = {}
        failed: dict[str, CatalogError] = {}
        for cluster, generation in generations.items():
            one = partial(_swap_in, found, cluster, swap, generation)
            if not self._swapping.start(Attempt(cluster, one, ended.put, self._clock)):
                failed[cluster] = CatalogUnavailableError("too many swaps are under way")
                del left[cluster]
        while left:
            try:
                attempt = ended.get(timeout=max(0.0, deadline_s - self._clock()))
            except Empty:
                break
            del left[attempt.name]
            if attempt.error is None:
                done[attempt.name] = attempt.answer
            elif isinstance(attempt.error, CatalogError):
                failed[attempt.name] = attempt.error
            elif isinstance(attempt.error, NotNowError):
                failed[attempt.name] = CatalogUnavailableError(str(attempt.error))
            else:
                raise attempt.error
        return Swaps(done, failed | left)


def _swap_in(served: ServedCatalog, cluster: str, swap: Callable[[CatalogStore, str], Swap], generation: str) -> Swap:
    with closing(served.stores[cluster]()) as store:
        swapped = swap(store, generation)
        served.watch.note_generations(cluster, store.generations())
    return swapped
