"""What schedules that are made by hand share: a world with one clock, actions that are recorded in it, and a task that
pauses between two of its reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from feedstore.domain import DeletePin, Follow, RecordedAction, SavePin, Unfollow
from feedstore.follows.port import Request, actions_in
from tests.simulation.world import CLUSTERS, World
from workers.following.messages import Task

READER, OWNER, BOARD = 1, 11, 21


def traced_world() -> World:
    return World(1, one_clock=True, traced=True)


def record(world: World, *actions: Follow | Unfollow | SavePin | DeletePin) -> None:
    """Records actions 10 ms after what came before. Nothing is relayed yet."""
    world.now_ms += 10
    world.follows.record([Request(action) for action in actions])


def feeds(world: World) -> list[list[int]]:
    """READER's feed in each cluster, by pins."""
    return [[entry.pin for entry in world.walk(cluster, READER)] for cluster in CLUSTERS]


def unrelayed_task(world: World) -> RecordedAction:
    """The action that was recorded last, which counts as relayed from now on."""
    rows = world.follows_store.unrelayed(100)
    world.follows_store.mark_relayed(rows[-1:])
    return actions_in(rows)[-1]


def held_up(world: World) -> dict[str, list[dict[int, Any]]]:
    """Has all that was recorded expanded, and holds up its deliveries. Returns them, by cluster and partition."""
    rows = world.follows_store.unrelayed(100)
    world.expander.expand([Task(action) for action in actions_in(rows)])
    world.follows_store.mark_relayed(rows)
    held = {cluster: [dict(messages) for messages in world.bag.writers[cluster].undone] for cluster in CLUSTERS}
    for cluster in CLUSTERS:
        for messages in world.bag.writers[cluster].undone:
            messages.clear()
    return held


def land(world: World, held: Mapping[str, Sequence[Mapping[int, Any]]]) -> None:
    """Lets what was held up land, and all that follows from it."""
    for cluster, late in held.items():
        for messages, some in zip(world.bag.writers[cluster].undone, late, strict=True):
            messages.update(some)
    world.drain()


def pause_in(world: World, action: RecordedAction, after: str, meanwhile: Callable[[], None]) -> None:
    """Has an action expanded; `meanwhile` runs once its handler has called `after` of the follow store."""
    scheduler = world.scheduler
    scheduler.start("paused", "expander", lambda: world.expander.expand([Task(action)]))
    (handler,) = scheduler.running
    while f".{after}(" not in "".join(world.history[-1:]):
        scheduler.resume()
    scheduler.running.remove(handler)  # so that nothing resumes it
    meanwhile()
    scheduler.running.append(handler)
    while scheduler.running:
        scheduler.resume()
