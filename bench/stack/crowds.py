"""As `bench.crowds`, on the real servers: what others wait for while a user with many followers saves some pins."""

from statistics import median

from bench import crowds
from bench.context import Context
from bench.results import Row, at_most, ratios
from bench.stack.servers import Servers, home

OTHERS_S = 5.0


def measure(servers: Servers, context: Context) -> list[Row]:
    """How long others' pins take while a user with 100,000 followers saves 40 at once, in ranges and as a whole"""
    followers, pins = context.pick(100_000, 1_000), context.pick(40, 4)
    taken: dict[bool, list[crowds.Crowd]] = {False: [], True: []}
    for _ in range(context.repeats):
        for whole, each in taken.items():
            with home(servers, context) as config:
                each.append(crowds.crowd(config, context.folder("crowds"), followers, pins, whole=whole))
            said = "as a whole" if whole else "in ranges"
            context.say(f"{said}: others {max(each[-1].shown_s):.2f} s, all after {each[-1].all_s:.1f} s")
    longest = {whole: [max(each.shown_s) for each in some] for whole, some in taken.items()}
    medians = {whole: [median(each.shown_s) for each in some] for whole, some in taken.items()}
    ends = {whole: [each.all_s for each in some] for whole, some in taken.items()}
    return [
        Row("another user's pin is shown, the longest", "s", longest[False], at_most(OTHERS_S)),
        Row("the same / if fanouts are done as a whole", "x", ratios(longest[False], longest[True])),
        Row("the same, median", "x", ratios(medians[False], medians[True])),
        Row("until the popular user's followers have all pins", "s", ends[False]),
        Row("the same / if fanouts are done as a whole", "x", ratios(ends[False], ends[True])),
    ]
