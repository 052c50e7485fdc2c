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
    1970. entering: the groups that enter updates into each cluster's catalogs, and the topics that they read.
    meter: counts all calls. tracer: takes the traces. kept: what `once` has opened. is_gone: whether a cluster is known
    not to exist.
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
    is_gone: Callable[[str], bool] = lambda _: False

    def once(self, key: Hashable, opener: Callable[[], T]) -> T:
        """Returns what `opener` opened when the key was first asked for; it is closed with these ports. If several
        workers are made on them one after the other, all use what the first one opened.
        """
        if key not in self.kept:
            opened = self.kept[key] = opener()
            self.opened.callback(opened.close)
        found: T = self.kept[key]
        return found

    def close(self) -> None:
        """Closes all that was opened for these ports."""
        self.opened.close()
