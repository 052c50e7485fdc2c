"""A follow and a save that cross: each enters the index before it reads what the other one entered (rule 4). Random
schedules hardly ever make it matter.
"""

from collections.abc import Callable

import pytest

from feedstore.domain import Follow, Pin, SavePin, user
from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, pause_in, record, traced_world, unrelayed_task
from tests.simulation.world import World

FOLLOW = Follow(READER, user(OWNER))


@pytest.fixture
def world() -> World:
    return traced_world()


def saved(world: World) -> SavePin:
    return SavePin(Pin(101, OWNER, BOARD, world.now_ms))


def saved_while_a_follow_is_expanded(world: World) -> list[list[int]]:
    """The save comes after the follow has read OWNER's pins, and is expanded at once."""

    def meanwhile() -> None:
        record(world, saved(world))
        world.drain()

    record(world, FOLLOW)
    pause_in(world, unrelayed_task(world), "newest_pins", meanwhile)
    world.drain()
    return feeds(world)


def followed_while_a_save_is_expanded(world: World) -> list[list[int]]:
    """The follow comes after the save has read OWNER's followers, and is expanded at once."""

    def meanwhile() -> None:
        record(world, FOLLOW)
        world.drain()

    record(world, saved(world))
    pause_in(world, unrelayed_task(world), "followers", meanwhile)
    world.drain()
    return feeds(world)


CROSSED = pytest.mark.parametrize(
    ("crossed", "guard"),
    [
        (saved_while_a_follow_is_expanded, MUTANTS["index_after_reading_pins"]),
        (followed_while_a_save_is_expanded, MUTANTS["index_after_reading_followers"]),
    ],
)


@CROSSED
def test_rule_4_of_a_follow_and_a_save_that_cross_one_sees_the_other(
    world: World, crossed: Callable[[World], list[list[int]]], guard: Taken
):
    assert crossed(world) == [[101], [101]]


@CROSSED
def test_the_same_schedule_leaves_a_hole_without_the_guard(
    world: World, crossed: Callable[[World], list[list[int]]], guard: Taken
):
    guard.tamper(world)
    assert crossed(world) == [[], []]
