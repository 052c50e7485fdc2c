"""The catalog as a web process reads it: how many keys of a trace's pages reach the store; a fetch while candidates are
ranked; a hundred keys that are held, against Redis.
"""

import hashlib
import heapq
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import actions
from bench.context import Context
from bench.redis_server import redis_client
from bench.results import Row, at_most, interleaved, latencies, of_sides, percentile, ratios
from bench.timing import each_us, seconds
from feedstore.catalog.cache import Cache, Lifetimes
from feedstore.catalog.forms import AS_BYTES
from feedstore.catalog.pins import key_of, record_of, update_of
from feedstore.catalog.port import CatalogFetcher, Delta, Fetched, Generation
from feedstore.catalog.reader import Catalog
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, PinSaved
from feedstore.replicas.attempts import InPlace, OnThreads, Reads

if TYPE_CHECKING:
    import redis  # an extra, which a measurement without it does not need

PAGE = 25
VIEWS = 10
"""Page views an action."""
VIEW_EVERY_MS = 30_000
HOUR_MS = 3_600_000
WINDOW_MS, EVERY_MS = 2 * HOUR_MS, 30 * HOUR_MS
"""Pages are viewed for two hours out of 30, so that all hours of a day count, and the bench ends."""
BEHIND_MS = 1_000
"""How far the store and the stream are behind."""
ROOM = 64 << 20
WITHIN_S = 10.0

RECORDS = 300_000
HELD = 50_000
BATCH, MISSING = 100, 6
BLOCKS = 20

CANDIDATES = 300
RANKING_S = 0.025
FETCH_SHARE = 0.12


def measure(context: Context) -> list[Row]:
    """Keys that reach the store on a trace; a fetch while ranking; a hundred keys that are held, against Redis"""
    return [*on_the_trace(context), *while_ranking(context), *against_redis(context)]


# Keys that reach the store
# ----------------------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Something that happens in the trace: a pin is saved, or a page is viewed."""

    ts: int
    saved: PinSaved | None
    keys: list[bytes]


def on_the_trace(context: Context) -> list[Row]:
    windows = list(views(context.actions_file, random.Random(1), context.pick(1 << 30, 9_000)))
    context.say(f"{sum(len(each) for each in windows):,} pages and pins in {len(windows)} windows")
    alone, followed = (reached(windows, follow=follow) for follow in (False, True))
    return [
        Row("keys that reach the store / keys asked, TTL 5 min", "x", [alone.share], at_most(0.07)),
        Row("the same in a process that hears of updates", "x", [followed.share], at_most(0.02)),
        Row("how far behind a page is at most, TTL 5 min", "s", [alone.behind_s]),
        Row("the same in a process that hears of updates", "s", [followed.behind_s]),
        Row("what a process holds at most", "MiB", [alone.held_mib]),
    ]


def views(actions_file: Path, rng: random.Random, actions_max: int) -> Iterator[list[Step]]:
    """Each user who acts views the top of their feed ten times from then on, every half a minute on average."""
    followees: dict[int, set[int]] = defaultdict(set)
    pins: dict[int, list[tuple[int, int]]] = defaultdict(list)
    to_view: list[tuple[int, int]] = []
    window: list[Step] = []
    began_ms = 0
    for action in islice(actions.read(actions_file), actions_max):
        began_ms = began_ms or action.ts
        while to_view and to_view[0][0] <= action.ts:
            ts, viewer = heapq.heappop(to_view)
            window.append(Step(ts, None, [key_of(pin) for pin in page(followees[viewer], pins)]))
        if (action.ts - began_ms) % EVERY_MS >= WINDOW_MS:
            to_view.clear()
            if window:
                yield window
            window = []
        saved = None
        if isinstance(action, actions.Follow) and action.user is not None:
            followees[action.follower].add(action.user)
        elif isinstance(action, actions.Unfollow) and action.user is not None:
            followees[action.follower].discard(action.user)
        elif isinstance(action, actions.SavePin):
            pins[action.owner].append((action.ts, action.pin))
            del pins[action.owner][:-PAGE]
            saved = PinSaved(Pin(action.pin, action.owner, action.board, action.ts), action.ts)
        if (action.ts - began_ms) % EVERY_MS < WINDOW_MS:
            actor = action.owner if isinstance(action, actions.SavePin) else 0
            if saved is not None:
                window.append(Step(action.ts, saved, []))
            if followees.get(actor):
                ts = action.ts
                for _ in range(VIEWS):
                    heapq.heappush(to_view, (ts, actor))
                    ts += int(rng.expovariate(1 / VIEW_EVERY_MS))
    if window:
        yield window


