"""The clusters as a reader sees them, and one read of one row of a table that all of them have."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from feedstore.clocks import APART_MAX_MS, behind_ms
from feedstore.errors import OF_ANOTHER_PROCESS
from feedstore.replicas.attempts import InPlace, Reads
from feedstore.replicas.contest import Contest
from feedstore.replicas.health import ReadCounters, ReplicaStatus
from feedstore.tracing import UNTRACED, Tracer
from feedstore.widecolumn import UnavailableError, WideColumnStore
from feedstore.widecolumn.progress import PROGRESS, known_ms


class DeadlineExceededError(UnavailableError):
    """No cluster answered in time."""


@dataclass(frozen=True)
class Replica:
    """One cluster as a reader sees it. tables: by their names; the table of its progress is one of them."""

    name: str
    tables: Mapping[str, WideColumnStore]

    @property
    def progress(self) -> WideColumnStore:
        return self.tables[PROGRESS]


class Answer(msgspec.Struct, frozen=True):
    """The columns, the cluster that served them, and how far it may be behind (None: unknown)."""

    columns: Sequence[bytes]
    served_by: str
    behind_ms: int | None


@dataclass(frozen=True)
class ReplicaSource:
    """A cluster, and how its reads are made."""

    replica: Replica
    reads: Reads


class Replicas:
    """Reads of one row each: the first cluster that answers counts. Thread-safe.

    sources: in the order of preference. clock_ms: the clock of the watermarks. within_s: how long a read without a
    deadline may take. clock: the clock of deadlines, in s; `time.monotonic` if a cluster is across a network, because
    its sockets use that. tracer: gets a span of each cluster that is asked.
    """

    def __init__(
        self,
        sources: Sequence[ReplicaSource],
        clock_ms: Callable[[], int],
        within_s: float,
        clock: Callable[[], float],
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._process = os.getpid()
        self._sources = {source.replica.name: source for source in sources}
        self._in_place = {
            name: each.replica.tables for name, each in self._sources.items() if type(each.reads) is InPlace
        }
        self._clock_ms = clock_ms
        self._tracer = tracer
        reads = {name: each.reads for name, each in self._sources.items()}
        self._contest = Contest(reads, within_s, clock, UnavailableError, DeadlineExceededError, tracer)
        self._health = self._contest.health

    def read(self, table: str, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> Answer:
        """As `WideColumnStore.read`, of a table that every cluster has.

        deadline_s: a time of the clock. A cluster in files of this machine ignores it.

        Raises:
            DeadlineExceededError: no cluster answered in time. It is an UnavailableError, too.
            UnavailableError: every cluster failed, or has too many reads under way; or this process was forked from the
                one that opened them.
        """
        self._refuse_forked()
        name = self._health.quiet
        if name not in self._in_place:
            return self._from_any(table, row, after, limit, deadline_s)
        # Taken before the read: a later watermark may count entries that landed after the row was read.
        watermark_ms = self._health.watermarks[name]
        try:
            return Answer(self._in_place[name][table].read(row, after, limit), name, self._behind_ms(watermark_ms))
        except UnavailableError as error:
            self._health.failed(name)
            return self._from_any(table, row, after, limit, deadline_s, [(name, str(error))])

    def which_hold(self, table: str, row: bytes, column: bytes, deadline_s: float) -> dict[str, bool | None]:
        """Which clusters have a column; None: no answer. All are asked, even with open breakers: it is for people."""
        before = (int.from_bytes(column, "big") - 1).to_bytes(len(column), "big")
        found = self._contest.all(self._asking(table, row, before, 1), deadline_s)
        return {name: list(found[name]) == [column] if name in found else None for name in self._sources}

    def behind_ms(self, name: str) -> int | None:
        """How far a cluster may be behind, by its last known watermark; None if unknown."""
        return self._behind_ms(self._health.watermarks[name])

    def set_watermark(self, name: str, watermark_ms: int | None) -> None:
        """watermark_ms: None, or a mark, if it is unknown."""
        self._health.set_watermark(name, known_ms(watermark_ms))

    def first(self) -> str:
        """The cluster that a read would ask now."""
        return self._health.candidates[0].name

    def status(self) -> list[ReplicaStatus]:
        """The state of every cluster, in the order of preference."""
        return self._health.status()

    def counters(self) -> ReadCounters:
        return self._health.counters()

    def close(self) -> None:
        self._contest.close()

    def _refuse_forked(self) -> None:
        if os.getpid() != self._process:
            raise UnavailableError(f"clusters: {OF_ANOTHER_PROCESS}")

    def _from_any(
        self,
        table: str,
        row: bytes,
        after: bytes | None,
        limit: int,
        deadline_s: float | None,
        failed: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """failed: clusters that have already failed, and how."""
        watermarks_ms = self._health.watermarks  # before any read, as in `read`
        name, columns = self._contest.first(self._asking(table, row, after, limit), deadline_s, failed)
        return Answer(columns, name, self._behind_ms(watermarks_ms[name]))

    def _asking(
        self, table: str, row: bytes, after: bytes | None, limit: int
    ) -> Callable[[str, float], Sequence[bytes]]:
        """Reads one row of the cluster of a name, until a time of the clock."""
        return lambda name, until_s: self._sources[name].replica.tables[table].read(row, after, limit, until_s)

    def _behind_ms(self, watermark_ms: int | None) -> int | None:
        # No watermark is later than the store's time. If one is, this machine's clock is behind, as after a pause of
        # the machine; or the store's clock was wrong.
        now_ms, newest_ms = self._clock_ms(), self._health.newest_ms
        return behind_ms(watermark_ms, newest_ms if now_ms < newest_ms <= now_ms + APART_MAX_MS else now_ms)


class TracedReplicas(Replicas):
    """`Replicas` whose reads are traced. It is a class of its own, so that a page costs nothing if traces are off."""

    def read(self, table: str, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> Answer:
        with self._tracer.trace(f"read {table}", {"db.operation.name": "read", "db.collection.name": table}) as span:
            if not span.is_recorded:
                return super().read(table, row, after, limit, deadline_s)
            self._refuse_forked()
            answer = self._from_any(table, row, after, limit, deadline_s)
            span.note({"feedstore.cluster": answer.served_by})
            if answer.behind_ms is not None:
                span.note({"feedstore.behind_ms": answer.behind_ms})
            return answer
