"""As `bench.storm`, on the real servers: what others wait for while one user unfollows 100,000."""

from statistics import median

from bench import storm
from bench.context import Context
from bench.results import Row, at_most
from bench.stack.servers import Servers, home

OTHERS_S = 10.0


def measure(servers: Servers, context: Context) -> list[Row]:
    """How long the actions of others take while one user unfollows 100,000 in one go"""
    taken: list[storm.Storm] = []
    for _ in range(context.repeats):
        with home(servers, context) as config:
            follows = context.pick(storm.FOLLOWS, 1_000)
            taken.append(storm.storm(config, context.folder("storm"), follows, storm.PINS))
            context.say(f"all landed after {taken[-1].landed_s:.1f} s, others {max(taken[-1].shown_s):.2f} s")
    return [
        Row(
            "from the saving of another user's pin until it is shown, the longest",
            "s",
            [max(each.shown_s) for each in taken],
            at_most(OTHERS_S),
        ),
        Row("the same, median", "s", [median(each.shown_s) for each in taken]),
        Row("until all unfollows have landed in both clusters", "s", [each.landed_s for each in taken]),
    ]
