"""Writes into `schemas/` what other languages read and the code knows: `python -m workers.app.schemas [--check]`."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from feedstore.following.layout import golden_vectors
from workers.catalog import messages as catalog_messages
from workers.following import messages

DIRECTORY = Path(__file__).resolve().parents[2] / "schemas"


def _pretty(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _messages(schema: Callable[[], Mapping[str, object]]) -> Callable[[], str]:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return lambda: _pretty({**dialect, **schema()})


EXPORTS: dict[str, Callable[[], str]] = {
    "cell-layout.json": golden_vectors,
    **{name: _messages(lambda name=name: messages.schemas()[name]) for name in messages.schemas()},  # type: ignore[misc]
    "feed.updates.schema.json": _messages(catalog_messages.schema),
}
"""The content of each file, by the file's name."""


def stale(directory: Path, exports: Mapping[str, Callable[[], str]]) -> list[str]:
    """The names of the files that are missing or differ from what the code says."""
    return [
        name
        for name, export in exports.items()
        if not (directory / name).exists() or (directory / name).read_text(encoding="utf-8") != export()
    ]


def write(directory: Path, exports: Mapping[str, Callable[[], str]]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, export in exports.items():
        (directory / name).write_text(export(), encoding="utf-8")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail where a file is not up to date.")
def main(*, check: bool) -> None:
    """Writes the files of schemas/ that are made from code."""
    if not check:
        write(DIRECTORY, EXPORTS)
    elif names := stale(DIRECTORY, EXPORTS):
        click.echo(f"not up to date: {', '.join(names)}; run python -m workers.app.schemas", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
