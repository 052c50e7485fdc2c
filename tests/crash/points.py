"""The named crash points: before and after each durable step of a worker, and between the two replicas."""

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from feedstore.following import FEEDS, is_witness
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Mutation
from feedstore.widecolumn.progress import PROGRESS
from tests.mutations import rows_of
from workers.following.ports import Ports
from workers.queue.port import Topic

FOLLOW_STEPS = {
    method: f"follows.{method}"
    for method in (
        "record",
        "mark_relayed",
        "index",
        "ask_refill",
        "redate",
    )
}

STEPS = (
    *FOLLOW_STEPS.values(),
    "publish.actions.task",
    "publish.actions.tick",
    "publish.deliveries.delivery",
    "publish.deliveries.pack",
    "publish.deliveries.hold",
    "publish.deliveries.tick",
    "commit.expander",
    "commit.writer-a",
    "commit.writer-b",
    "a.feeds.apply",
    "b.feeds.apply",
    "a.progress.apply",
    "b.progress.apply",
    "dead.bury",
    "publish.retries.parked",
    "a.progress.park",
    "commit.retries-a",
)
PARKING = STEPS[-3:]
"""What only happens where a region goes away."""
BETWEEN = ("between.a.b", "between.b.a")
"""One replica has applied a batch, the other has not applied any since the worker started."""

POINTS = (*(f"{step}:{side}" for step in STEPS for side in ("before", "after")), *BETWEEN)


class Trip:
    """Kills its process at the n-th passage of a point."""

    def __init__(self, point: str | None, nth: int, reached: Callable[[str], None]) -> None:
        if point is not None and point not in POINTS:
            raise ValueError(f"no such point: {point}")
        self._point = point
        self._left = nth
        self._reached = reached
        self._lock = threading.Lock()

    def at(self, point: str) -> None:
        if point != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._reached(point)
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, step: str, call: Callable[[], Any]) -> Any:
        if self._point is not None and self._point.startswith("between."):
            _, first, second = self._point.split(".")
            if step == f"{second}.feeds.apply":
                threading.Event().wait()  # until the process is killed
            result = call()
            if step == f"{first}.feeds.apply":
                self.at(self._point)
            return result
        self.at(f"{step}:before")
        result = call()
        self.at(f"{step}:after")
        return result


class _Tripping:
    """Replaces a port: some of its methods are steps."""

    def __init__(self, port: Any, trip: Trip, steps: dict[str, str]) -> None:
        self._port = port
        self._trip = trip
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        step = self._steps.get(name)
        if step is None:
            return method
        return lambda *args, **kwargs: self._trip.around(step, lambda: method(*args, **kwargs))


class _TrippingQueue(_Tripping):
    def __init__(self, queue: Any, trip: Trip) -> None:
        super().__init__(queue, trip, {})

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        if not values:
            return
        step = f"publish.{topic.name.removeprefix('feed.')}.{_kind(values[0])}"
        self._trip.around(step, lambda: self._port.publish(topic, values, partition))

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, some in values.items():
            self.publish(topic, some, partition)

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        for value in values:
            self.publish(topic, [value])

    def consumer(self, topic: Topic[object], group: str) -> Any:
        return _Tripping(self._port.consumer(topic, group), self._trip, {"commit": f"commit.{group}"})


class _TrippingFeeds(_Tripping):
    """Witnesses are no deliveries: they pass."""

    def __init__(self, store: Any, trip: Trip, cluster: str) -> None:
        super().__init__(store, trip, {})
        self._step = f"{cluster}.feeds.apply"

    def apply(self, batch: Sequence[Mutation]) -> None:
        if all(map(is_witness, rows_of(batch))):
            self._port.apply(batch)
        else:
            self._trip.around(self._step, lambda: self._port.apply(batch))


class _TrippingProgress(_Tripping):
    """Tells apart what is noted of parked messages: it has rows of its own."""

    def __init__(self, store: Any, trip: Trip, cluster: str) -> None:
        super().__init__(store, trip, {})
        self._cluster = cluster

    def apply(self, batch: Sequence[Mutation]) -> None:
        kind = "park" if any(row.startswith(b"k") for row in rows_of(batch)) else "apply"
        self._trip.around(f"{self._cluster}.progress.{kind}", lambda: self._port.apply(batch))


def _kind(value: bytes) -> str:
    if value.startswith(b'{"v":2,"actions":'):
        return "task"  # many of them
    return next(
        kind
        for kind in ("task", "delivery", "pack", "hold", "tick", "parked")
        if f'"body":{{"type":"{kind}"'.encode() in value
    )


def tripping(ports: Ports, trip: Trip) -> Ports:
    """The ports, with a trip at every durable step."""
    return replace(
        ports,
        follows=_Tripping(ports.follows, trip, FOLLOW_STEPS),
        queue=_TrippingQueue(ports.queue, trip),
        dead=_Tripping(ports.dead, trip, {"bury": "dead.bury"}),
        replicas={
            name: Replica(
                name,
                {
                    FEEDS: _TrippingFeeds(replica.tables[FEEDS], trip, name),  # type: ignore[dict-item]
                    PROGRESS: _TrippingProgress(replica.progress, trip, name),  # type: ignore[dict-item]
                },
            )
            for name, replica in ports.replicas.items()
        },
    )
