"""The tables as they must be (`schemas/hbase.json`, filled in from the configuration), compared with what HBase has."""

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from feedstore.widecolumn.hbase.coprocessors import CoprocessorSpec, attached, free_key
from feedstore.widecolumn.hbase.tables import TableDefinition, Tables
from feedstore.widecolumn.port import RefusedError, Table, Trim, UnavailableError, UnsafeTableError

PURGE = "hbase.hstore.time.to.purge.deletes"


@dataclass(frozen=True)
class TableDifference:
    """One setting of a table that is not what it must be.

    wanted, found: None is the default of HBase or of its configuration, which is unknown here.
    is_unsafe: True if the store would break the port's promises with it; False if it is only slower or larger.
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


def definition(table: Table, overrides: Mapping[str, str] | None = None) -> TableDefinition:
    """A table as it must be. A table that the file does not name is made like the others, in one region.

    overrides: settings that must differ in this installation, such as MEMSTORE_FLUSHSIZE on a small heap.

    Raises RefusedError: the file has other widths for it.
    """
    file = _file()
    entry = file["tables"].get(table.name, {})
    for width in ("row_bytes", "column_bytes"):
        if entry.get(width, getattr(table, width)) != getattr(table, width):
            raise RefusedError(f"{table.name}: {width}: {entry[width]} in hbase.json, not {getattr(table, width)}")
    values = {"purge_window_ms": table.purge_window_ms}
    texts = file["table_settings"] | entry.get("table_settings", {})
    settings = {key: text.format_map(values) for key, text in texts.items()} | dict(overrides or {})
    if table.trim is not None:
        settings[free_key(settings)] = str(_trim(table.trim))
    return TableDefinition(
        table.name,
        {file["family"]: file["family_settings"]},
        settings,
        [bytes.fromhex(key) for key in entry.get("split_keys", ())],
    )


def records_definition(name: str, split_keys: Sequence[bytes] = ()) -> TableDefinition:
    """A table of records (`RecordTable`): it has the same family. The first compaction may drop its markers."""
    file = _file()
    settings = {key: text.format_map({"purge_window_ms": 0}) for key, text in file["table_settings"].items()}
    return TableDefinition(name, {file["family"]: file["family_settings"]}, settings, split_keys)


@dataclass(frozen=True)
class SchemaChanges:
    """What `apply` did. created: the tables that are new. changed: the differences of existing tables that are gone
    now.
    """

    created: Sequence[str]
    changed: Sequence[TableDifference]


def apply(tables: Tables, wanted: Sequence[TableDefinition]) -> SchemaChanges:
    """Creates the tables that are missing. In existing tables it brings the trim up to date, and sets what is not set
    at all (`repairs`). What somebody has set otherwise stays as it is.

    Raises UnavailableError, RefusedError: done in part; do it again.
    """
    tables.create_namespace()
    created: list[str] = []
    changed: list[TableDifference] = []
    for each in wanted:
        there = tables.definition(each.name)
        if there is None:
            tables.create(each)
            created.append(each.name)
        elif changes := repairs(each, there):
            tables.change(each.name, changes)
            left = compare(each, tables.definition(each.name) or there)
            changed += [difference for difference in compare(each, there) if difference not in left]
    return SchemaChanges(created, changed)


def repairs(wanted: TableDefinition, there: TableDefinition) -> dict[str, str | None]:
    """The settings of a table that differ and can be changed at any time, with what they must be; None: not set. Pure.

    These are the trim, because its cap comes from `feed.toml`, and what is not set at all. Unsafe settings are left
    out: an operator who changes one has to think of what was written meanwhile.
    """
    changes: dict[str, str | None] = {}
    if _trim_differences(wanted, there):
        changes = dict.fromkeys(_ours(there))
        for trim in _ours(wanted).values():
            changes[next(iter(changes), free_key(there.settings))] = str(trim)
    families = [settings for name, settings in there.families.items() if name in wanted.families]
    for key, value in _plain(wanted.settings).items():
        if key not in _file()["unsafe"] and not any(key in settings for settings in (there.settings, *families)):
            changes[key] = value
    return changes


def differences(tables: Tables, wanted: Sequence[TableDefinition]) -> list[TableDifference]:
    """Every setting of the tables that is not as wanted. Raises UnavailableError."""
    found: list[TableDifference] = []
    for each in wanted:
        there = tables.definition(each.name)
        if there is None:
            found.append(TableDifference(each.name, "the table", "there", "missing", is_unsafe=True))
        else:
            found += compare(each, there)
    return found


def compare(wanted: TableDefinition, there: TableDefinition) -> list[TableDifference]:
    """How a table differs from what it must be. Pure."""
    found: list[TableDifference] = []
    for family, settings in wanted.families.items():
        if family not in there.families:
            found.append(TableDifference(wanted.name, f"family {family}", "there", "missing", is_unsafe=True))
            continue
        family_has = there.families[family]
        # What a family sets takes precedence over what its table sets.
        found += _unlike(wanted.name, settings, family_has)
        of_table = _plain(wanted.settings)
        shadowing = {key: family_has[key] for key in of_table if key in family_has}
        found += _unlike(wanted.name, of_table, {**there.settings, **shadowing})
    found += _trim_differences(wanted, there)
    found += [
        TableDifference(wanted.name, f"coprocessor {each.class_name}", "missing", "there", is_unsafe=False)
        for each in attached(there.settings).values()
        if each.class_name != _file()["trim"]["class"]
    ]
    found += [
        TableDifference(wanted.name, f"family {family}", "missing", "there", is_unsafe=False)
        for family in there.families
        if family not in wanted.families
    ]
    return found


def refuse_unsafe(tables: Tables, opened: Sequence[TableDefinition]) -> None:
    """Refuses tables on which the rules would not hold.

    Raises:
        UnsafeTableError: the message names each setting that is unsafe.
        UnavailableError: a table is missing, or the cluster does not answer.
    """
    found = differences(tables, opened)
    if missing := [each.table for each in found if each.setting == "the table"]:
        raise UnavailableError(f"no table {', '.join(missing)}; feedctl schema apply creates what is missing")
    if unsafe := [str(each) for each in found if each.is_unsafe]:
        raise UnsafeTableError("; ".join(unsafe))


def _trim(trim: Trim) -> CoprocessorSpec:
    entry = _file()["trim"]
    values = {"cap": trim.cap, "slack": trim.slack}
    arguments = {name: text.format_map(values) for name, text in entry["arguments"].items()}
    return CoprocessorSpec(entry["jar"], entry["class"], entry["priority"], arguments)


def _ours(there: TableDefinition) -> dict[str, CoprocessorSpec]:
    """The trims that are attached to a table, by their keys."""
    return {key: each for key, each in attached(there.settings).items() if each.class_name == _file()["trim"]["class"]}


def _plain(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings without the coprocessors, which are compared part by part."""
    return {key: value for key, value in settings.items() if key not in attached(settings)}


