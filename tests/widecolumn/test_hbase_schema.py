"""The tables as they must be."""

from dataclasses import replace

import pytest

from feedstore.feeds import feed_table, progress_table
from feedstore.widecolumn import RefusedError, Table
from feedstore.widecolumn.hbase.schema import PURGE, Difference, compare, definition
from feedstore.widecolumn.hbase.tables import Definition

FEEDS = feed_table(1_000, 250, 432_000_000)
WANTED = definition(FEEDS)


def there(
    *, without: str = "", family: dict[str, str] | None = None, table: dict[str, str] | None = None
) -> Definition:
    """What HBase has, with what it adds by itself."""
    of_family = {**WANTED.families["feed"], "BLOCKCACHE": "true", "REPLICATION_SCOPE": "0"} | (family or {})
    of_table = {**WANTED.settings, "IS_META": "false"} | (table or {})
    for settings in (of_family, of_table):
        settings.pop(without, None)
    return Definition(FEEDS.name, {"feed": of_family}, of_table)


def test_the_file_says_what_the_code_says():
    assert WANTED.families.keys() == {"feed"}
    assert WANTED.settings[PURGE] == "432000000"
    assert WANTED.split_keys == sorted(WANTED.split_keys)
    assert {len(key) for key in WANTED.split_keys} == {1}
    assert definition(progress_table(5)).settings[PURGE] == "5"
    assert definition(progress_table(5)).split_keys == []


def test_other_widths_are_refused():
    with pytest.raises(RefusedError, match=r"column_bytes: 16 in hbase\.json, not 8"):
        definition(replace(FEEDS, column_bytes=8))


def test_a_table_that_the_file_does_not_name_is_made_like_the_others():
    found = definition(Table("other", 1, 1, None, 7))
    assert (found.families, found.split_keys) == (WANTED.families, [])


def test_an_installation_may_need_other_settings():
    assert definition(FEEDS, {"MEMSTORE_FLUSHSIZE": "1"}).settings["MEMSTORE_FLUSHSIZE"] == "1"


def test_what_is_as_it_must_be_differs_in_nothing():
    assert compare(WANTED, there()) == []
    assert compare(WANTED, there(family={"KEEP_DELETED_CELLS": "false", "NEW_VERSION_BEHAVIOR": "FALSE"})) == []


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("VERSIONS", "3"),
        ("MIN_VERSIONS", "1"),
        ("TTL", "86400"),
        ("KEEP_DELETED_CELLS", "TRUE"),
        ("KEEP_DELETED_CELLS", "TTL"),
        ("NEW_VERSION_BEHAVIOR", "true"),
    ],
)
def test_what_would_break_a_rule_is_unsafe(setting: str, found: str):
    (difference,) = compare(WANTED, there(family={setting: found}))
    assert difference == Difference("following_feed", setting, WANTED.families["feed"][setting], found, is_unsafe=True)
    assert str(difference) == f"following_feed: {setting} is {found}, expected {difference.wanted} (unsafe)"


@pytest.mark.parametrize(
    ("setting", "found"),
    [("DATA_BLOCK_ENCODING", "NONE"), ("BLOCKSIZE", "65536"), ("BLOOMFILTER", "NONE"), ("COMPRESSION", "GZ")],
)
def test_what_only_costs_time_or_space_is_named(setting: str, found: str):
    (difference,) = compare(WANTED, there(family={setting: found}))
    assert (difference.setting, difference.found, difference.is_unsafe) == (setting, found, False)


@pytest.mark.parametrize(
    ("found", "is_unsafe"), [("431999999", True), ("0", True), ("-1", True), ("soon", True), ("432000001", False)]
)
def test_a_purge_window_may_only_be_longer(found: str, is_unsafe: bool):
    (difference,) = compare(WANTED, there(table={PURGE: found}))
    assert difference.is_unsafe is is_unsafe


def test_a_purge_window_that_is_not_set_is_hbases_default_of_none():
    (difference,) = compare(WANTED, there(without=PURGE))
    assert (difference.found, difference.is_unsafe) == (None, True)
    assert "is not set, expected 432000000 (unsafe)" in str(difference)


def test_a_family_may_hide_what_the_table_says():
    (difference,) = compare(WANTED, there(family={PURGE: "0"}))
    assert (difference.setting, difference.found, difference.is_unsafe) == (PURGE, "0", True)


def test_a_version_behaviour_that_is_not_set_is_the_safe_one():
    (difference,) = compare(WANTED, there(without="NEW_VERSION_BEHAVIOR"))
    assert not difference.is_unsafe


def test_families_that_are_missing_or_too_many_are_named():
    other = Definition(FEEDS.name, {"d": {}}, WANTED.settings)
    missing, extra = compare(WANTED, other)
    assert (missing.setting, missing.is_unsafe) == ("family feed", True)
    assert (extra.setting, extra.is_unsafe) == ("family d", False)
