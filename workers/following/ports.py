"""The ports of a home, opened."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from feedstore.follows.port import FollowStore
from feedstore.metering import Counting
from feedstore.replicas.replica import Replica
from feedstore.tracing import UNTRACED, Tracer
from workers.queue.port import DeadLetters, Queue, Topic


@dataclass(frozen=True)
class Ports:
    """Everything that a worker works on. Tests wrap these to make them fail. clock: the time of the home, ms since
    1970. entering: the groups that enter posted updates into the catalogs of each cluster, and what they read. meter:
    what is counted of all this. tracer: where traces go.
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

    def close(self) -> None:
        """Closes what was opened for them."""
        self.opened.close()
