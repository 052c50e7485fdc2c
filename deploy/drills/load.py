"""The steady load of a drill: pages and actions through the whole system, and calls on each region of one cluster."""

import contextlib
import gc
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from deploy.drills.repeating import repeating
from deploy.drills.samples import CallSample, Kind, longest_quiet_s
from feedstore.domain import Pin, board
from feedstore.following import row_key
from feedstore.following.service import FeedService
from feedstore.widecolumn import Put, WideColumnStore

PAGES_EVERY_S = 0.05
ACTIONS_EVERY_S = 0.5
"""Each action is an entry in a feed of every region of both clusters, and each entry a write of its own to a log."""

READS_EVERY_S = 0.1
WRITES_EVERY_S = 0.25
"""How long the caller of one region rests between two calls. It is part of every gap that is measured, so it must be a
small part of the gap that other regions may have (budgets.toml). A write costs a cluster most: its log waits for three
DataNodes.
"""
BACKLOG_EVERY_S = 1.0
READERS = 2
_READ_S = 1.0


@dataclass
class Load:
    """users: one in each region, who all follow the board on which the pins are saved; in the order of the regions.

    reads, writes: the feeds of the drilled cluster, each with connections of its own, as web servers and workers have
    them: a gateway that keeps a write waiting counts as away for its caller, and loses its connections. first: the
    number of the board, of its owner and of the first pin; ids from there on are used by nothing else. lag: asks how
    many messages the drilled cluster has not landed; it may raise, and hang. backlog: its answers, each with its moment
    of `time.monotonic`.
    """

    service: FeedService
    reads: WideColumnStore
    writes: WideColumnStore
    users: Sequence[int]
    first: int
    wall_ms: Callable[[], int]
    lag: Callable[[], int]
    samples: list[CallSample] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    backlog: list[tuple[float, int]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def quiet_s(self, now_s: float) -> float | None:
        """How long ago the caller that fell silent first had its last call done; None if one had none done."""
        return longest_quiet_s(self.samples, callers(range(len(self.users))), now_s)

    def behind(self, cap: int) -> frozenset[int]:
        """All pins but the newest `cap`: no reader can reach these."""
        return frozenset(sorted(self.asked)[:-cap])

    def save_one(self) -> None:
        """Saves a pin. Raises FollowStoreError."""
        pin = self._next_pin()
        self.service.save_pin(pin)
        self.acknowledged.add(pin.pin)

    @contextmanager
    def running(self, rng: random.Random) -> Iterator[None]:
        """Loads until the end of the block. Each region is written with a cell that it already has: the same cell again
        changes nothing.
        """
        puts = [self._put_again(user) for user in self.users]
        threads = [threading.Thread(target=self._act)]
        threads += [
            threading.Thread(target=self._page, args=(reader, random.Random(rng.random())))  # noqa: S311 - no secret
            for reader in range(READERS)
        ]
        # Reads and writes apart: a read must not wait for a write of the same caller that hangs.
        for region, put in enumerate(puts):
            threads.append(threading.Thread(target=self._read, args=(region, row_key(self.users[region]))))
            threads.append(threading.Thread(target=self._write, args=(region, put)))
        with _uncollected():
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()

    @contextmanager
    def measuring_backlog(self) -> Iterator[None]:
        """Asks for the lag until the end of the block. A question that fails leaves no sample."""

        def ask() -> None:
            # Any error: the drill may have broken the queue.
            with contextlib.suppress(Exception):
                self.backlog.append((time.monotonic(), self.lag()))

        with repeating(BACKLOG_EVERY_S, ask):
            yield

    def _put_again(self, user: int) -> Put:
        row = row_key(user)
        cell = self.reads.cells(row)[0]
        return Put([(row, cell.timestamp)], [cell.column])

    def _next_pin(self) -> Pin:
        pin = Pin(self.first + len(self.asked), self.first, self.first, self.wall_ms())
        self.asked.add(pin.pin)
        return pin

    def _act(self) -> None:
        while not self._stop.wait(ACTIONS_EVERY_S):
            self._timed("action", 0, self.save_one)

    def _page(self, reader: int, rng: random.Random) -> None:
        while not self._stop.wait(PAGES_EVERY_S):
            user = rng.choice(self.users)
            self._timed("page", reader, lambda user=user: self.service.page(user).served_by)  # type: ignore[misc]

    def _read(self, region: int, row: bytes) -> None:
        def read() -> None:
            self.reads.read(row, None, 25, time.monotonic() + _READ_S)

        while not self._stop.wait(READS_EVERY_S):
            self._timed("read", region, read)

    def _write(self, region: int, put: Put) -> None:
        while not self._stop.wait(WRITES_EVERY_S):
            self._timed("write", region, lambda: self.writes.apply([put]))

    def _timed(self, kind: Kind, caller: int, call: Callable[[], str | None]) -> None:
        began = time.monotonic()
        try:
            detail, is_done = call() or "", True
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a call that failed, and the load continues
            detail, is_done = f"{type(error).__name__}: {error}"[:200], False
        self.samples.append(CallSample(kind, caller, began, time.monotonic() - began, is_done, detail))


def callers(regions: Iterable[int]) -> list[tuple[Kind, int]]:
    """All callers of a load on these regions, as samples name them."""
    found: list[tuple[Kind, int]] = [("action", 0), *(("page", reader) for reader in range(READERS))]
    for region in regions:
        found += [("read", region), ("write", region)]
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Runs without Python's cycle collector. That stops every caller for a tenth of a second on busy processors, which
    would count as the system's time. Until its end, a load leaves some megabytes of samples.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def follow_all(service: FeedService, users: Sequence[int], followed: int) -> None:
    """Raises FollowStoreError."""
    for user in users:
        service.follow(user, board(followed))
