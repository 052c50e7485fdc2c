"""Deliveries that come too late, in schedules that random ones hardly ever make."""

import pytest

from feedstore.domain import Follow, Pin, SavePin, Unfollow, user
from feedstore.follows.port import actions_in
from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, record, traced_world
from tests.simulation.world import CAP, CLUSTERS, World
from workers.following.messages import Delivery, Task
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
    rows = world.follows_store.unrelayed(100)
    world.expander.expand([Task(action) for action in actions_in(rows)])
    world.follows_store.mark_relayed(rows)
    on_their_way = {cluster: [dict(messages) for messages in world.bag.writers[cluster].undone] for cluster in CLUSTERS}
    for cluster in CLUSTERS:
        assert {type(body) for messages in on_their_way[cluster] for body in messages.values()} == {form}
        for messages in world.bag.writers[cluster].undone:
            messages.clear()
    record(world, *(SavePin(Pin(201 + number, OWNER, BOARD, world.now_ms + number)) for number in range(2 * CAP)))
    world.drain()
    world.now_ms += world.limits.window_ms + 1
    record(world, Unfollow(READER, user(OWNER)))
    world.drain()
    assert feeds(world) == [[], []]
    for cluster in CLUSTERS:
        for messages, late in zip(world.bag.writers[cluster].undone, on_their_way[cluster], strict=True):
            messages.update(late)
    world.drain()
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
