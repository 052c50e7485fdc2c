"""What `feedctl verify` and `feedctl repair` hold in memory if users follow many who have many pins.

    python -m bench.wide [--users 200] [--followees 1000] [--pins 1000]

One replica is right, the other is empty, so that every user is looked at closely and every feed is mended. It prints
the peak of each command's memory next to what is promised, and exits with 1 if that was missed.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

from bench.children import MIB, child, without_settings
from bench.ours import feedctl, forget_outbox, make_home
from deploy.local.signals import unwinding
from feedstore.app import config as configuration
from feedstore.domain import Follow, Followed, Pin, PinSaved, SavePin, user
from feedstore.following import FEEDS, mutations
from feedstore.follows.port import Request
from workers.app import wiring

PEAK_MIB_MAX: Final = 300.0
FIRST_READER: Final = 1_000_000
BASE_MS: Final = 1_600_000_000_000
AT_ONCE: Final = 2_000
COMMAND_S: Final = 3_600.0


def fill(home: Path, users: int, followees: int, pins: int) -> None:
    """The follow store and its indexes; one replica has what it must, and nothing is on its way."""
    config = configuration.load(home, {})
    with closing(wiring.open_ports(config, "write")) as ports:
        made = iter(_pins(followees, pins))
        while some := list(islice(made, AT_ONCE)):
            saved = ports.follows.record([Request(SavePin(pin)) for pin in some])
            ports.follows.index(pins=[each for each in saved if isinstance(each, PinSaved)])
        newest = sorted(_pins(followees, pins), key=lambda pin: (-pin.created_ms, pin.pin))[: config.limits.cap]
        for reader in range(FIRST_READER, FIRST_READER + users):
            actions = [Request(Follow(reader, user(1 + number))) for number in range(followees)]
            edges = [each for each in ports.follows.record(actions) if isinstance(each, Followed)]
            ports.follows.index(edges=[each.edge() for each in edges])
            ts = {each.followee.id: each.ts for each in edges}
            puts = [mutations.put([(reader, ts[pin.owner])], [(pin.pin, pin.created_ms)]) for pin in newest]
            ports.replicas["a"].tables[FEEDS].apply(puts)
        forget_outbox(ports.follows)


def _pins(followees: int, pins: int) -> Iterator[Pin]:
    """All pins; those of the owners are mixed."""
    for number in range(followees * pins):
        owner = 1 + number % followees
        yield Pin(1 + number, owner, owner, BASE_MS + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, number in (("users", 200), ("followees", 1_000), ("pins", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    without_settings()
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        home, log = Path(folder) / "home", Path(folder) / "log"
        make_home(home)
        fill(home, given.users, given.followees, given.pins)
        for words, code in ((["verify", "--json"], 1), (["repair"], 0), (["verify"], 0)):
            with child(feedctl(home, *words), log) as done:
                seconds = done.wait(COMMAND_S, (code,))
            peak = done.peak_bytes / MIB
            missed = missed or peak > PEAK_MIB_MAX
            print(f"{words[0]}: peak {peak:,.0f} MiB, at most {PEAK_MIB_MAX:,.0f}; {seconds:,.0f} s", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    with unwinding():
        main()
