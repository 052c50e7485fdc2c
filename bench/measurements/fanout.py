"""A pin with a million followers: how long until both replicas hold it everywhere, and what the worker needs."""

from collections.abc import Iterator, Sequence

from bench import ours
from bench.children import MIB, run
from bench.context import Context
from bench.results import Row, at_most, ratios
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.domain import Edge, Follow, Pin, SavePin, user
from feedstore.following import FEEDS, row_key
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks

FIRST_FOLLOWER = 1_000
INDEXED_AT_ONCE = 5_000
WORK_S = 600.0
FLAT = 1.25
"""How much more memory than with the fewest followers still counts as flat."""


def measure(context: Context) -> list[Row]:
    """A pin with 1,000,000 followers into both replicas, and the worker's memory from 1,000 followers on"""
    sizes = sizes_of(context)
    config = ours.make_home(context.folder("fanout"))
    with ours.ports(config) as opened:
        ours.record_indexed(opened.follows, _follows(sizes), lambda done: context.say(f"{done:,} follows recorded"))
    return pins_saved(context, config, sizes, "replicas", 15)


def sizes_of(context: Context) -> tuple[int, ...]:
    """How many followers the owners have: user 1 so many, user 2 so many, and so on."""
    return (100, 1_000, 10_000) if context.quick else (1_000, 100_000, 1_000_000)


def pins_saved(context: Context, config: Config, sizes: Sequence[int], where: str, at_most_s: float) -> list[Row]:
    """A pin of each owner, whose followers are indexed. where: what rows call the two that a pin goes into. at_most_s:
    for the one with the most followers.
    """
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    peaks: dict[int, list[float]] = {size: [] for size in sizes}
    pin = 0
    for _ in range(context.repeats):
        for owner, size in enumerate(sizes, start=1):
            pin += 1
            saved = Pin(pin, owner, owner, wall_ms())
            with ours.ports(config) as opened:
                opened.follows.record([Request(SavePin(saved))])
            # A process of its own each time: its peak is that of this pin alone.
            log = context.folder("fanout") / "log"
            worker = run(ours.feedctl(config.home, "work", "--until-idle"), log, WORK_S)
            assert worker.seconds
            seconds[size].append(worker.seconds)
            peaks[size].append(worker.peak_bytes / MIB)
            context.say(f"{size:,}: {worker.seconds:.1f} s, {worker.peak_bytes / MIB:.0f} MiB")
            _check(config, saved, FIRST_FOLLOWER + size - 1)
    least, most = sizes[0], sizes[-1]
    rows = [
        Row(
            f"a pin with {most:,} followers, into both {where}, start of the worker included",
            "s",
            seconds[most],
            at_most(at_most_s),
        ),
        Row(f"worker's peak memory, {most:,} followers", "MiB", peaks[most], at_most(200)),
        Row(
            f"worker's peak memory, {most:,} followers / {least:,} followers",
            "x",
            ratios(peaks[most], peaks[least]),
            at_most(FLAT),
        ),
    ]
    for size in sizes[:-1]:
        rows.append(Row(f"a pin with {size:,} followers, into both {where}", "s", seconds[size]))
        rows.append(Row(f"worker's peak memory, {size:,} followers", "MiB", peaks[size]))
    return rows


def _follows(sizes: Sequence[int]) -> Iterator[Request]:
    for owner, size in enumerate(sizes, start=1):
        for follower in range(FIRST_FOLLOWER, FIRST_FOLLOWER + size):
            yield Request(Follow(follower, user(owner)))


def _check(config: Config, pin: Pin, last: int) -> None:
    """The last follower has it, everywhere."""
    with ours.ports(config) as opened:
        for replica in opened.replicas.values():
            columns = replica.tables[FEEDS].read(row_key(last), None, 1)
            assert columns, f"{replica.name}: nothing in the feed of {last}"
            assert int.from_bytes(columns[0][8:], "big") == pin.pin


def index_followers(follows: FollowStore, owner: int, size: int) -> None:
    """Index rows of so many followers, as the expander leaves them; a fanout reads nothing else."""
    for some in chunks(range(FIRST_FOLLOWER, FIRST_FOLLOWER + size), INDEXED_AT_ONCE):
        follows.index(edges=[Edge(follower, user(owner), wall_ms(), active=True) for follower in some])
