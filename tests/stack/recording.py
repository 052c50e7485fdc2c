"""Records a trace piece by piece, and notes outside the system what was acknowledged."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Self

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError, Request
from feedstore.follows.store import FollowStore
from workers.app import replay

_TOGETHER = 25
_AGAIN_S = 0.1


class Recorder:
    """A client of the follow store, in a thread of its own. What got no answer it asks again, with the same keys.

    unanswered: how many calls the store could not answer so far.
    """

    def __init__(self, config: Config, lines: Sequence[bytes], acks: Path) -> None:
        self._config = config
        self._lines = lines
        self._acks = acks
        self._allowed = 0
        self._next = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder")
        self._error: BaseException | None = None
        self.unanswered = 0

    def __enter__(self) -> Self:
        self._acks.touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify()
        self._thread.join()

    def allow(self, count: int) -> None:
        """Lets it record so many more lines."""
        with self._changed:
            self._allowed += count
            assert self._allowed <= len(self._lines), "the trace is too short"
            self._changed.notify()

    def done(self) -> bool:
        """Whether everything that it may record was acknowledged."""
        if self._error is not None:
            raise self._error
        return len(self.acknowledged()) == self._allowed

    def acknowledged(self) -> list[bytes]:
        """The lines that were, in their order: from the notes, and from nothing else."""
        return [self._lines[int(number)] for number in self._acks.read_text().split()]

    def _run(self) -> None:
        try:
            follows = feedstore_wiring.open_follows(self._config, wall_ms)
            with closing(follows), self._acks.open("ab", buffering=0) as acks:
                self._record_all(follows, acks.write)
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            self._error = error

    def _record_all(self, follows: FollowStore, note: Callable[[bytes], object]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._allowed > self._next or self._stop.is_set())
                first, until = self._next, min(self._next + _TOGETHER, self._allowed)
            if self._stop.is_set():
                return
            if self._record(follows, first, until):
                note("".join(f"{number}\n" for number in range(first, until)).encode())
                self._next = until

    def _record(self, follows: FollowStore, first: int, until: int) -> bool:
        requests = [
            Request(replay._decode(self._lines[number]).request().action, f"line-{os.getpid()}-{number}")
            for number in range(first, until)
        ]
        try:
            answers = follows.record(requests)
        except FollowStoreUnavailableError:
            self.unanswered += 1
            self._stop.wait(_AGAIN_S)
            return False
        refused = [answer for answer in answers if isinstance(answer, ActionRefusedError)]
        assert not refused, refused
        return True