def page(followees: Iterable[int], pins: dict[int, list[tuple[int, int]]]) -> list[int]:
    newest = heapq.nlargest(PAGE, (pin for user in followees if user in pins for pin in pins[user]))
    return [pin for _, pin in newest]


class Reached(NamedTuple):
    share: float
    behind_s: float
    held_mib: float


def reached(windows: Sequence[Sequence[Step]], *, follow: bool) -> Reached:
    """The second half of each window, by a process that began with it. follow: whether it hears of updates, a second
    after they were committed.
    """
    asked = stored = behind_ms = held = 0
    for window in windows:
        at = Clock(window[0].ts)
        cache = Cache(ROOM, Lifetimes(), random.Random(2).random, AS_BYTES)
        catalog = Catalog(EveryKey(at), InPlace(), cache, WITHIN_S, at.s, at.now_ms)
        if follow:
            catalog.heard_from(at.ms - BEHIND_MS)
        is_warm, before = False, 0
        for ts, saved, keys in window:
            at.ms = max(at.ms, ts)
            if not is_warm and ts >= window[0].ts + WINDOW_MS // 2:
                is_warm, before = True, catalog.counts().fetched
            if follow:
                if saved is not None:
                    catalog.entered(update_of(saved))
                catalog.note_known(at.ms - BEHIND_MS)
            got = catalog.begin(keys).result()
            assert len(got.records) == len(keys)
            if is_warm:
                asked += len(keys)
                behind_ms = max(behind_ms, got.behind_ms or 0)
        if is_warm:
            stored += catalog.counts().fetched - before
        held = max(held, catalog.cache_bytes())
        catalog.close()
    assert asked, "the actions are too few: a process is warm after an hour of them"
    return Reached(stored / asked, behind_ms / 1_000, held / 2**20)


