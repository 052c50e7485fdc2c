"""An unfollow while another edge's backfill is on its way, in a schedule that random ones hardly ever make."""

import pytest

from feedstore.domain import Follow, Pin, SavePin, Unfollow, board, user
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, held_up, land, record, traced_world
from tests.simulation.world import CAP, World, patched
from workers.following import purge

OTHER_BOARD = 22


@pytest.fixture
def world() -> World:
    return traced_world()


def unfollowed_while_a_backfill_is_on_its_way(world: World) -> list[list[int]]:
    """READER follows OWNER and one of their boards. The backfill of the board is slow: READER has unfollowed both when
    it lands. What it brings is too old to be among OWNER's newest pins, and was covered when the board was unfollowed.
    """
    for number in range(2 * CAP):
        record(world, SavePin(Pin(101 + number, OWNER, BOARD if number < CAP else OTHER_BOARD, world.now_ms)))
    world.drain()
    world.now_ms += world.limits.window_ms + 1
    record(world, Follow(READER, user(OWNER)))
    world.drain()
    record(world, Follow(READER, board(BOARD)))
    on_its_way = held_up(world)
    record(world, Unfollow(READER, board(BOARD)))
    world.drain()
    record(world, Unfollow(READER, user(OWNER)))
    world.drain()
    assert feeds(world) == [[], []]
    land(world, on_its_way)
    return feeds(world)


def test_rule_6_an_unfollow_masks_what_the_backfill_of_an_overlapping_edge_brings_later(world: World):
    assert unfollowed_while_a_backfill_is_on_its_way(world) == [[], []]


def test_rule_6_overlapping_edges_are_looked_up_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(purge, "_KEYS_AT_ONCE", 0)
    assert unfollowed_while_a_backfill_is_on_its_way(world) == [[], []]


def test_the_same_schedule_leaves_phantoms_without_the_lists_of_overlapping_edges(world: World):
    with patched(MUTANTS["no_overlap_lists"].patches()):
        left = unfollowed_while_a_backfill_is_on_its_way(world)
    phantoms = [101 + number for number in reversed(range(CAP))]
    assert left == [phantoms, phantoms]
