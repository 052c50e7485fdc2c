"""`python -m bench.storm`: how long the actions of others take while one user unfollows 100,000 in one go.

A home of its own, embedded, with a worker. While `feedctl replay` records the unfollows and the worker does them,
somebody else saves a pin every second, and a follower of theirs looks until the page shows it.
`python -m bench.stack --only storm` does the same on the real servers.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench import ours
from bench.children import Child, child, run, without_settings
from deploy.local.signals import unwinding
from feedstore.app.config import Config
from feedstore.app.services import open_service
from feedstore.app.wiring import open_follows
from feedstore.clocks import wall_ms
from feedstore.domain import Follow, Pin, SavePin, user
from feedstore.following.service import FeedService
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.widecolumn.progress import Progress
from workers.app import wiring

FOLLOWS = 100_000
PINS = 2
FIRST = 1_000_000
STORMER, FOLLOWER, OWNER = 1, 2, 3
TIMEOUT_S = 1_800.0
MINUTE_S = 60.0
POLL_S = 0.02


@dataclass(frozen=True)
class Storm:
    """landed_s: from the first unfollow until all have landed in all clusters. shown_s: of each pin that somebody else
    saved meanwhile, from its saving until a page of theirs showed it.
    """

    landed_s: float
    shown_s: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.storm", description=__doc__)
    parser.add_argument("--follows", type=int, default=FOLLOWS)
    parser.add_argument("--pins", type=int, default=PINS, help="of each followee")
    chosen = parser.parse_args()
    without_settings()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        took = storm(ours.make_home(scratch / "home"), scratch, chosen.follows, chosen.pins)
    print(f"the unfollows have landed in all clusters after {took.landed_s:.1f} s")
    shown_s = statistics.median(took.shown_s)
    print(f"others' pins are shown after {shown_s:.2f} s (the longest {max(took.shown_s):.2f} s)")


def storm(config: Config, scratch: Path, follows: int, pins: int) -> Storm:
    """In a home without any data and without a worker. follows: how many are unfollowed, with so many pins each."""
    log = scratch / "log"
    followed = range(FIRST, FIRST + follows)
    _write(scratch / "before", _before(followed, pins))
    _write(scratch / "storm", ({"type": "unfollow", "ts": 1, "follower": STORMER, "user": each} for each in followed))
    run(ours.feedctl(config.home, "replay", str(scratch / "before")), log, TIMEOUT_S)
    run(ours.feedctl(config.home, "work", "--until-idle"), log, TIMEOUT_S)
    with child(ours.feedctl(config.home, "work"), log) as worker, closing(open_follows(config, wall_ms)) as store:
        store.record([Request(Follow(FOLLOWER, user(OWNER)))])
        with closing(open_service(config)) as service:
            shown_s(service, store, 1, worker)  # the worker is there
            began_s = time.perf_counter()
            with child(ours.feedctl(config.home, "replay", str(scratch / "storm")), log) as replay:
                took = list(_others(service, store, began_s, worker))
                replay.wait(TIMEOUT_S)
            _wait_for(config, store.now(), worker)
            return Storm(time.perf_counter() - began_s, took)


def _write(path: Path, lines: Iterator[dict[str, object]]) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def _before(followed: range, pins: int) -> Iterator[dict[str, object]]:
    for each in followed:
        for number in range(pins):
            pin = each * pins + number
            yield {"type": "save_pin", "ts": 1_700_000_000_000 + number, "pin": pin, "owner": each, "board": each}
    for each in followed:
        yield {"type": "follow", "ts": 1, "follower": STORMER, "user": each}


def _others(service: FeedService, follows: FollowStore, began_s: float, worker: Child) -> Iterator[float]:
    """For a minute, how long each pin took."""
    pin = 1
    while time.perf_counter() - began_s < MINUTE_S:
        pin += 1
        took_s = shown_s(service, follows, pin, worker)
        yield took_s
        time.sleep(max(0.0, 1.0 - took_s))


def shown_s(service: FeedService, follows: FollowStore, pin: int, worker: Child) -> float:
    """How long a pin of OWNER takes from its saving until a page of FOLLOWER's shows it. Raises TimeoutError;
    ChildError: the worker has ended.
    """
    began_s = time.perf_counter()
    follows.record([Request(SavePin(Pin(pin, OWNER, OWNER, wall_ms())))])
    while pin not in {entry.pin for entry in service.page(FOLLOWER, 25, None).entries}:
        worker.refuse_ended()
        if time.perf_counter() - began_s > TIMEOUT_S:
            raise TimeoutError(f"pin {pin} is not shown after {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
    return time.perf_counter() - began_s


def _wait_for(config: Config, until_ms: int, worker: Child) -> None:
    """Returns once every watermark is past a time. Raises TimeoutError; ChildError: the worker has ended."""
    began_s = time.perf_counter()
    with closing(wiring.open_ports(config, "read", wall_ms)) as ports:
        for replica in ports.replicas.values():
            while (Progress(replica.progress).watermark() or 0) <= until_ms:
                worker.refuse_ended()
                if time.perf_counter() - began_s > TIMEOUT_S:
                    raise TimeoutError(f"not all has landed in cluster {replica.name} after {TIMEOUT_S:.0f} s")
                time.sleep(POLL_S)


if __name__ == "__main__":
    with unwinding():
        main()
