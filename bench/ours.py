"""The system under measurement: its command line as a user has it, and its ports where a part is measured alone."""

import gc
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bench.deliveries import CAP
from bench.feeds import Feed
from feedstore.app.config import ClusterConfig, Config
from feedstore.app.wiring import create_cluster
from feedstore.clocks import wall_ms
from feedstore.domain import PinSaved, RecordedAction
from feedstore.following import FEEDS, mutations
from feedstore.following.pages import FeedPages
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from feedstore.replicas.attempts import InPlace
from feedstore.replicas.replicas import Replica, Replicas, ReplicaSource
from feedstore.widecolumn import Mutation
from workers.app import memory_tuning, until, wiring
from workers.app.home import create
from workers.following.ports import Ports

BATCH_CELLS = 10_000
RECORDED_AT_ONCE = 1_000


def feedctl(home: Path, *words: str) -> Sequence[str]:
    """The command line of a feedctl call."""
    return [str(Path(sys.executable).with_name("feedctl")), "--home", str(home), *words]


@contextmanager
def relaxed() -> Iterator[None]:
    """The garbage collector as it is in commands that work for long."""
    before = gc.get_threshold()
    memory_tuning.relax()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def make_home(home: Path) -> Config:
    """An empty home, as `feedctl init` makes it."""
    return create(home, {})


def pages_of(replica: Replica) -> FeedPages:
    """What reads pages of one cluster, on the caller's own thread."""
    replicas = Replicas([ReplicaSource(replica, InPlace())], wall_ms, 1.0, time.monotonic)
    replicas.set_watermark(replica.name, wall_ms())  # as servers hear every second
    return FeedPages(replicas, CAP)


def with_cluster(config: Config, name: str) -> Config:
    """The same home with one cluster of another name: never written; its group starts at the first delivery."""
    changed = replace(config, clusters=(ClusterConfig(name, f"rocksdb:data/{name}", "rocksdb"),))
    create_cluster(changed, name)
    return changed


@contextmanager
def ports(config: Config, clock: Callable[[], int] = wall_ms) -> Iterator[Ports]:
    with closing(wiring.open_ports(config, "write", clock)) as opened:
        yield opened


@contextmanager
def replica(config: Config) -> Iterator[Replica]:
    """The first cluster of a home."""
    with ports(config) as opened:
        yield next(iter(opened.replicas.values()))


# Feeds without actions
# --------------------------------------------------------------------------------------------------------------------


def fill(into: Replica, feeds: Iterable[Feed]) -> None:
    """Writes feeds as backfills do, a mutation for each edge."""
    batch: list[Mutation] = []
    cells = 0
    for feed in feeds:
        by_edge: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for entry, ts in zip(feed.entries, feed.edges, strict=True):
            by_edge[ts].append(entry)
        batch += [mutations.put([(feed.user, ts)], entries) for ts, entries in by_edge.items()]
        cells += len(feed.entries)
        if cells >= BATCH_CELLS:
            into.tables[FEEDS].apply(batch)
            batch, cells = [], 0
    into.tables[FEEDS].apply(batch)


def disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# Actions without workers
# --------------------------------------------------------------------------------------------------------------------


def record(follows: FollowStore, requests: Sequence[Request]) -> None:
    """Records actions, none of which may be refused."""
    for some in chunks(requests, RECORDED_AT_ONCE):
        for answer in follows.record(some):
            assert not isinstance(answer, Exception), answer


def record_indexed(follows: FollowStore, requests: Iterable[Request], say: Callable[[int], None]) -> None:
    """Records actions and writes their indexes, as relay and expander would, but delivers nothing: the state from
    which one action is then measured.
    """
    done = 0
    given = iter(requests)
    while some := list(islice(given, RECORDED_AT_ONCE)):
        recorded = [action for action in follows.record(some) if not isinstance(action, Exception)]
        index(follows, recorded)
        done += len(some)
        if done % 100_000 == 0:
            say(done)
    forget_outbox(follows)


def forget_outbox(follows: FollowStore) -> None:
    """As if everything had been relayed."""
    while rows := follows.unrelayed(RECORDED_AT_ONCE):
        follows.mark_relayed(rows)


def index(follows: FollowStore, recorded: Sequence[RecordedAction]) -> None:
    follows.index(
        edges=[action.edge() for action in recorded if hasattr(action, "edge")],
        pins=[action for action in recorded if isinstance(action, PinSaved)],
    )


def wait_idle(opened: Ports, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not until.idle(opened):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker was not idle after {timeout_s:.0f} s")
        time.sleep(0.002)


def remove_cluster(config: Config, name: str) -> None:
    shutil.rmtree(config.home / "data" / name)
