"""Looks at several parts of a system at the same time: one that is away, or hangs, hides nothing of the others."""

import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from feedstore.background import answer_of, on_a_thread
from feedstore.errors import NotNowError

T = TypeVar("T")


@dataclass(frozen=True)
class NoAnswer:
    """Takes the place of the answer of a part that does not answer. why: one line."""

    why: str


class BegunLook(Generic[T]):
    """One look, on a thread of its own that keeps no process from ending."""

    def __init__(self, look: Callable[[], T], within_s: float) -> None:
        """For Looks."""
        self.taken = False
        self._within_s = within_s
        self._until_s = time.monotonic() + within_s
        self._answer = answer_of(look, on_a_thread("look"))

    def found(self) -> T | NoAnswer:
        """The answer as soon as it is there; none if the part is away, or its time is over. Raises other errors."""
        if not wait([self._answer], max(0.0, self._until_s - time.monotonic())).done:
            return NoAnswer(f"no answer within {self._within_s:g} s")
        self.taken = True
        try:
            return self._answer.result()
        except (NotNowError, OSError) as error:
            return NoAnswer(" ".join(str(error).split()))

    def answer(self) -> T | None:
        """As `found`; None if there is no answer."""
        found = self.found()
        return None if isinstance(found, NoAnswer) else found


class Looks:
    """The looks that are under way, at most one for each part. within_s: how long each may take; one that takes longer
    continues, and its answer is that of a later look.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._begun: dict[str, BegunLook[Any]] = {}

    def begin(self, part: str, look: Callable[[], T]) -> BegunLook[T]:
        begun = self._begun.get(part)
        if begun is None or begun.taken:
            begun = self._begun[part] = BegunLook(look, self._within_s)
        return begun
