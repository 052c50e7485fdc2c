"""The latest updates that a process has heard on the stream.

A store may lag behind the stream. So a record that is fetched now may be older than an update that was heard a second
ago, when its key was not held. The update is remembered here, and wins.
"""

from collections import deque
from typing import Final

from feedstore.catalog.cache import StreamState, known_ms_of
from feedstore.catalog.port import Update
from feedstore.catalog.rule import stamp

UPDATES_MAX: Final = 16_384
"""The most updates that are remembered: 16 s of a thousand a second."""

BYTES_MAX: Final = 8 * 2**20
"""The most bytes of keys and records that are remembered."""


class Heard:
    """Remembers updates. Time is an argument. Only `following` is thread-safe.

    Each update whose time is later than a *floor* is remembered. So an answer that has every change up to the floor is
    complete once the remembered updates of its key are added. From then on it is followed: the stream keeps it
    complete, and it has every change that the stream has brought.
    """

    def __init__(self, updates_max: int = UPDATES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.following = StreamState()
        """Replaced whole: any thread may read it."""
        self._updates_max = updates_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._floor_ms = 0
        self._newest: dict[bytes, Update] = {}
        self._latest: deque[Update] = deque()

    def begin(self, after_ms: int) -> None:
        """Begins a stream, in which every update later than `after_ms` is heard. Earlier answers are not followed."""
        self.following = StreamState(self.following.stream + 1)
        self._floor_ms = after_ms
        self._newest.clear()
        self._latest.clear()
        self._bytes = 0

    def forget(self, until_ms: int) -> None:
        """Raises the floor to a time: from now on, only an answer that has every change up to it is followed."""
        self._floor_ms = max(self._floor_ms, until_ms)

    def note_known(self, known_ms: int, now_ms: int) -> None:
        """Notes that every update up to `known_ms` that is later than the time of `begin` has been added."""
        stream, before_ms, _ = self.following
        if not stream:
            raise ValueError("note_known: nothing is heard yet; call heard_from first")
        self.following = StreamState(stream, max(before_ms, known_ms), now_ms)

    def add(self, update: Update) -> None:
        before = self._newest.get(update.key)
        if before is not None and stamp(before) >= stamp(update):
            return
        self._newest[update.key] = update
        self._latest.append(update)
        self._bytes += _size(update)
        while len(self._latest) > self._updates_max or self._bytes > self._bytes_max:
            gone = self._latest.popleft()
            self._bytes -= _size(gone)
            if self._newest.get(gone.key) is gone:
                del self._newest[gone.key]
                self._floor_ms = max(self._floor_ms, gone.time_ms)

    def newest(self, key: bytes) -> Update | None:
        return self._newest.get(key)

    def follows(self, version: int) -> int:
        """The stream that follows an answer of this version. 0 if none does: an update that it lacks may be gone."""
        return self.following.stream if known_ms_of(version) >= self._floor_ms else 0


def _size(update: Update) -> int:
    return len(update.key) + len(update.record or b"")
