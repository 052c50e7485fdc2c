"""Asks for refills of feeds that ended early (rule 9), on a thread of its own: no page waits for the follow store.

Reads must not cause unbounded writes. So a refill is asked for only if the user follows something, at most once per
user in `again_ms`, and only a bounded number of times a second in each process. A request beyond that is dropped: the
next walk that ends early makes it again.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.follows.store import FollowStore

_log = structlog.get_logger()

LOOKED_UP_PER_S_MAX: Final = 100
"""The most users per second that a process looks up in the follow store, to see if they follow anything: a row each."""
ASKED_PER_S_MAX: Final = 10
"""The most refills per second that a process asks for. Each is an outbox row, and up to `cap` cells a cluster."""
BURST_S: Final = 5.0
"""After a quiet time, this many seconds' worth of the rates may be used at once."""
WAITING_MAX: Final = 1_000
"""The most users that wait for the thread."""
REMEMBERED_MAX: Final = 10_000
"""The most users that are remembered as handled, including those who follow nothing."""
CLOSE_S: Final = 5.0
"""How long closing waits for the thread."""


class Rate:
    """Allows `per_s` a second; after a quiet time, as many at once as in `BURST_S`. Not thread-safe."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._left = per_s * BURST_S
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Whether one more is allowed now. If so, it is counted."""
        self._left = min(self._per_s * BURST_S, self._left + self._per_s * (now_s - self._at_s))
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Refills:
    """Thread-safe.

    again_ms: the least time between two refills of one feed for this reason. The follow store enforces it for all
    processes; this one also does not ask again for a user that it remembers. clock: monotonic, in s.
    """

    def __init__(self, follows: FollowStore, again_ms: int, clock: Callable[[], float]) -> None:
        self._follows = follows
        self._again_ms = again_ms
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._lookups = Rate(LOOKED_UP_PER_S_MAX, clock())
        self._asked = Rate(ASKED_PER_S_MAX, clock())
        self._done_s: OrderedDict[int, float] = OrderedDict()
        self._waiting: list[int] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, user: int) -> None:
        """Asks for a refill of a user's feed on the thread; returns at once."""
        now_s = self._clock()
        with self._changed:
            done_s = self._done_s.get(user)
            if self._closed or (done_s is not None and now_s - done_s < self._again_ms / 1_000):
                return
            if len(self._waiting) >= WAITING_MAX or not self._lookups.take(now_s):
                return
            self._waiting.append(user)
            self._done_s[user] = now_s
            self._done_s.move_to_end(user)
            if len(self._done_s) > REMEMBERED_MAX:
                self._done_s.popitem(last=False)
            self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="refills", daemon=True)
                with contextlib.suppress(RuntimeError):  # if the machine has no thread left, a later walk tries again
                    thread.start()
                    self._thread = thread

    def close(self) -> None:
        """Handles the users that still wait, for at most `CLOSE_S`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                users, self._waiting = self._waiting, []
            if not users:
                return
            try:
                self._ask_for(users)
            except FollowStoreUnavailableError:
                self._forget(users)
            except Exception:  # noqa: BLE001  # a bug of ours: if the thread ended, no feed would be refilled any more
                _log.exception("refills.failed", users=len(users))
                self._forget(users)

    def _ask_for(self, users: list[int]) -> None:
        asked: list[int] = []
        later: list[int] = []
        for user in users:
            if self._follows.following_after(user, None, 1):
                (asked if self._asked.take(self._clock()) else later).append(user)
        if asked:
            self._follows.ask_refill(asked, None, self._again_ms)
        self._forget(later)

    def _forget(self, users: list[int]) -> None:
        """Forgets users, so that their next walk asks again."""
        with self._changed:
            for user in users:
                self._done_s.pop(user, None)
