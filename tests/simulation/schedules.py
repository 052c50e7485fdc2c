"""What schedules that are made by hand share: a world with one clock, and actions that are recorded in it."""

from feedstore.domain import DeletePin, Follow, SavePin, Unfollow
from feedstore.follows.port import Request
from tests.simulation.world import CLUSTERS, World

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
