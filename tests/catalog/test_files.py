"""Entries from files, in any order."""

import json
import random
from pathlib import Path

import pytest

from feedstore.catalog.port import CatalogRefusedError, CatalogUnavailableError
from workers.catalog.files import entries_of
from workers.catalog.sorting import by_key


def test_lines_become_entries(tmp_path: Path):
    path = tmp_path / "ads.jsonl"
    path.write_text('{"key":"b","record":{"budget": 5, "url":"é"}}\n\n{"record":"text","key":"a"}\n', encoding="utf-8")
    assert list(entries_of(path)) == [(b"b", '{"budget":5,"url":"é"}'.encode()), (b"a", b'"text"')]


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
    ],
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
    path.write_bytes(b"nonsense")
    with pytest.raises(CatalogUnavailableError):
        list(entries_of(path))


@pytest.mark.parametrize("part_bytes", [1, 2_000, 1 << 30])
def test_entries_are_sorted_in_parts(part_bytes: int):
    rng = random.Random(5)
    keys = rng.sample(range(10_000), 300)
    entries = [(json.dumps(key).encode(), b"r%d" % key) for key in keys]
    assert list(by_key(iter(entries), part_bytes)) == sorted(entries)


def test_a_key_that_is_there_twice_is_refused():
    with pytest.raises(CatalogRefusedError, match="twice"):
        list(by_key([(b"a", b"1"), (b"b", b""), (b"a", b"2")], 1))


def test_no_entries_are_none():
    assert list(by_key([])) == []
