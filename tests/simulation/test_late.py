"""Deliveries that come too late, in schedules that random ones hardly ever make."""

import pytest

from feedstore.domain import Follow, Pin, SavePin, Unfollow, user
from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, held_up, land, record, traced_world
from tests.simulation.world import CAP, World
from workers.following.messages import Delivery
from workers.following.packs import Pack

FORMS = [(1, Pack), (2, Delivery)]
"""How many saves the expander of this world is given at once, and what their deliveries travel in then."""


@pytest.fixture
def world() -> World:
    return traced_world()


def unfollowed_while_saves_are_on_their_way(world: World, saves: int, form: type) -> list[list[int]]:
    """What was delivered of some saves of OWNER lands when READER has unfollowed OWNER: so long after it was read that
    the unfollow does not look back so far, and behind enough newer pins.
    """
    record(world, Follow(READER, user(OWNER)))
    world.drain()
    record(world, *(SavePin(Pin(101 + number, OWNER, BOARD, world.now_ms)) for number in range(saves)))
    on_their_way = held_up(world)
    for partitions in on_their_way.values():
        assert {type(body) for messages in partitions for body in messages.values()} == {form}
    record(world, *(SavePin(Pin(201 + number, OWNER, BOARD, world.now_ms + number)) for number in range(2 * CAP)))
    world.drain()
    world.now_ms += world.limits.window_ms + 1
    record(world, Unfollow(READER, user(OWNER)))
    world.drain()
    assert feeds(world) == [[], []]
    land(world, on_their_way)
    return feeds(world)


@pytest.mark.parametrize(("saves", "form"), FORMS)
def test_rule_8_what_comes_too_late_is_sent_back_and_read_again(world: World, saves: int, form: type):
    assert unfollowed_while_saves_are_on_their_way(world, saves, form) == [[], []]


@pytest.mark.parametrize(
    ("saves", "form", "mutant"),
    [(*FORMS[0], MUTANTS["packs_never_late"]), (*FORMS[1], MUTANTS["deliveries_never_late"])],
)
def test_the_same_schedule_leaves_phantoms_if_nothing_is_late(world: World, saves: int, form: type, mutant: Taken):
    mutant.tamper(world)
    phantoms = [101 + number for number in range(saves)]
    assert unfollowed_while_saves_are_on_their_way(world, saves, form) == [phantoms, phantoms]
