"""A generation in HBase as blocks with an index: pure, and in the tables of a model."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.catalog.hbase import blocks as module
from feedstore.catalog.hbase.blocks import (
    BLOCK_BYTES_MAX,
    BLOCKS_OF_A_SIZE,
    COUNT_ROW,
    BlockIndex,
    block_bytes,
    block_row,
    part_row,
    parts_of,
    split_keys,
)
from feedstore.catalog.hbase.state import Made
from feedstore.catalog.port import MAX_RECORD_BYTES, CatalogUnavailableError
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase import Record, schema
from tests.catalog.catalog_adapters import Clock, reader_in, storage_in, store_in
from tests.catalog.hbase_model import ModelCluster, ModelRecords


def written(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    rows = list(module.rows(sorted(records.items())))
    assert len(dict(rows)) == len(rows)
    assert rows[-1][0] == COUNT_ROW, "an index that is not whole has no number of parts"
    return dict(rows)


def look(rows: dict[bytes, bytes], key: bytes) -> bytes | None:
    parts = parts_of("t", rows.get(COUNT_ROW))
    index = BlockIndex("t", [rows.get(part_row(number)) for number in range(parts)])
    [number] = index.numbers([key])
    return None if number < 0 else index.block(number, rows.get(block_row(number))).get(key)


@given(
    records=st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=40)),
    others=st.lists(st.binary(min_size=1, max_size=9)),
)
@pytest.mark.parametrize("part_keys", [1, 3])
@pytest.mark.parametrize("size", [1, 100])
def test_every_record_is_found_and_no_other(
    records: dict[bytes, bytes], others: list[bytes], part_keys: int, size: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_KEYS", part_keys)
        patch.setattr(module, "BLOCK_BYTES", size)
        rows = written(records)
    for key in [*records, *others]:
        assert look(rows, key) == records.get(key)


def test_a_block_has_about_as_much_as_it_may():
    record = bytes(32)
    rows = written({number.to_bytes(8, "big"): record for number in range(10_000)})
    values = [len(value) for row, value in rows.items() if row < COUNT_ROW]
    assert parts_of("t", rows[COUNT_ROW]) == 1
    assert max(values) <= 2_100
    assert sorted(values)[1] > 1_900, "all but the last one are full"
    [alone, *_] = [value for row, value in written({b"a": bytes(MAX_RECORD_BYTES), b"b": b"1"}).items()]
    assert len(alone) < MAX_RECORD_BYTES + 100


def test_blocks_grow_so_that_the_index_does_not():
    assert [block_bytes(number * BLOCKS_OF_A_SIZE) for number in (0, 1, 2, 5, 6, 50)] == [
        2_048,
        4_096,
        8_192,
        BLOCK_BYTES_MAX,
        BLOCK_BYTES_MAX,
        BLOCK_BYTES_MAX,
    ]


def test_runs_of_blocks_are_neighbours_and_all_regions_have_their_share():
    rows = [block_row(number) for number in range(2_048)]
    assert len({*rows}) == len(rows)
    assert all(before < after for at, (before, after) in enumerate(pairwise(rows), 1) if at % 256)
    regions = [sum(row >= split for split in split_keys()) for row in rows]
    assert [regions.count(number) for number in range(4)] == [512] * 4
    assert max(rows) < COUNT_ROW < part_row(0)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda rows: rows.pop(part_row(1)), "part 1 of its index is missing"),
        (lambda rows: rows.update({part_row(1): b"\x93"}), "part 1 of its index is damaged"),
        (lambda rows: rows.pop(COUNT_ROW), "the number of parts of its index is missing"),
        (lambda rows: rows.pop(block_row(2)), "block 2 is missing"),
        (lambda rows: rows.update({block_row(2): rows[block_row(2)][:-1]}), "block 2 is damaged"),
    ],
    ids=[
        "a part of the index is gone",
        "a part is damaged",
        "their number is gone",
        "a block is gone",
        "a block is damaged",
    ],
)
def test_what_is_missing_or_damaged_is_never_said_to_be_absent(
    damage: Callable[[dict[bytes, bytes]], object], said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "PART_KEYS", 2)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    rows = written({bytes([number]): b"record" for number in range(1, 5)})
    assert look(rows, b"\3") == b"record"
    damage(rows)
    with pytest.raises(CatalogUnavailableError, match=said):
        look(rows, b"\3")


# ---- in tables: a model of a cluster


def test_a_generation_of_an_earlier_version_is_read():
    """It has a row for each record, which begins with a byte of a hash of the key."""
    cluster, clock = ModelCluster(), Clock()
    store = store_in(cluster, clock)
    store.use(store.load(10, [(b"a", b"block")]).id)
    made = Made(f"20-{'0' * 16}", "cat.pins.20-0", 2, "0" * 64)
    cluster.administration.create(schema.records_definition(made.table))
    cluster.records(made.table).put((bytes((crc32(key) & 0xFF,)) + key, Record(1, b"row")) for key in (b"a", b"b"))
    storage_in(cluster, Clock()).row.change(
        lambda state: msgspec.structs.replace(state, generations=(*state.generations, made))
    )
    store.use(made.id)
    assert store.look(made.id, [b"a", b"c"]) == {b"a": b"row"}
    assert store.fetch([b"a", b"b", b"c"]).records == {b"a": b"row", b"b": b"row"}


def test_a_batch_reads_a_bounded_number_of_blocks_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(module, "PART_KEYS", 7)
    monkeypatch.setattr("feedstore.catalog.hbase.tables._READ_AT_ONCE", 10)
    asked: list[int] = []
    get = ModelRecords.get

    def counted(records: ModelRecords, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        asked.append(len(rows))
        return get(records, rows, deadline_s)

    monkeypatch.setattr(ModelRecords, "get", counted)
    store = store_in(ModelCluster(), Clock())
    keys = [number.to_bytes(2, "big") for number in range(500)]
    store.use(store.load(10, [(key, b"r" + key) for key in keys]).id)
    asked.clear()
    assert store.look(store.generations()[0].id, keys) == {key: b"r" + key for key in keys}
    assert asked == [10] * 50, "the index is held"


def test_an_index_is_read_once_by_all_who_need_it(monkeypatch: pytest.MonkeyPatch):
    cluster = ModelCluster()
    store = store_in(cluster, Clock())
    store.use(store.load(10, [(b"a", b"1")]).id)
    storage = storage_in(cluster, time.monotonic)
    [made] = storage.row.look().state.generations
    asked: list[Sequence[bytes]] = []
    get = ModelRecords.get
    all_wait = threading.Barrier(8, timeout=10)

    def counted(records: ModelRecords, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        asked.append(rows)
        return get(records, rows, deadline_s)

    def look_up() -> list[bytes | None]:
        all_wait.wait()
        return storage.records(made, [b"a"])

    monkeypatch.setattr(ModelRecords, "get", counted)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(look_up) for _ in range(8)]
        assert [each.result() for each in found] == [[b"1"]] * 8
    assert len([rows for rows in asked if COUNT_ROW in rows]) == 1


def test_who_waits_for_another_to_read_an_index_waits_until_its_own_deadline(monkeypatch: pytest.MonkeyPatch):
    cluster = ModelCluster()
    store = store_in(cluster, Clock())
    store.use(store.load(10, [(b"a", b"1")]).id)
    storage = storage_in(cluster, time.monotonic)
    [made] = storage.row.look().state.generations
    get = ModelRecords.get
    reads, answers = threading.Event(), threading.Event()

    def hanging(records: ModelRecords, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        reads.set()
        assert answers.wait(60)
        return get(records, rows, deadline_s)

    monkeypatch.setattr(ModelRecords, "get", hanging)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(storage.records, made, [b"a"])
        try:
            assert reads.wait(60)
            with pytest.raises(CatalogUnavailableError, match="still being read"):
                storage.records(made, [b"a"], time.monotonic() + 0.01)
        finally:
            answers.set()
        assert first.result() == [b"1"]


def test_an_index_that_takes_longer_than_a_fetch_has_is_read_by_a_check(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PART_KEYS", 1)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    cluster, clock = ModelCluster(), Clock()
    with closing(store_in(cluster, clock)) as store:
        store.use(store.load(10, [(bytes([number]), b"record") for number in range(100)]).id)
    get = ModelRecords.get

    def slow(records: ModelRecords, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        if {COUNT_ROW, *map(part_row, range(100))} & {*rows}:
            clock.pass_s(0.5)
        if deadline_s is not None and clock() > deadline_s:
            raise UnavailableError("no answer by the deadline")
        return get(records, rows, deadline_s)

    monkeypatch.setattr(ModelRecords, "get", slow)
    with closing(reader_in(cluster, clock)) as reader:
        for _ in range(2):
            with pytest.raises(CatalogUnavailableError, match="by the deadline"):
                reader.fetch([b"\1"], clock() + 1.0)
        reader.check()
        assert reader.fetch([b"\1"], clock() + 1.0).records == {b"\1": b"record"}
        began_s = clock()
        reader.check()
        assert clock() == began_s, "it is held"
