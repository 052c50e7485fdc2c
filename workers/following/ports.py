"""The ports of a home, opened."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from feedstore.follows.store import FollowStore
from feedstore.lazy import Closable
from feedstore.metering import Counting
from feedstore.replicas.replicas import Replica
from feedstore.tracing import UNTRACED, Tracer
from workers.queue.port import DeadLetters, Queue, Topic

T = TypeVar("T", bound=Closable)


@dataclass(frozen=True)
class Ports:
    """Everything that a worker works on. Tests wrap these to make them fail. clock: the time of the home, ms since
    1970. entering: the groups that enter posted updates into the catalogs of each cluster, and what they read. meter:
    what is counted of all this. tracer: where traces go. kept: what was opened by `once`.
    """

    follows: FollowStore
    queue: Queue
    dead: DeadLetters
    replicas: dict[str, Replica]
    clock: Callable[[], int]
    opened: ExitStack = field(default_factory=ExitStack)
    entering: Mapping[str, Sequence[tuple[Topic[object], str]]] = field(default_factory=dict)
    meter: Counting = field(default_factory=lambda: Counting(time.monotonic))
    tracer: Tracer = UNTRACED
    kept: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, opener: Callable[[], T]) -> T:
        """What `opener` opened when the key was first asked for. It is closed with these ports: of several workers that
        are made on them, one after the other, each uses what the first one opened.
        """
        if key not in self.kept:
            opened = self.kept[key] = opener()
            self.opened.callback(opened.close)
        found: T = self.kept[key]
        return found

    def close(self) -> None:
        """Closes what was opened for them."""
        self.opened.close()
