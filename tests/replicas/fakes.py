"""Replicas in memory whose reads fail, or wait until the test lets them continue."""

import threading
import time
from collections.abc import Callable

from feedstore.domain import Entry
from feedstore.following import FEEDS, feed_table, mutations
from feedstore.replicas.attempts import InPlace, OnThreads
from feedstore.replicas.replicas import Replica, Replicas, ReplicaSource, TracedReplicas
from feedstore.tracing import Tracer
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import PROGRESS, progress_table
from tests.widecolumn.memory_store import MemoryStore

WINDOW_MS = 1_000_000
USER = 7
CAP = 40
NOW_MS = 5_000
NOW_S = 1e9
"""More than any machine has been up: a deadline of a clock that was not handed in has long passed."""
LONG_S = 60.0
"""Longer than any test takes on a busy machine."""


class FakeStore(MemoryStore):
    """The feeds of one cluster. Before each read: `fails` raises, and a `gate` that is not set is waited for."""

    def __init__(self) -> None:
        super().__init__(feed_table(CAP, 10, WINDOW_MS))
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.deadlines: list[float | None] = []

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        self.asked += 1
        self.deadlines.append(deadline_s)
        if self.fails:
            raise UnavailableError("out of order")
        assert self.gate.wait(LONG_S)
        return super().read(row, after, limit)


def replica(name: str, store: MemoryStore) -> Replica:
    """store: its feeds."""
    return Replica(name, {FEEDS: store, PROGRESS: MemoryStore(progress_table(WINDOW_MS))})


class Pair:
    """Two clusters across a network, or in files of this machine (`in_place`), a before b. Time does not pass, so that
    no read is slow, unless there is a clock. clock: for whatever reads them, too. tracer: if reads are traced.
    """

    def __init__(
        self,
        at_most: int = 8,
        clock: Callable[[], float] | None = None,
        *,
        in_place: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self.a, self.b = FakeStore(), FakeStore()
        self.now_s = NOW_S
        self.clock = clock or (lambda: self.now_s)
        sources = [
            ReplicaSource(replica(name, store), InPlace() if in_place else OnThreads(name, at_most))
            for name, store in (("a", self.a), ("b", self.b))
        ]
        about = (sources, lambda: NOW_MS, LONG_S, self.clock)
        self.replicas = Replicas(*about) if tracer is None else TracedReplicas(*about, tracer)

    def fill(self, pins: range, *, only: str = "ab") -> None:
        for name in only:
            getattr(self, name).apply([mutations.put([(USER, 100)], [(pin, 1_000 + pin) for pin in pins])])

    def hang(self) -> None:
        """From now on, reads of both wait for `release`."""
        self.a.gate.clear()
        self.b.gate.clear()

    def release(self) -> None:
        self.a.gate.set()
        self.b.gate.set()

    def close(self) -> None:
        self.release()
        self.replicas.close()


def newest(pins: range) -> list[Entry]:
    return [Entry(pin, 1_000 + pin) for pin in reversed(pins)]


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline_s, f"timed out waiting for: {what}"
        time.sleep(0.001)
