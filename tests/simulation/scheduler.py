"""Greenlets that give way before and after every call of a port, and the next to run is drawn by lot.

Nothing is shared between two calls of a handler, so the pause after one is the pause before the next; a handler that
has not begun is before its first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from feedstore.widecolumn import Mutation, WideColumnStore
from tests.mutations import by_row
from workers.queue.port import Queue, Topic


def _nothing() -> None:
    pass


@dataclass
class Running:
    """A handler on its way. speed: how likely it moves when it is drawn; slow ones meet more of the others."""

    name: str
    kind: str
    glet: greenlet
    speed: float
    done: Callable[[], None]
    died: Callable[[], None]


class Scheduler:
    """Runs handlers a step at a time. What the hub itself calls runs through without a pause."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._hub = getcurrent()
        self.running: list[Running] = []
        self.current = "hub"
        self.slow = 0.17

    def pause(self) -> None:
        if getcurrent() is not self._hub:
            self._hub.switch()

    def in_hub(self) -> bool:
        return getcurrent() is self._hub

    def start(
        self,
        name: str,
        kind: str,
        work: Callable[[], None],
        done: Callable[[], None] = _nothing,
        died: Callable[[], None] = _nothing,
    ) -> None:
        drawn = self._rng.random()
        speed = 0.04 if drawn < self.slow else 0.3 if drawn < 2 * self.slow else 1.0
        self.running.append(Running(name, kind, greenlet(work, parent=self._hub), speed, done, died))

    def resume(self) -> None:
        """Lets one of the running handlers run to its next pause, or to its end."""
        random, running = self._rng.random, self.running
        for _ in range(8):
            chosen = running[int(random() * len(running))]
            if random() < chosen.speed:
                break
        self._resume(chosen)

    def _resume(self, chosen: Running) -> None:
        self.current = chosen.name
        chosen.glet.switch()
        self.current = "hub"
        if chosen.glet.dead:
            self.running.remove(chosen)
            chosen.done()

    def crash(self, chosen: Running) -> None:
        """Kills a handler where it is; its input is not done and comes again."""
        self.running.remove(chosen)
        chosen.glet.throw()
        chosen.died()

    def crash_all(self, kinds: Sequence[str]) -> None:
        for each in [each for each in self.running if each.kind in kinds]:
            self.crash(each)

    def finish(self) -> None:
        """Everything that runs gets to its end, a step at a time, or dies on the way."""
        while self.running:
            if self._rng.random() < 0.02:
                self.crash(self.running[int(self._rng.random() * len(self.running))])
            else:
                self.resume()


Trace = Callable[[str, str, tuple[Any, ...], dict[str, Any], Any], None]
"""Told of (port, method, arguments, named arguments, result)."""


class Port:
    """Any port, with a pause after each call, or before it."""

    def __init__(
        self, name: str, target: Any, scheduler: Scheduler, trace: Trace | None, *, after: bool = True
    ) -> None:
        self._name = name
        self._target = target
        self._scheduler = scheduler
        self._trace = trace
        self._after = after

    def __getattr__(self, method: str) -> Any:
        call, pause, trace, name = getattr(self._target, method), self._scheduler.pause, self._trace, self._name
        before, after = (_nothing, pause) if self._after else (pause, _nothing)

        def paused(*args: Any, **named: Any) -> Any:
            before()
            result = call(*args, **named)
            if trace is not None:
                trace(name, method, args, named, result)
            after()
            return result

        setattr(self, method, paused)
        return paused


class StorePort(Port):
    """A table whose batches are not atomic: only a mutation within one row is."""

    def __init__(
        self, name: str, target: WideColumnStore, scheduler: Scheduler, trace: Trace | None, rng: Random
    ) -> None:
        super().__init__(name, target, scheduler, trace)
        self._rng = rng

    def apply(self, batch: Sequence[Mutation]) -> None:
        pieces: list[Sequence[Mutation]] = [batch]
        if self._rng.random() < 0.25 and not self._scheduler.in_hub():
            # A crash between them leaves any subset behind.
            pieces = [[piece] for mutation in batch for piece in by_row(mutation)]
            self._rng.shuffle(pieces)
        for piece in pieces:
            self._target.apply(piece)
            if self._trace is not None:
                self._trace(self._name, "apply", (piece,), {}, None)
            self._scheduler.pause()


class QueuePort(Port):
    """A queue whose calls may store some of their messages before others."""

    def __init__(self, target: Queue, scheduler: Scheduler, trace: Trace | None, rng: Random) -> None:
        super().__init__("queue", target, scheduler, trace)
        self._rng = rng

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        pieces: list[Sequence[bytes]] = [values]
        if len(values) > 1 and self._rng.random() < 0.25 and not self._scheduler.in_hub():
            pieces = [[value] for value in values]
        for piece in pieces:
            self._target.publish(topic, piece, partition)
            if self._trace is not None:
                self._trace("queue", "publish", (topic, piece, partition), {}, None)
            self._scheduler.pause()

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, some in values.items():
            self.publish(topic, some, partition)

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        for value in values:
            self.publish(topic, [value])
