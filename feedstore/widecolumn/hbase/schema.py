"""The tables as they must be: `schemas/hbase.json`, filled in from the configuration, held against what HBase has."""

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from feedstore.widecolumn.hbase.tables import Definition, Tables
from feedstore.widecolumn.port import RefusedError, Table, UnavailableError, UnsafeTableError

PURGE = "hbase.hstore.time.to.purge.deletes"


@dataclass(frozen=True)
class Difference:
    """One setting of a table that is not what it must be.

    wanted, found: None stands for the default of HBase or of its configuration, which nobody here knows.
    is_unsafe: with it, the store would break the port's promises; without, it is slower or larger.
    """

    table: str
    setting: str
    wanted: str | None
    found: str | None
    is_unsafe: bool

    def __str__(self) -> str:
        found = "not set" if self.found is None else self.found
        wanted = "not set" if self.wanted is None else self.wanted
        return f"{self.table}: {self.setting} is {found}, expected {wanted}{' (unsafe)' if self.is_unsafe else ''}"


def definition(table: Table, overrides: Mapping[str, str] | None = None) -> Definition:
    """What a table must be. One that the file does not name is made like the others, in one region.

    overrides: settings of the table that this installation needs otherwise, such as MEMSTORE_FLUSHSIZE on a small heap.

    Raises:
        RefusedError: the file has other widths for it.
    """
    file = _file()
    entry = file["tables"].get(table.name, {})
    for width in ("row_bytes", "column_bytes"):
        if entry.get(width, getattr(table, width)) != getattr(table, width):
            raise RefusedError(f"{table.name}: {width}: {entry[width]} in hbase.json, not {getattr(table, width)}")
    values = {"purge_window_ms": table.purge_window_ms}
    settings = file["table_settings"] | entry.get("table_settings", {})
    return Definition(
        table.name,
        {file["family"]: file["family_settings"]},
        {key: text.format_map(values) for key, text in settings.items()} | dict(overrides or {}),
        [bytes.fromhex(key) for key in entry.get("split_keys", ())],
    )


def apply(tables: Tables, wanted: Sequence[Definition]) -> list[str]:
    """Creates the tables that are missing, and returns their names. What is there stays as it is, whatever it is.

    Raises:
        UnavailableError, RefusedError.
    """
    tables.create_namespace()
    created = []
    for each in wanted:
        if not tables.exists(each.name):
            tables.create(each)
            created.append(each.name)
    return created


def differences(tables: Tables, wanted: Sequence[Definition]) -> list[Difference]:
    """Every setting of the tables that is not as wanted. Raises UnavailableError."""
    found: list[Difference] = []
    for each in wanted:
        there = tables.definition(each.name)
        if there is None:
            found.append(Difference(each.name, "the table", "there", "missing", is_unsafe=True))
        else:
            found += compare(each, there)
    return found


def compare(wanted: Definition, there: Definition) -> list[Difference]:
    """How a table differs from what it must be. Pure."""
    found: list[Difference] = []
    for family, settings in wanted.families.items():
        if family not in there.families:
            found.append(Difference(wanted.name, f"family {family}", "there", "missing", is_unsafe=True))
            continue
        family_has = there.families[family]
        # What a family sets stands before what its table sets.
        found += _unlike(wanted.name, settings, family_has)
        found += _unlike(wanted.name, wanted.settings, {**there.settings, **_shadowing(wanted.settings, family_has)})
    found += [
        Difference(wanted.name, f"family {family}", "missing", "there", is_unsafe=False)
        for family in there.families
        if family not in wanted.families
    ]
    return found


def refuse_unsafe(tables: Tables, opened: Sequence[Table]) -> None:
    """Refuses tables on which the rules would not hold.

    Raises:
        UnsafeTableError: the message names each setting that is unsafe.
        UnavailableError: a table is missing, or the cluster does not answer.
    """
    found = differences(tables, [definition(table) for table in opened])
    if missing := [each.table for each in found if each.setting == "the table"]:
        raise UnavailableError(f"no table {', '.join(missing)}; feedctl schema apply creates what is missing")
    if unsafe := [str(each) for each in found if each.is_unsafe]:
        raise UnsafeTableError("; ".join(unsafe))


def _shadowing(wanted: Mapping[str, str], family_has: Mapping[str, str]) -> dict[str, str]:
    return {key: family_has[key] for key in wanted if key in family_has}


def _unlike(table: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(table, key, value, found.get(key), is_unsafe=_is_unsafe(key, value, found.get(key)))
        for key, value in wanted.items()
        if not _is_same(value, found.get(key))
    ]


def _is_same(wanted: str, found: str | None) -> bool:
    return found is not None and wanted.upper() == found.upper()


def _is_unsafe(setting: str, wanted: str, found: str | None) -> bool:
    if setting not in _file()["unsafe"]:
        return False
    if setting == PURGE:  # a longer window only costs space
        return found is None or not found.isdecimal() or int(found) < int(wanted)
    # HBase's defaults are the safe ones, but it always says what a family has: VERSIONS and the like are never absent.
    return found is not None or setting != "NEW_VERSION_BEHAVIOR"


@cache
def _file() -> dict[str, Any]:
    """It stands in `schemas`, or in the package where that is installed."""
    packaged: Traversable = importlib.resources.files("feedstore.widecolumn.hbase") / "hbase.json"
    in_repository = Path(__file__).parents[3] / "schemas" / "hbase.json"
    found: Traversable = packaged if packaged.is_file() else in_repository
    loaded: dict[str, Any] = json.loads(found.read_text("utf-8"))
    return loaded
