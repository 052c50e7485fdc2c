"""Writes the files that are made from code: `python -m workers.app.schemas [--check]`."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from feedstore.following.layout import golden_vectors
from workers.app import config_page, metrics
from workers.catalog import messages as catalog_messages
from workers.following import messages, packs

ROOT = Path(__file__).resolve().parents[2]


def _pretty(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _messages(schema: Callable[[], Mapping[str, object]]) -> Callable[[], str]:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return lambda: _pretty({**dialect, **_uniform(schema())})


def _uniform(part: Any, name: str = "") -> Any:
    """The same whatever version of msgspec made it: descriptions as docstrings are shown, alternatives in one order.
    name: the part's.
    """
    match part:
        case dict():
            return {key: _uniform(each, key) for key, each in part.items()}
        case list():
            found = [_uniform(each) for each in part]
            return sorted(found, key=json.dumps) if name == "anyOf" else found
        case str() if name == "description":
            return inspect.cleandoc(part)
        case _:
            return part


EXPORTS: dict[str, Callable[[], str]] = {
    "docs/configuration.md": config_page.page,
    "docs/metrics.md": metrics.page,
    "schemas/cell-layout.json": golden_vectors,
    "schemas/packs.json": lambda: _pretty(packs.golden_vectors()),
    **{f"schemas/{name}": _messages(lambda name=name: messages.schemas()[name]) for name in messages.schemas()},  # type: ignore[misc]
    "schemas/feed.updates.schema.json": _messages(catalog_messages.schema),
}
"""The content of each file, by its path from the top."""


def stale(directory: Path, exports: Mapping[str, Callable[[], str]]) -> list[str]:
    """The names of the files that are missing or differ from the code."""
    return [
        name
        for name, export in exports.items()
        if not (directory / name).exists() or (directory / name).read_text(encoding="utf-8") != export()
    ]


def write(directory: Path, exports: Mapping[str, Callable[[], str]]) -> None:
    for name, export in exports.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(export(), encoding="utf-8")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail where a file is not up to date.")
def main(*, check: bool) -> None:
    """Writes the files that are made from code."""
    if not check:
        write(ROOT, EXPORTS)
    elif names := stale(ROOT, EXPORTS):
        click.echo(f"not up to date: {', '.join(names)}; run python -m workers.app.schemas", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
