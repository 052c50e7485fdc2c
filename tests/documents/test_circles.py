"""Imports point one way, also inside a room and where they are late: no module imports itself by way of others."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("feedstore", "workers", "deploy", "bench")


def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules that a module imports, now or when a function is called. Names of a package count as the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules = {f"{module}.{each.name}" for each in names}
                yield from (each if each in known else module for each in modules)


def circle(imports: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_there_is_no_circle_of_imports() -> None:
    known = modules()
    assert circle({name: set(imported(path, known)) & set(known) for name, path in known.items()}) == []


def test_a_circle_is_found() -> None:
    assert sorted(set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}))) == ["a", "b", "c"]