def _trim_differences(wanted: TableDefinition, there: TableDefinition) -> list[TableDifference]:
    must, found = list(_ours(wanted).values()), list(_ours(there).values())
    if not must:
        # Nothing that such a table holds may be dropped.
        return [TableDifference(wanted.name, "trim", None, str(each), is_unsafe=True) for each in found]
    [trim] = must
    if not found:  # its rows only grow
        return [TableDifference(wanted.name, "trim", str(trim), None, is_unsafe=False)]
    differences = [
        TableDifference(
            wanted.name,
            f"trim {part}",
            trim.parts().get(part),
            each.parts().get(part),
            is_unsafe=part in ("cap", "slack") and _is_short(trim, each),
        )
        for each in found
        for part in {**trim.parts(), **each.parts()}
        if trim.parts().get(part) != each.parts().get(part)
    ]
    if len(found) > 1:
        differences.append(TableDifference(wanted.name, "trim", "once", f"{len(found)} times", is_unsafe=False))
    return differences


def _is_short(wanted: CoprocessorSpec, found: CoprocessorSpec) -> bool:
    """Whether a trim may remove an entry that a reader can reach."""
    cap, slack = found.number("cap"), found.number("slack")
    return cap is None or slack is None or cap + slack < (wanted.number("cap") or 0)


def _unlike(table: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> list[TableDifference]:
    return [
        TableDifference(table, key, value, found.get(key), is_unsafe=_is_unsafe(key, value, found.get(key)))
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
    """The content of `hbase.json`, which is in `schemas`, or in the package if that is installed."""
    packaged: Traversable = importlib.resources.files("feedstore.widecolumn.hbase") / "hbase.json"
    in_repository = Path(__file__).parents[3] / "schemas" / "hbase.json"
    found: Traversable = packaged if packaged.is_file() else in_repository
    loaded: dict[str, Any] = json.loads(found.read_text("utf-8"))
    return loaded
