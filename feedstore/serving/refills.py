"""Asks for refills of feeds that ended early (rule 9), beside the pages that found it out."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from queue import Empty, Full, Queue

from feedstore.follows.port import FollowStore, FollowStoreUnavailableError

WAITING_MAX = 1_000
REMEMBERED_MAX = 10_000
CLOSE_S = 5.0


class Refills:
    """Thread-safe. A wish may get lost: the next walk that ends early has it again.

    again_ms: a feed is refilled for this reason at most once in so long; the follow store sees to that, and what was
    asked from here lately is not asked again at all. clock: monotonic, in s.
    """

    def __init__(self, follows: FollowStore, again_ms: int, clock: Callable[[], float]) -> None:
        self._follows = follows
        self._again_ms = again_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_s: OrderedDict[int, float] = OrderedDict()
        self._waiting: Queue[int | None] = Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, user: int) -> None:
        """Returns at once."""
        now_s = self._clock()
        with self._lock:
            asked_s = self._asked_s.get(user)
            if self._closed or (asked_s is not None and now_s - asked_s < self._again_ms / 1_000):
                return
            with contextlib.suppress(Full):
                self._waiting.put_nowait(user)
                self._asked_s[user] = now_s
                self._asked_s.move_to_end(user)
                if len(self._asked_s) > REMEMBERED_MAX:
                    self._asked_s.popitem(last=False)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="refills", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """What waits is still asked, as far as that takes `CLOSE_S`."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            deadline_s = self._clock() + CLOSE_S
            with contextlib.suppress(Full):
                self._waiting.put(None, timeout=CLOSE_S)
                thread.join(max(0.0, deadline_s - self._clock()))

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            users = [first]
            more = True
            while more:
                try:
                    user = self._waiting.get_nowait()
                except Empty:
                    break
                if user is None:
                    more = False
                else:
                    users.append(user)
            try:
                self._follows.ask_refill(users, None, self._again_ms)
            except FollowStoreUnavailableError:
                with self._lock:
                    for user in users:
                        self._asked_s.pop(user, None)
            if not more:
                return
