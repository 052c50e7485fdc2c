"""A tick that passes while what was parked lands, in a schedule that random ones hardly ever make."""

import pytest

from feedstore.domain import Follow, Pin, SavePin, user
from feedstore.widecolumn.progress import Progress
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedules import BOARD, OWNER, READER, feeds, record, traced_world
from tests.simulation.world import World, WrongFeedError, patched

CLUSTER = "a"


def parked_and_landed(world: World) -> None:
    """A pin's delivery is parked and lands. Between any two steps of that, ticks from later than the save come through,
    and whatever is behind the watermark must be in the feed. Raises WrongFeedError.
    """
    record(world, Follow(READER, user(OWNER)))
    world.drain()
    record(world, SavePin(Pin(101, OWNER, BOARD, world.now_ms)))
    for relay in world.relays:
        relay.step()
    expander, writer, parking = world.bag.expander, world.bag.writers[CLUSTER], world.parking[CLUSTER]
    world.expander.expand([each.body for each in expander.waiting()])
    expander.pass_over()
    assert parking.park([each.body for each in writer.waiting()], 0) == [True]
    writer.pass_over()
    (copy,) = world.bag.retries[CLUSTER].waiting()
    landing = world.scheduler

    def land() -> None:
        parking.land([copy.body])
        world.note_retried(parking._progress, CLUSTER, [copy])

    landing.start("land", "writer", land)
    steps = 0
    while landing.running:
        landing.resume()
        ticked(world)
        world._check_behind_watermark(CLUSTER)
        steps += 1
    assert steps > 2
    mark = Progress(world.progress[CLUSTER]).watermark()
    assert mark is not None
    assert mark > world.recorded[-1].committed_ms, "the ticks came through"
    assert feeds(world)[0] == [101]


def ticked(world: World) -> None:
    """A tick goes through every partition, and the cluster's writer notes it."""
    world.now_ms += 10
    world.ticker.tick()
    for group, note in ((world.bag.expander, None), (world.bag.writers[CLUSTER], world.writers[CLUSTER])):
        while ticks := list(group.ticks()):
            for each in ticks:
                if note is None:
                    world.expander.tick([each.body])
                else:
                    note.tick([(each.partition, each.body)])
            group.finish(ticks)


@pytest.fixture
def world() -> World:
    return traced_world()


def test_rule_10_the_watermark_waits_until_what_is_parked_has_landed(world: World):
    parked_and_landed(world)


def test_the_same_schedule_shows_a_hole_behind_the_watermark_if_it_counts_as_landed_before_it_has(world: World):
    with (
        patched(MUTANTS["applied_before_landing"].patches()),
        pytest.raises(WrongFeedError, match="behind the watermark"),
    ):
        parked_and_landed(world)
