"""Entries from files, in any order."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feedstore.catalog.port import (
    MAX_KEY_BYTES,
    MAX_RECORD_BYTES,
    CatalogRefusedError,
    CatalogUnavailableError,
    Update,
)
from workers.catalog import sorting
from workers.catalog.files import batches_of, entries_of
from workers.catalog.sorting import by_key


def test_lines_become_entries(tmp_path: Path):
    path = tmp_path / "ads.jsonl"
    path.write_text('{"key":"b","record":{"budget": 5, "url":"é"}}\n\n{"record":"text","key":"a"}\n', encoding="utf-8")
    assert list(entries_of(path)) == [(b"b", '{"budget":5,"url":"é"}'.encode()), (b"a", b'"text"')]


@pytest.mark.parametrize("record", ['{"bid":1.50}', "0.10", '{"a":1,"a":2}', '"\\u00e9"', "12345678901234567890123"])
def test_a_record_is_kept_as_it_was_written_by_loads_and_updates_alike(tmp_path: Path, record: str):
    path = tmp_path / "ads.jsonl"
    path.write_text(f'{{"key":"a","record": {record.replace(":", " : ")} }}\n', encoding="utf-8")
    assert list(entries_of(path)) == [(b"a", record.encode())]
    lines = io.BytesIO(f'{{"key":"a","time_ms":1,"record": {record.replace(":", " : ")} }}\n'.encode())
    assert list(batches_of(lines, "stdin", lambda: 1)) == [[Update(b"a", 1, record.encode())]]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"key":"a"}',
        '{"key":"","record":1}',
        '{"key":1,"record":1}',
        '{"key":"a","record":1,"more":2}',
        '{"key":"a","record":nope}',
        '{"key":"%s","record":1}' % ("x" * (MAX_KEY_BYTES + 1)),
        '{"key":"%s","record":1}' % ("é" * (MAX_KEY_BYTES // 2 + 1)),
        '{"key":"%s","record":1}' % ("x" * 65_536),
        '{"key":"a","record":"%s"}' % ("x" * MAX_RECORD_BYTES),
        f'{{"key":"a","record":{"[" * 100_000}{"]" * 100_000}}}',
        '{"key":"\\ud800","record":1}',
    ],
    ids=lambda line: f"{line:.30}",
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str):
    path = tmp_path / "ads.jsonl"
    path.write_text('{"key":"a","record":1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(CatalogRefusedError, match=r"ads\.jsonl:2: "):
        list(entries_of(path))


def test_a_file_of_another_kind_or_none_at_all(tmp_path: Path):
    with pytest.raises(CatalogRefusedError, match="jsonl"):
        entries_of(tmp_path / "ads.csv")
    with pytest.raises(CatalogUnavailableError, match=r"ads\.jsonl"):
        list(entries_of(tmp_path / "ads.jsonl"))


def test_rows_of_parquet_become_entries(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    path = tmp_path / "ads.parquet"
    table = pyarrow.table({"key": ["b", "a"], "record": [b"\x00\x01", b"\x02"], "more": [1, 2]})
    parquet.write_table(table, path)
    assert list(entries_of(path)) == [(b"b", b"\x00\x01"), (b"a", b"\x02")]
    parquet.write_table(pyarrow.table({"key": ["b"], "rec": [b"x"]}), path)
    with pytest.raises(CatalogRefusedError, match="columns"):
        list(entries_of(path))
    parquet.write_table(pyarrow.table({"key": [1], "record": [b"x"]}), path)
    with pytest.raises(CatalogRefusedError, match="strings or bytes"):
        list(entries_of(path))


def test_a_row_of_parquet_that_is_no_entry_is_named(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    path = tmp_path / "ads.parquet"
    raw = pyarrow.array([b"a", b"\xff"], pyarrow.binary())
    not_text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    good = pyarrow.array([b"a", b"b"])
    for key, record, why in (
        (not_text, good, "utf-8"),
        (good, not_text, "utf-8"),
        (pyarrow.array([b"a", b""]), good, "a key of 0 bytes"),
        (pyarrow.array([b"a", b"x" * 65_536]), good, "a key of 65536 bytes"),
        (good, pyarrow.array([b"", b"x" * (MAX_RECORD_BYTES + 1)]), "a record of 65537 bytes"),
        (good, pyarrow.array([b"x", None]), "strings or bytes"),
    ):
        parquet.write_table(pyarrow.table({"key": key, "record": record}), path, row_group_size=1)
        with pytest.raises(CatalogRefusedError, match=f"ads.parquet: row 2: .*{why}"):
            list(entries_of(path))
    parquet.write_table(pyarrow.Table.from_arrays([good, good, good], ["key", "key", "record"]), path)
    with pytest.raises(CatalogRefusedError, match="columns"):
        list(entries_of(path))


@pytest.mark.parametrize("how", ["cut", "zeros", "text", "empty"])
def test_a_parquet_file_that_is_damaged_is_refused(tmp_path: Path, how: str):
    """It is as wrong later: to try again would not help."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    path = tmp_path / "ads.parquet"
    keys = [f"{number}" for number in range(5_000)]
    parquet.write_table(pyarrow.table({"key": keys, "record": keys}), path)
    whole = path.read_bytes()
    damaged = {"cut": whole[:-9], "zeros": whole[:4] + bytes(8_192) + whole[8_196:], "text": b"hello", "empty": b""}
    path.write_bytes(damaged[how])
    with pytest.raises(CatalogRefusedError, match=r"ads\.parquet: damaged, or no Parquet: "):
        list(entries_of(path))


