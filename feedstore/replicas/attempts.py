"""Reads of one cluster, made so that they cannot block others."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Attempt(Generic[T]):
    """One read of one cluster, and its outcome.

    read: gives the answer, whatever it is. on_done: called once it has ended, on the thread that made it. clock:
    monotonic, in s. is_probe: no caller waits for it.
    """

    __slots__ = (
        "_clock",
        "_on_done",
        "_read",
        "answer",
        "began_s",
        "error",
        "is_counted",
        "is_probe",
        "name",
        "took_s",
    )

    answer: T
    """Set once it has ended without an error."""

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        on_done: Callable[["Attempt[T]"], None],
        clock: Callable[[], float],
        *,
        is_probe: bool = False,
    ) -> None:
        self._read = read
        self._on_done = on_done
        self._clock = clock
        self.name = name
        self.is_probe = is_probe
        self.began_s = clock()
        self.took_s = 0.0
        self.error: Exception | None = None
        self.is_counted = False
        """Whether its outcome has been counted, perhaps before it ended."""

    def run(self) -> None:
        try:
            self.answer = self._read()
        except Exception as error:  # noqa: BLE001  # the caller that waits for the answer raises it
            self.error = error
        self.took_s = self._clock() - self.began_s

    def tell(self) -> None:
        self._on_done(self)


class Reads(Protocol):
    """How the reads of one cluster are made. Thread-safe."""

    def start(self, attempt: Attempt[Any]) -> bool:
        """Makes the attempt, here or on another thread. False: too many are under way, or this is closed."""

    def close(self) -> None: ...


class InPlace:
    """In the caller's thread: for a cluster in files of this machine, as a hop to a thread costs more than a read."""

    def start(self, attempt: Attempt[Any]) -> bool:
        attempt.run()
        attempt.tell()
        return True

    def close(self) -> None:
        """Does nothing."""


class OnThreads:
    """On threads of their own, so that a read that hangs does not block others: for a cluster across a network.

    at_most: the most reads that run at once, including abandoned ones, which run until their deadlines.
    """

    def __init__(self, name: str, at_most: int) -> None:
        self._name = name
        self._at_most = at_most
        self._lock = threading.Lock()
        self._work: SimpleQueue[Attempt[Any] | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0
        self._closed = False

    def start(self, attempt: Attempt[Any]) -> bool:
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
        """Begins nothing new. What is under way ends by itself."""
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
                self._under_way -= 1  # before a caller hears of it and begins the next one
            attempt.tell()
            del attempt  # an idle thread would keep the answer, which may be large
