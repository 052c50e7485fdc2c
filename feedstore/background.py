"""Looks that may take long, in the background: the callers that ask for one continue."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

Background = Callable[[Callable[[], None]], None]
"""Begins some work elsewhere: its caller does not wait for it. Raises RuntimeError if there can be no more threads."""


def on_a_thread(name: str) -> Background:
    """On a thread of that name, which keeps no process from ending."""
    return lambda work: threading.Thread(target=work, name=name, daemon=True).start()


def answer_of(look: Callable[[], T], background: Background) -> "Future[T]":
    """The answer of a look, or its error, once there is one. Raises RuntimeError if the look cannot begin."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(look())
        except BaseException as error:  # noqa: BLE001 - who asks for the answer gets it
            answer.set_exception(error)

    background(run)
    return answer


class BackgroundLook:
    """One look at a time. Thread-safe.

    look: what may take long. not_begun: called with the reason if a look could not begin; the next call tries again.
    """

    def __init__(self, look: Callable[[], None], background: Background, not_begun: Callable[[str], None]) -> None:
        self._look = look
        self._background = background
        self._not_begun = not_begun
        self._looking = threading.Lock()

    @property
    def is_under_way(self) -> bool:
        return self._looking.locked()

    def begin(self) -> None:
        """Begins a look, unless one is under way. It does not wait, and it does not raise."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._background(self._run)
        except RuntimeError as error:
            self._looking.release()
            self._not_begun(str(error))

    def _run(self) -> None:
        try:
            self._look()
        finally:
            self._looking.release()
