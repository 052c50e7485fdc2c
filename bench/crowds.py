"""`python -m bench.crowds`: how long others' pins take while one user with many followers saves some pins at once.

Two workers in turn, each in a home of its own, embedded: one does a fanout in ranges, the other as a whole. Somebody
else saves one pin after the other, and a follower of theirs looks until the page shows it. `python -m bench.stack
--only crowds` does the same on the real servers.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import ours
from bench.children import child, without_settings
from bench.measurements.fanout import FIRST_FOLLOWER, index_followers
from bench.storm import FOLLOWER, OWNER, shown_s
from deploy.local.signals import unwinding
from feedstore.app.config import Config
from feedstore.app.services import open_service
from feedstore.app.wiring import open_follows
from feedstore.clocks import wall_ms
from feedstore.domain import Follow, Pin, SavePin, user
from feedstore.following.service import FeedService
from feedstore.follows.port import Request
from workers.app import wiring
from workers.cli.root import main as feedctl
from workers.following import Expander

WHOLE = "--whole-fanouts"
POPULAR = 4
SAMPLE = 20
"""So many of the followers, spread over them, are looked at."""
PAUSE_S = 0.1
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Crowd:
    """shown_s: of each pin of somebody else, from its saving until a page showed it. all_s: from the saving of the
    popular user's pins until the followers that are looked at have them all.
    """

    shown_s: list[float]
    all_s: float


def main() -> None:
    if sys.argv[1:2] == [WHOLE]:
        _work_with_whole_fanouts(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="bench.crowds", description=__doc__)
    parser.add_argument("--followers", type=int, default=100_000)
    parser.add_argument("--pins", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    without_settings()
    taken: dict[str, list[Crowd]] = {"in ranges": [], "as a whole": []}
    for number, (name, crowds) in itertools.product(range(chosen.repeats), taken.items()):
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            home = ours.make_home(scratch / "home")
            crowds.append(crowd(home, scratch, chosen.followers, chosen.pins, whole=name == "as a whole"))
        print(f"{number + 1} of {chosen.repeats}, {name}: {max(crowds[-1].shown_s):.2f} s, {crowds[-1].all_s:.1f} s")
    print(f"\n{chosen.pins} pins at once of a user with {chosen.followers:,} followers\n")
    print("| fanouts | others' pins are shown after: median | longest | all of its followers have them after |")
    print("|---|---|---|---|")
    for name, crowds in taken.items():
        median = _spread([statistics.median(each.shown_s) for each in crowds])
        print(
            f"| {name} | {median} | {_spread([max(each.shown_s) for each in crowds])}"
            f" | {_spread([each.all_s for each in crowds])} |"
        )


def _work_with_whole_fanouts(args: Sequence[str]) -> None:
    """A worker as it was before fanouts were done in ranges."""
    wiring.Expander = partial(Expander, cells=sys.maxsize)  # type: ignore[attr-defined, assignment]
    feedctl(list(args))


def crowd(config: Config, scratch: Path, followers: int, pins: int, *, whole: bool) -> Crowd:
    """In a home without any data and without a worker. whole: its worker does each fanout as a whole."""
    with ours.ports(config) as opened:
        index_followers(opened.follows, POPULAR, followers)
    words = ours.feedctl(config.home, "work")
    if whole:
        words = [sys.executable, "-m", "bench.crowds", WHOLE, *words[1:]]
    with child(words, scratch / "log") as worker, closing(open_follows(config, wall_ms)) as store:
        store.record([Request(Follow(FOLLOWER, user(OWNER)))])
        with closing(open_service(config)) as service:
            shown_s(service, store, 1, worker)  # the worker is there
            began_s = time.perf_counter()
            popular = [Pin(1_000_000 + number, POPULAR, POPULAR, wall_ms()) for number in range(pins)]
            store.record([Request(SavePin(pin)) for pin in popular])
            took_s: list[float] = []
            all_s = 0.0
            for _ in _until_all_have_them(service, followers, pins):
                took_s.append(shown_s(service, store, 2 + len(took_s), worker))
                all_s = time.perf_counter() - began_s
                time.sleep(PAUSE_S)
            return Crowd(took_s, all_s)


def _until_all_have_them(service: FeedService, followers: int, pins: int) -> Iterator[None]:
    """Ends when the followers that are looked at have all pins. Raises TimeoutError."""
    began_s = time.perf_counter()
    left = set(range(FIRST_FOLLOWER, FIRST_FOLLOWER + followers, max(1, followers // SAMPLE)))
    while left:
        if time.perf_counter() - began_s > TIMEOUT_S:
            raise TimeoutError(f"{len(left)} of {SAMPLE} followers lack pins after {TIMEOUT_S:.0f} s")
        yield
        left = {each for each in left if len(service.page(each, pins, None).entries) < pins}


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s ({min(values):.2f} .. {max(values):.2f})"


if __name__ == "__main__":
    with unwinding():
        main()
