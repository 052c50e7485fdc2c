"""The tables as they must be."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from feedstore.following import feed_table
from feedstore.widecolumn import RefusedError, Table, Trim
from feedstore.widecolumn.hbase.coprocessors import CoprocessorSpec, attached
from feedstore.widecolumn.hbase.schema import PURGE, TableDifference, compare, definition, repairs
from feedstore.widecolumn.hbase.tables import TableDefinition
from feedstore.widecolumn.progress import progress_table

FEEDS = feed_table(1_000, 250, 432_000_000)
WANTED = definition(FEEDS)


def there(
    *, without: str = "", family: dict[str, str] | None = None, table: dict[str, str] | None = None
) -> TableDefinition:
    """What HBase has, with what it adds by itself."""
    of_family = {**WANTED.families["feed"], "BLOCKCACHE": "true", "REPLICATION_SCOPE": "0"} | (family or {})
    of_table = {**WANTED.settings, "IS_META": "false"} | (table or {})
    for settings in (of_family, of_table):
        settings.pop(without, None)
    return TableDefinition(FEEDS.name, {"feed": of_family}, of_table)


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
    assert difference == TableDifference(
        "following_feed", setting, WANTED.families["feed"][setting], found, is_unsafe=True
    )
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
    other = TableDefinition(FEEDS.name, {"d": {}}, WANTED.settings)
    missing, extra = compare(WANTED, other)
    assert (missing.setting, missing.is_unsafe) == ("family feed", True)
    assert (extra.setting, extra.is_unsafe) == ("family d", False)


# ---- the trim

TRIM = "coprocessor$1"
CLASS = "feedstore.trim.TrimObserver"
FITTING = f"|{CLASS}|1073741823|version=0.1.0,cap=1000,slack=250"
NOT_SET = f"trim is not set, expected {FITTING}"
PROGRESS = definition(progress_table(5))


def test_the_trim_of_the_feeds_has_the_cap_and_the_slack_of_the_readers():
    assert WANTED.settings[TRIM] == FITTING
    assert definition(feed_table(7, 2, 5)).settings[TRIM].endswith(",cap=7,slack=2")
    assert attached(PROGRESS.settings) == {}


def test_the_version_is_that_of_the_jar():
    pom = (Path(__file__).parents[2] / "coprocessor" / "pom.xml").read_text()
    own = re.search(r"<artifactId>feedstore-trim</artifactId>.*?<version>(.*?)</version>", pom, re.DOTALL)
    assert own
    assert CoprocessorSpec.parse(WANTED.settings[TRIM]).arguments["version"] == own[1]


def test_the_class_is_one_of_the_jar():
    java = Path(__file__).parents[2] / "coprocessor" / "src" / "main" / "java"
    assert (java / (CLASS.replace(".", "/") + ".java")).is_file()


def trimmed_as(text: str, wanted: TableDefinition = WANTED) -> list[str]:
    settings = {**wanted.settings, TRIM: text}
    return [str(each).removeprefix(f"{wanted.name}: ") for each in compare(wanted, replace(wanted, settings=settings))]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (FITTING, []),
        (f" | {CLASS} | 1073741823 | version=0.1.0, slack=250, cap=1000", []),
        (FITTING.replace("0.1.0", "0.0.9"), ["trim version is 0.0.9, expected 0.1.0"]),
        (FITTING.replace("|feed", "hdfs:///trim.jar|feed"), ["trim jar is hdfs:///trim.jar, expected "]),
        (FITTING.replace("1073741823", ""), ["trim priority is , expected 1073741823"]),
        (FITTING.replace("=1000", "=2000"), ["trim cap is 2000, expected 1000"]),
        (FITTING.replace("=1000", "=750"), ["trim cap is 750, expected 1000"]),
        (FITTING.replace("=1000", "=749"), ["trim cap is 749, expected 1000 (unsafe)"]),
        (FITTING.replace("=250", "=0"), ["trim slack is 0, expected 250"]),
        (FITTING.replace(",slack=250", ""), ["trim slack is not set, expected 250 (unsafe)"]),
        (FITTING.replace("=1000", "=many"), ["trim cap is many, expected 1000 (unsafe)"]),
        (FITTING + ",depth=3", ["trim depth is 3, expected not set"]),
        (f"|{CLASS}", ["priority", "version", "cap", "slack"]),
        ("|other.Observer|1|", [NOT_SET, "coprocessor other.Observer is there, expected missing"]),
        ("", [NOT_SET, "coprocessor  is there, expected missing"]),
    ],
)  # fmt: skip
def test_every_difference_of_a_trim_is_named(text: str, named: list[str]):
    """Unsafe is what may take an entry that a reader can reach; that a row only grows is not."""
    found = trimmed_as(text)
    if text.endswith(CLASS):
        assert [each.split()[1] for each in found] == named
    else:
        assert found == named


def test_a_table_without_a_trim_only_grows():
    (difference,) = compare(WANTED, there(without=TRIM))
    assert str(difference) == f"following_feed: {NOT_SET}"


def test_a_trim_where_none_may_be_is_unsafe():
    """Of the progress table nothing may go."""
    (difference,) = compare(PROGRESS, replace(PROGRESS, settings={**PROGRESS.settings, TRIM: FITTING}))
    assert str(difference) == f"progress: trim is {FITTING}, expected not set (unsafe)"


def test_a_trim_twice_is_named():
    found = compare(WANTED, there(table={"coprocessor$7": FITTING.replace("=1000", "=3")}))
    assert [str(each).removeprefix("following_feed: ") for each in found] == [
        "trim cap is 3, expected 1000 (unsafe)",
        "trim is 2 times, expected once",
    ]


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        (there(), {}),
        (there(without=TRIM), {TRIM: FITTING}),
        (there(table={TRIM: FITTING.replace("=1000", "=3")}), {TRIM: FITTING}),
        (there(without=TRIM, table={"coprocessor$4": FITTING.replace("=1000", "=3")}), {"coprocessor$4": FITTING}),
        (there(table={"Coprocessor$2": FITTING}), {TRIM: FITTING, "Coprocessor$2": None}),
        (there(table={TRIM: "|other.Observer|1|"}), {"coprocessor$2": FITTING}),
        (there(without="hbase.hregion.majorcompaction"), {"hbase.hregion.majorcompaction": "86400000"}),
        (there(table={"hbase.hregion.majorcompaction": "5", "MEMSTORE_FLUSHSIZE": "6"}), {}),
        (there(without=PURGE), {}),
        (there(family={"VERSIONS": "3"}), {}),
    ],
)  # fmt: skip
def test_what_is_repaired_is_the_trim_and_what_is_not_set(found: TableDefinition, changes: dict[str, str | None]):
    assert repairs(WANTED, found) == changes


def test_a_trim_where_none_may_be_is_taken_away():
    trimmed = replace(PROGRESS, settings={**PROGRESS.settings, TRIM: FITTING, "coprocessor$2": "|other.Observer||"})
    assert repairs(PROGRESS, trimmed) == {TRIM: None}


@pytest.mark.parametrize(("cap", "slack"), [(0, 1), (-1, 0), (1, -1)])
def test_a_trim_of_nothing_is_refused(cap: int, slack: int):
    with pytest.raises(ValueError, match="expected at least"):
        Trim(cap, slack)
