"""Several clusters' catalogs read as one: hedged, with breakers, as pages are (`feedstore.replicas`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feedstore.catalog.port import CatalogReader, CatalogUnavailableError, Fetched
from feedstore.replicas.attempts import InPlace, Reads
from feedstore.replicas.contest import Contest


@dataclass(frozen=True)
class CatalogSource:
    """The catalog of one cluster, and how it is read. name: of the cluster."""

    name: str
    reader: CatalogReader
    reads: Reads


class CatalogReplicas:
    """A CatalogFetcher. Thread-safe.

    sources: in the order of preference. One of them answers a whole batch, so a batch is of one generation of one
    cluster. within_s: how long a call without a deadline may take. clock: of deadlines, in s.
    """

    def __init__(self, sources: Sequence[CatalogSource], within_s: float, clock: Callable[[], float]) -> None:
        self._readers = {each.name: each.reader for each in sources}
        self._in_place = {each.name: each.reader for each in sources if type(each.reads) is InPlace}
        reads = {each.name: each.reads for each in sources}
        self._contest = Contest(reads, within_s, clock, CatalogUnavailableError, CatalogUnavailableError)

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None, oldest_ms: int = 0) -> Fetched:
        newest = answer = self._fetch(keys, deadline_s)
        asked: set[str] = set()
        while answer.known_ms < oldest_ms:
            asked.add(answer.cluster)
            candidates = self._contest.health.candidates
            # One that is not well may hang until the deadline, and there is an answer.
            left_out = [each.name for each in candidates if each.name in asked or not each.is_well]
            if len(left_out) == len(candidates):
                break
            try:
                answer = self._first(keys, deadline_s, [(name, "not asked for a newer answer") for name in left_out])
            except CatalogUnavailableError:
                break
            newest = max(newest, answer, key=lambda each: each.known_ms)
        return newest

    def _fetch(self, keys: Sequence[bytes], deadline_s: float | None) -> Fetched:
        failed = []
        quiet = self._contest.health.quiet
        if quiet in self._in_place:
            # Unlike for a page, nothing about this read is noted.
            try:
                return self._in_place[quiet].fetch(keys, deadline_s)._replace(cluster=quiet)
            except CatalogUnavailableError as error:
                self._contest.health.failed(quiet)
                failed = [(quiet, str(error))]
        return self._first(keys, deadline_s, failed)

    def _first(self, keys: Sequence[bytes], deadline_s: float | None, failed: Sequence[tuple[str, str]]) -> Fetched:
        name, fetched = self._contest.first(
            lambda name, until_s: self._readers[name].fetch(keys, until_s), deadline_s, failed
        )
        return fetched._replace(cluster=name)

    def set_known(self, name: str, known_ms: int | None) -> None:
        """Notes up to when a cluster's updates are complete: one that is far behind another is asked after it."""
        self._contest.health.set_watermark(name, known_ms)

    def close(self) -> None:
        """Begins nothing new, and closes the readers."""
        self._contest.close()
        for reader in self._readers.values():
            reader.close()
