"""Cells of small deliveries on their way into a store: all at once from arrays, against one by one."""

import random
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from rocksdict import WriteBatch
from thriftpy2.thrift import TClient

from bench.context import Context
from bench.deliveries import CAP, Deliveries
from bench.results import Row, interleaved, ratios
from feedstore.following import columns, feed_table, row_key
from feedstore.portions import chunks
from feedstore.widecolumn import PutCells
from feedstore.widecolumn.arrays import gathered
from feedstore.widecolumn.hbase.encoding import DURABILITY, FAMILY
from feedstore.widecolumn.hbase.frames import CELLS_MAX, Frames
from feedstore.widecolumn.hbase.sockets import DeadlineSocket
from feedstore.widecolumn.hbase.thrift2 import protocol_on, structs
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from tests.widecolumn.written import cells_in

BATCH_CELLS = 10_000
USERS = 200_000
FIRST_MS = 1_700_000_000_000
HBASE_NAME = b"default:following_feed"
TABLE = feed_table(CAP, CAP // 4, 432_000_000)
TAIL = struct.Struct(">QB")


class Cells(NamedTuple):
    """The same cells twice."""

    plain: Sequence[tuple[bytes, bytes, int]]
    arrays: PutCells


def measure(context: Context) -> list[Row]:
    """What a cell of a small delivery costs on its way into RocksDB, and as part of a request to HBase"""
    most = context.pick(40, 4)
    of_actions = [*_batches(context.deliveries, most)]
    # Some users of actions get most of what is delivered: their rows are in the processor's caches, and these are not.
    anywhere = [*_batches(_anywhere(most * BATCH_CELLS), most)]

    def into_rocksdb(write: Callable[[RocksCluster, Cells], None], batches: Sequence[Cells]) -> float:
        with closing(RocksCluster.open(context.folder("cells"), [TABLE])) as cluster:
            return _us(lambda batch: write(cluster, batch), batches)

    requests = {"arrays": lambda: _us(_frames, of_actions), "one by one": lambda: _us(_structs, of_actions)}
    interleaved(requests, 1)
    rows = [
        *_rows(
            "a request to HBase made from arrays / from structs of thriftpy2", interleaved(requests, context.repeats)
        )
    ]
    for what, batches in (("deliveries of actions", of_actions), (f"cells of {USERS:,} users at random", anywhere)):
        stores = {
            "arrays": partial(into_rocksdb, _arrays, batches),
            "one by one": partial(into_rocksdb, _keys, batches),
        }
        taken = interleaved(stores, context.repeats)
        rows += _rows(f"{what}: RocksDB written from arrays / key by key, in the order of arrival", taken)
    return rows


def _us(write: Callable[[Cells], object], batches: Sequence[Cells]) -> float:
    """Processor time of this thread, a cell."""
    began = time.thread_time()
    for batch in batches:
        write(batch)
    return (time.thread_time() - began) / sum(len(batch.plain) for batch in batches) * 1e6


def _anywhere(count: int) -> Deliveries:
    chance = random.Random(1)
    users = [chance.randrange(1, USERS) for _ in range(count)]
    pins = [1 + number // 4 for number in range(count)]
    return Deliveries(array("q", users), array("q", pins), array("q", [FIRST_MS + pin for pin in pins]))


def _rows(what: str, samples: dict[str, list[float]]) -> Iterator[Row]:
    yield Row(
        f"{what}, processor time a cell",
        "x",
        ratios(samples["arrays"], samples["one by one"]),
        note=f"in batches of {BATCH_CELLS:,}",
    )
    for side, taken in samples.items():
        yield Row(f"{what}: {side}", "us/cell", taken)


def _batches(deliveries: Deliveries, most: int) -> Iterator[Cells]:
    """Deliveries in their order. Each has a time of its own, as the edges of followers have."""
    for number in range(min(most, max(1, len(deliveries) // BATCH_CELLS))):
        some = slice(number * BATCH_CELLS, (number + 1) * BATCH_CELLS)
        users = deliveries.users[some]
        pins = zip(deliveries.pins[some], deliveries.created_ms[some], strict=True)
        plain = [(row_key(user), column, FIRST_MS + user) for user, column in zip(users, columns(pins), strict=True)]
        rows, made, timestamps = zip(*plain, strict=True)
        arrays = PutCells(
            np.frombuffer(b"".join(rows), np.uint8).reshape(-1, TABLE.row_bytes),
            np.frombuffer(b"".join(made), np.uint8).reshape(-1, TABLE.column_bytes),
            np.array(timestamps, np.int64),
        )
        assert [*cells_in(arrays)] == plain
        yield Cells(plain, arrays)


def _frames(batch: Cells) -> None:
    for _ in Frames(HBASE_NAME, TABLE, "disk").of(*gathered(TABLE, [batch.arrays])):
        pass


class _Nowhere:
    """A connection that takes everything."""

    def write(self, data: bytes) -> None:
        pass

    def flush(self) -> None:
        pass


def _structs(batch: Cells) -> None:
    """What a client of thriftpy2 does with sorted cells: a TPut for each row and timestamp."""
    client: Any = TClient(structs.Writes, protocol_on(cast(DeadlineSocket, _Nowhere())))
    puts: dict[tuple[bytes, int], list[Any]] = {}
    for row, column, timestamp in batch.plain:
        puts.setdefault((row, timestamp), []).append(structs.TColumnValue(FAMILY, column, b""))
    items = [structs.TPut(row, puts[row, ts], ts, DURABILITY["disk"]) for row, ts in sorted(puts)]
    for some in chunks(items, CELLS_MAX):
        client._send("putMultiple", table=HBASE_NAME, tputs=some)  # noqa: SLF001


def _arrays(cluster: RocksCluster, batch: Cells) -> None:
    cluster.table(TABLE.name).apply([batch.arrays])


def _keys(cluster: RocksCluster, batch: Cells) -> None:
    files = cluster.files()
    made = WriteBatch(raw_mode=True)
    made.set_default_column_family(files.handles[TABLE.name])
    put, pack = made.put, TAIL.pack
    for row, column, timestamp in batch.plain:
        put(row + column + pack(2**63 - 1 - timestamp, 1), b"")
    with cluster.lock:
        cluster.write(files, TABLE.name, made, durable=True)
