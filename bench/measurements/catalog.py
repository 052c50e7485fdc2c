"""The store of catalogs: look-ups against Redis, start and memory against a dict of objects, growth, bytes on disk."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from bench import ours
from bench.catalog_records import records, stored, write
from bench.context import Context
from bench.redis_server import redis_client
from bench.results import Row, at_most, interleaved, latencies, of_sides, ratios
from bench.timing import each_us
from feedstore.catalog.pins import key_of
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.clocks import wall_ms

if TYPE_CHECKING:
    import redis  # an extra, which a measurement without it does not need

GROWTH = 60
KEYS = 100
CHILD_S = 600.0
_AT_ONCE = 1_000
_SIDES = ("empty", "dict", "catalog")


def measure(context: Context) -> list[Row]:
    """3 M records in a catalog of one cluster: against Redis, a dict of objects, and a sixtieth of them"""
    count = context.pick(3_000_000, 60_000)
    corpora = {name: context.folder(name) / "pins" for name in ("large", "small")}
    files = {name: context.folder(name) / "records.bin" for name in corpora}
    write(files["large"], count)
    write(files["small"], count // GROWTH)
    rates = [_load(corpora[name], files[name]) for name in corpora]
    context.say(f"loaded {count:,} records, {rates[0]:,.0f} records/s")
    with (
        closing(RocksCatalogReader(corpora["large"], time.monotonic)) as large,
        closing(RocksCatalogReader(corpora["small"], time.monotonic)) as small,
    ):
        return [
            *_against_redis(context, large, next(corpora["large"].glob("gen-*")), count),
            *_grown(context, {"large": (large, count), "small": (small, count // GROWTH)}),
            *_against_a_dict(context, corpora["large"], files["large"], count),
            Row("records loaded into a generation", "records/s", rates[:1], note="counted, hashed, synced"),
        ]


def _load(path: Path, file: Path) -> float:
    """Returns how many records a second."""
    with closing(RocksCatalogStore(path, time.monotonic, wall_ms, lambda: uuid.uuid4().hex)) as store:
        began = time.perf_counter()
        made = store.load(1, stored(file))
        rate = made.records / (time.perf_counter() - began)
        store.use(made.id)
    return rate


def _against_redis(context: Context, large: RocksCatalogReader, generation: Path, count: int) -> list[Row]:
    draws = Random(3)
    with redis_client(context.folder("redis")) as client:
        _fill(client, count)
        sides = {
            "ours": partial(_block, context, large.fetch, count, draws),
            "redis": partial(_block, context, client.mget, count, draws),
        }
        taken = latencies(interleaved(sides, context.repeats), 1)
        usage = [float(client.execute_command("MEMORY USAGE", key_of(draws.randint(1, count)))) for _ in range(200)]
    disk = ours.disk_bytes(generation) / count
    note = f"{count:,} records, uniform, nothing cached by the process"
    return [
        Row(
            f"{KEYS} keys uncached, p50 / Redis MGET",
            "x",
            ratios(taken["p50"]["ours"], taken["p50"]["redis"]),
            at_most(1.2),
            note,
        ),
        *(Row(f"{KEYS} keys, p50, {side}", "us", taken["p50"][side]) for side in sides),
        Row(
            "bytes a record on disk / in a Redis string",
            "x",
            [disk / (sum(usage) / len(usage))],
            at_most(0.3),
            f"{disk:.1f} bytes on disk, every file of the generation counted",
        ),
    ]


def _grown(context: Context, corpora: dict[str, tuple[RocksCatalogReader, int]]) -> list[Row]:
    """By the clock, and in processor time of the thread."""
    draws = Random(5)
    in_processor_time = ", processor time"
    clocks = {"": time.perf_counter, in_processor_time: time.thread_time}
    sides = {
        name + by: partial(_block, context, reader.fetch, count, draws, clock)
        for by, clock in clocks.items()
        for name, (reader, count) in corpora.items()
    }
    taken = latencies(interleaved(sides, context.repeats), 1)
    return [
        *(
            Row(
                f"{KEYS} keys of {GROWTH} x the corpus, {share} / of the small one{by}",
                "x",
                ratios(taken[share]["large" + by], taken[share]["small" + by]),
                at_most(1.25),
            )
            for by in clocks
            for share in ("p50", "p99")
        ),
        *of_sides(
            {name + in_processor_time: f"{KEYS} keys of the {name} corpus, processor time" for name in corpora}, taken
        ),
    ]


def _against_a_dict(context: Context, catalog: Path, file: Path, count: int) -> list[Row]:
    at = {"empty": file, "dict": file, "catalog": catalog}
    taken = interleaved({side: partial(_child, side, at[side]) for side in _SIDES}, context.repeats)

    def of(side: str, what: str) -> list[float]:
        return [max(each[what], 0.0) for each in taken[side]]

    what = f"{count:,} records"
    return [
        Row(
            f"open {what} / load them into a dict",
            "x",
            ratios(of("catalog", "seconds"), of("dict", "seconds")),
            at_most(0.02),
        ),
        Row(
            f"memory of {what} / of a dict of objects",
            "x",
            ratios(of("catalog", "bytes"), of("dict", "bytes")),
            at_most(0.1),
        ),
        Row(
            f"allocated blocks of {what} / of a dict of objects",
            "x",
            ratios(of("catalog", "blocks"), of("dict", "blocks")),
            at_most(0.01),
        ),
        Row(
            f"full collection with {what} / of an empty process",
            "x",
            ratios(of("catalog", "collection_ms"), of("empty", "collection_ms")),
            at_most(1.1),
        ),
        *(
            Row(f"{words}, {side}", unit, [value * scale for value in of(side, which)])
            for which, words, unit, scale in (
                ("seconds", "time to have the records", "ms", 1_000.0),
                ("bytes", "memory of the records", "MiB", 1 / (1 << 20)),
                ("collection_ms", "full collection", "ms", 1.0),
            )
            for side in ("dict", "catalog")
        ),
    ]


def _child(how: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.catalog_child", how, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=CHILD_S,
        check=True,
    )
    said: dict[str, float] = json.loads(done.stdout)
    return said


def _fill(client: "redis.Redis", count: int) -> None:
    some: dict[bytes, bytes] = {}
    for key, record in records(count):
        some[key] = record
        if len(some) == _AT_ONCE:
            client.mset(some)
            some.clear()
    if some:
        client.mset(some)


def _block(
    context: Context,
    fetch: Callable[[Sequence[bytes]], Any],
    count: int,
    draws: Random,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """How long fetches of random keys took, us each."""
    blocks = (draws.sample(range(1, count + 1), KEYS) for _ in range(context.pick(1_000, 100)))
    return each_us(fetch, ([key_of(pin) for pin in pins] for pins in blocks), clock)
