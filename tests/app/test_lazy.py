"""What is opened at its first use, while what it needs does not answer."""

import threading
from typing import NoReturn

import pytest

from feedstore import lazy
from feedstore.lazy import Closable, Lazy

CALLS = 4
WITHIN_S = 60.0


class Door:
    """A lock that tells once enough threads have come to it. opened: whether they have."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self._lock, self._counting = threading.RLock(), threading.Lock()
        self._came = 0

    def __enter__(self) -> None:
        with self._counting:
            self._came += 1
            if self._came == CALLS:
                self.opened.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_calls_that_waited_for_an_attempt_that_failed_do_not_each_make_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_asked = Door()
    tried: list[int] = []

    def opener() -> NoReturn:
        assert all_asked.opened.wait(WITHIN_S)
        tried.append(len(tried))
        raise ConnectionError("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr(lazy.threading, "Lock", lambda: all_asked)
        port: Lazy[Closable] = Lazy(opener, lambda: ConnectionError("closed"))
    failed: list[str] = []

    def ask() -> None:
        try:
            port.opened()
        except ConnectionError as error:
            failed.append(str(error))

    calls = [threading.Thread(target=ask) for _ in range(CALLS)]
    for call in calls:
        call.start()
    for call in calls:
        call.join(WITHIN_S)

    assert (len(tried), failed) == (1, CALLS * ["no broker answers"])
    with pytest.raises(ConnectionError):
        port.opened()
    assert len(tried) == 2, "a later call tries again"
