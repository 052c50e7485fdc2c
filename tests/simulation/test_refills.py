"""A refill whose two reads have something between them, in a schedule that random ones hardly ever make."""

from collections.abc import Callable

import pytest

from feedstore.domain import DeletePin, Follow, Pin, RefillAsked, SavePin, Unfollow, user
from feedstore.follows.port import actions_in
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, pause_in, record, traced_world
from tests.simulation.world import World, patched
from workers.following.messages import Task


@pytest.fixture
def world() -> World:
    return traced_world()


def in_between(
    world: World, meanwhile: Callable[[], None], request: RefillAsked | None = None, after: str = "following_of"
) -> None:
    """Has READER's feed refilled; `meanwhile` runs once the refill has read what is followed, and has read no pin; or
    after another of its reads.
    """
    pause_in(world, request or RefillAsked(READER, None, world.now_ms), after, meanwhile)


def unfollowed_and_saved(world: World) -> None:
    def meanwhile() -> None:
        record(world, Unfollow(READER, user(OWNER)))
        world.drain()
        record(world, SavePin(Pin(102, OWNER, BOARD, world.now_ms)))
        world.drain()

    record(world, Follow(READER, user(OWNER)), SavePin(Pin(101, OWNER, BOARD, world.now_ms)))
    world.drain()
    in_between(world, meanwhile)
    world.drain()


def test_rule_4_a_refill_leaves_out_what_was_unfollowed_between_its_reads(world: World):
    unfollowed_and_saved(world)
    assert feeds(world) == [[], []]


def test_the_same_schedule_leaves_a_phantom_without_the_second_look(world: World):
    MUTANTS["no_second_look_in_refills"].tamper(world)
    unfollowed_and_saved(world)
    assert feeds(world) == [[102], [102]]


def test_rule_4_a_refill_delivers_under_the_edge_that_stands_at_its_second_look(world: World):
    def meanwhile() -> None:
        record(world, Unfollow(READER, user(OWNER)))
        world.drain()
        record(world, SavePin(Pin(102, OWNER, BOARD, world.now_ms)), Follow(READER, user(OWNER)))

    record(world, Follow(READER, user(OWNER)), SavePin(Pin(101, OWNER, BOARD, world.now_ms)))
    world.drain()
    in_between(world, meanwhile)
    world.drain()
    assert feeds(world) == [[102, 101], [102, 101]]


def deleted_before_the_index(world: World) -> None:
    """A pin is deleted once a refill has read it, and that deletion looks for its followers before READER is in the
    index: the task of the follow waits on another shard.
    """

    def meanwhile() -> None:
        record(world, DeletePin(101))
        (*_, deletion) = world.follows_store.unrelayed(100)
        world.expander.expand([Task(*actions_in([deletion]))])
        world.follows_store.mark_relayed([deletion])

    record(world, SavePin(Pin(101, OWNER, BOARD, world.now_ms)))
    world.drain()
    record(world, Follow(READER, user(OWNER)))
    in_between(world, meanwhile, after="newest_pins_merged")
    world.drain()


def test_rule_7_a_refill_leaves_out_what_was_deleted_before_its_edges_were_in_the_index(world: World):
    deleted_before_the_index(world)
    assert feeds(world) == [[], []]


def test_the_same_schedule_leaves_a_deleted_pin_without_the_look_at_deletions(world: World):
    MUTANTS["no_look_at_deletions_in_backfills"].tamper(world)
    deleted_before_the_index(world)
    assert feeds(world) == [[101], [101]]


def asked(world: World, count: int) -> list[RefillAsked]:
    """Requests for READER's refill in one cluster, each later than the one before."""
    for _ in range(count):
        world.now_ms += 1
        world.follows_store.ask_refill([READER], "a", 0)
    return actions_in(world.follows_store.unrelayed(100))[-count:]


def test_rule_9_a_refill_serves_every_request_that_was_recorded_before_it_began(world: World):
    """A user who unfollows thousands asks with each batch of markers; all of them wait together for their turn."""
    requests = asked(world, 20)
    read = counted_refills(world)
    for request in requests:
        world.expander.expand([Task(request)])
    # The first, and the last: what is asked for in the millisecond of the latest request might come after the look.
    assert read() == 2


def served_between(world: World) -> int:
    """How often a feed is refilled where a request is recorded after another one's refill has begun."""
    (first,) = asked(world, 1)
    later: list[RefillAsked] = []
    in_between(world, lambda: later.extend(asked(world, 1)), first)
    read = counted_refills(world)
    world.expander.expand([Task(*later)])
    return read()


def test_rule_9_a_refill_does_not_serve_what_is_asked_for_after_its_first_read(world: World):
    assert served_between(world) == 1


def test_a_request_goes_unserved_where_a_refill_serves_what_came_after_its_first_read(world: World):
    MUTANTS["served_by_what_began_before"].tamper(world)
    assert served_between(world) == 0


def served_late(world: World) -> list[int]:
    """How often a served request is refilled again: soon, and when deliveries of its refill may have come too late."""
    first, _ = asked(world, 2)
    backfill, read = world.expander._backfill, counted_refills(world)
    backfill.refill([first], world.now_ms, None)
    counts = []
    for age_ms in (0, world.limits.delivery_age_ms):
        before = read()
        backfill.refill([first], world.now_ms + age_ms, None)
        counts.append(read() - before)
    return counts


def test_rule_8_a_request_that_comes_back_with_late_deliveries_is_not_served(world: World):
    assert served_late(world) == [0, 1]


def test_late_deliveries_of_a_refill_are_lost_where_it_stays_served(world: World):
    with patched(MUTANTS["served_for_ever"].patches()):
        assert served_late(world) == [0, 0]


def counted_refills(world: World) -> Callable[[], int]:
    port, seen = world.follows, []
    real = port.following_of

    def following_of(*asked: object) -> object:
        seen.append(asked)
        return real(*asked)

    port.following_of = following_of
    return lambda: len(seen)