def test_a_parquet_file_that_cannot_be_read_is_not_there_now(tmp_path: Path):
    pytest.importorskip("pyarrow")
    with pytest.raises(CatalogUnavailableError, match=r"ads\.parquet: .*No such file"):
        list(entries_of(tmp_path / "ads.parquet"))


@pytest.mark.parametrize(("size", "rows_at_once"), [(4, 1_024), (MAX_RECORD_BYTES, 16), (1 << 20, 1)])
def test_rows_of_parquet_are_unpacked_a_few_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, rows_at_once: int
):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    path = tmp_path / "ads.parquet"
    rng = random.Random(1)
    entries = [(b"%d" % key, rng.randbytes(size)) for key in range(max(40, 3 * rows_at_once) if size < 1 << 20 else 3)]
    table = pyarrow.table({"key": [key for key, _ in entries], "record": [record for _, record in entries]})
    parquet.write_table(table, path)
    unpacked = []
    real = parquet.ParquetFile.iter_batches

    def iter_batches(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for batch in real(*args, **kwargs):
            unpacked.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", iter_batches)
    if size <= MAX_RECORD_BYTES:
        assert list(entries_of(path)) == entries
    else:
        with pytest.raises(CatalogRefusedError, match="row 1: "):
            list(entries_of(path))
    assert max(unpacked) <= rows_at_once


@pytest.mark.parametrize("part_bytes", [1, 2_000, 1 << 30])
@pytest.mark.parametrize("files_max", [2, 7, 300])
def test_entries_are_sorted_in_parts(part_bytes: int, files_max: int):
    rng = random.Random(5)
    keys = rng.sample(range(10_000), 300)
    entries = [(json.dumps(key).encode(), b"r%d" % key) for key in keys]
    assert list(by_key(iter(entries), part_bytes, files_max)) == sorted(entries)


def test_a_batch_of_any_size_is_sorted_with_few_open_files():
    """A process may have 1,024, which 64 GiB would need."""
    open_files = Path("/proc/self/fd")
    before = len(list(open_files.iterdir()))
    there = [len(list(open_files.iterdir())) for _ in by_key(((b"%04d" % key, b"") for key in range(1_000)), 1)]
    assert len(there) == 1_000
    assert max(there) - before <= sorting.FILES_MAX


def test_a_key_that_is_there_twice_is_refused():
    with pytest.raises(CatalogRefusedError, match="twice"):
        list(by_key([(b"a", b"1"), (b"b", b""), (b"a", b"2")], 1))


def test_no_entries_are_none():
    assert list(by_key([])) == []
