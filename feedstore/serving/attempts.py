"""Reads of one cluster, made where they cannot hold up anybody."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

Read = Callable[[], Sequence[bytes]]
Told = Callable[["Attempt"], None]


class Attempt:
    """One read of one cluster, and what became of it.

    told: called once it has ended, on the thread that made it. clock: monotonic, in s. is_probe: nobody waits for it.
    """

    __slots__ = ("_clock", "_read", "_told", "began_s", "columns", "error", "is_counted", "is_probe", "name", "took_s")

    def __init__(
        self,
        name: str,
        read: Read,
        told: Told,
        clock: Callable[[], float],
        *,
        is_probe: bool = False,
    ) -> None:
        self._read = read
        self._told = told
        self._clock = clock
        self.name = name
        self.is_probe = is_probe
        self.began_s = clock()
        self.took_s = 0.0
        self.columns: Sequence[bytes] = ()
        self.error: Exception | None = None
        self.is_counted = False
        """Whether it was noted already what became of it, before it ended perhaps."""

    def run(self) -> None:
        try:
            self.columns = self._read()
        except Exception as error:  # noqa: BLE001  # whoever waits for the answer raises it
            self.error = error
        self.took_s = self._clock() - self.began_s

    def tell(self) -> None:
        self._told(self)


class Reads(Protocol):
    """How the reads of one cluster are made. Thread-safe."""

    def start(self, attempt: Attempt) -> bool:
        """Makes the attempt, here and now or beside the caller. False where it was not begun: too many are under way,
        or this is closed.
        """
        ...

    def close(self) -> None: ...


class InPlace:
    """In the caller's thread: for a cluster in files of this machine, whose reads take less than to ask a thread."""

    def start(self, attempt: Attempt) -> bool:
        attempt.run()
        attempt.tell()
        return True

    def close(self) -> None:
        """Nothing is kept here."""


class OnThreads:
    """On threads of their own, so that a read that hangs holds up nobody: for a cluster across a network.

    at_most: so many reads are under way at once, those that nobody waits for any more included. They end by their
    deadlines.
    """

    def __init__(self, name: str, at_most: int) -> None:
        self._name = name
        self._at_most = at_most
        self._lock = threading.Lock()
        self._work: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0
        self._closed = False

    def start(self, attempt: Attempt) -> bool:
        with self._lock:
            if self._closed or self._under_way >= self._at_most:
                return False
            if self._under_way == self._threads:
                # A daemon: a read that hangs must not keep a program from ending.
                thread = threading.Thread(target=self._run, name=f"read-{self._name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the machine has no thread left
                    return False
                self._threads += 1
            self._under_way += 1
        self._work.put(attempt)
        return True

    def close(self) -> None:
        """Nothing new is begun. What is under way ends by itself."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)

    def _run(self) -> None:
        while (attempt := self._work.get()) is not None:
            attempt.run()
            with self._lock:
                self._under_way -= 1  # before anybody hears of it, who might begin the next one
            attempt.tell()