class Clock:
    """The clock of a trace."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def s(self) -> float:
        return self.ms / 1_000

    def now_ms(self) -> int:
        return self.ms


class EveryKey:
    """A store that has a record for every key. takes_s: how long it takes to answer."""

    def __init__(self, at: Clock | None = None, takes_s: float = 0.0) -> None:
        self._now_ms = wall_ms if at is None else at.now_ms
        self._takes_s = takes_s
        self._record = record_of(Pin(1, 2, 3, 4), deleted=False)

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None, oldest_ms: int = 0) -> Fetched:  # noqa: ARG002  # in time
        if self._takes_s:
            time.sleep(self._takes_s)
        return Fetched(dict.fromkeys(keys, self._record), "1-a", self._now_ms() - BEHIND_MS)

    def generations(self) -> list[Generation]:
        return []

    def delta(self) -> Delta:
        return Delta(0, 0, 0)

    def rollbacks(self) -> int:
        return 0

    def close(self) -> None: ...


# A fetch while candidates are ranked
# ----------------------------------------------------------------------------------------------------------------------


def while_ranking(context: Context) -> list[Row]:
    """What ranks here computes outside of the interpreter's lock, as a model does; the store is across a network."""
    rounds = _rounds()
    fetch_s = FETCH_SHARE * RANKING_S
    catalog = opened(EveryKey(takes_s=fetch_s), OnThreads("bench", 8))
    numbers = iter(range(1 << 40))

    def candidates() -> list[bytes]:
        return [key_of(number) for number in islice(numbers, CANDIDATES)]

    def alone(_: int) -> None:
        candidates()
        rank(rounds)

    def after(_: int) -> None:
        rank(rounds)
        assert len(catalog.begin(candidates()).result().records) == CANDIDATES

    def during(_: int) -> None:
        fetch = catalog.begin(candidates())
        rank(rounds)
        assert len(fetch.result().records) == CANDIDATES

    calls = range(context.pick(10, 2))
    sides = {
        name: partial(each_us, side, calls) for name, side in (("alone", alone), ("after", after), ("during", during))
    }
    taken = interleaved(sides, context.repeats * BLOCKS // 2)
    catalog.close()
    p50 = latencies(taken, BLOCKS // 2)["p50"]
    what = f"ranking {CANDIDATES} candidates"
    return [
        Row(f"{what} while they are fetched / ranking alone", "x", ratios(p50["during"], p50["alone"]), at_most(1.02)),
        Row(f"{what}, then fetching them / ranking alone", "x", ratios(p50["after"], p50["alone"])),
        Row(f"{what}, p50", "ms", [each / 1_000 for each in p50["alone"]]),
    ]


def rank(rounds: int) -> None:
    hashlib.pbkdf2_hmac("sha256", b"candidates", b"salt", rounds)


def _rounds() -> int:
    """So many that a ranking takes RANKING_S."""
    trial = 20_000
    return max(1, int(trial * RANKING_S / percentile([seconds(partial(rank, trial)) for _ in range(9)], 0.5)))


# Against Redis
# ----------------------------------------------------------------------------------------------------------------------


def against_redis(context: Context) -> list[Row]:
    """All of a hundred keys held; and 94 of them, the others in RocksDB."""
    count = context.pick(RECORDS, 20_000)
    held = min(HELD, count // 4)
    keys = [key_of(number) for number in range(1, count + 1)]
    records = [
        record_of(Pin(number, 1 + number % 977, 1 + number % 4_999, wall_ms()), deleted=False)
        for number in range(1, count + 1)
    ]
    rng = random.Random(3)
    with (
        in_files(context.folder("catalog"), list(zip(keys, records, strict=True))) as reader,
        redis_client(context.folder("redis")) as client,
    ):
        fill(client, keys[:held], records[:held])
        replicas = CatalogReplicas([CatalogSource("a", reader, InPlace())], WITHIN_S, time.monotonic)
        catalog = opened(replicas, InPlace())
        for start in range(0, held, 1_000):
            catalog.begin(keys[start : start + 1_000]).result()
        unseen = iter(rng.sample(keys[held:], count - held))

        def batch() -> list[bytes]:
            return rng.choices(keys[:held], k=BATCH)

        def partly() -> list[bytes]:
            return rng.choices(keys[:held], k=BATCH - MISSING) + list(islice(unseen, MISSING))

        def hashes(asked: list[bytes]) -> object:
            pipe = client.pipeline(transaction=False)
            for key in asked:
                pipe.hgetall(b"h" + key)
            return pipe.execute()

        def ours(asked: list[bytes]) -> object:
            got = catalog.begin(asked).result()
            assert not got.missing
            return got

        def timed(call: Callable[[list[bytes]], object], batch: Callable[[], list[bytes]]) -> Callable[[], list[float]]:
            return lambda: each_us(call, [batch() for _ in range(context.pick(100, 20))])

        sides = {
            "held": timed(ours, batch),
            "partly": timed(ours, partly),
            "mget": timed(client.mget, batch),
            "hgetall": timed(hashes, batch),
        }
        at = latencies(interleaved(sides, context.repeats * BLOCKS), BLOCKS)
        catalog.close()
    p50 = at["p50"]
    return [
        Row("100 keys, 94 of them held / Redis MGET, p50", "x", ratios(p50["partly"], p50["mget"]), at_most(0.3)),
        Row(
            "100 keys, 94 of them held / Redis HGETALL in a pipeline, p50",
            "x",
            ratios(p50["partly"], p50["hgetall"]),
            at_most(0.1),
        ),
        Row("100 keys, all held / Redis MGET, p50", "x", ratios(p50["held"], p50["mget"])),
        *of_sides(SIDES, at),
    ]


SIDES = {
    "held": "100 keys, all held",
    "partly": "100 keys, 94 of them held, the others in RocksDB",
    "mget": "Redis MGET of 100",
    "hgetall": "Redis HGETALL of 100 in a pipeline",
}


@contextmanager
def in_files(folder: Path, entries: Sequence[tuple[bytes, bytes]]) -> Iterator[RocksCatalogReader]:
    store = RocksCatalogStore(folder / "pins", time.monotonic, wall_ms, lambda: secrets.token_hex(8))
    made = store.load(wall_ms(), entries)
    store.use(made.id)
    store.close()
    reader = RocksCatalogReader(folder / "pins", time.monotonic)
    yield reader
    reader.close()


def fill(client: "redis.Redis", keys: Sequence[bytes], records: Sequence[bytes]) -> None:
    pipe = client.pipeline(transaction=False)
    for number, (key, record) in enumerate(zip(keys, records, strict=True), start=1):
        pipe.set(key, record)
        pipe.hset(b"h" + key, mapping={"owner": number % 977, "board": number % 4_999, "created_ms": wall_ms()})
        if number % 1_000 == 0:
            pipe.execute()
    pipe.execute()


def opened(reader: CatalogFetcher, reads: Reads) -> Catalog[bytes]:
    return Catalog(reader, reads, Cache(ROOM, Lifetimes(), random.random, AS_BYTES), WITHIN_S, time.monotonic, wall_ms)
