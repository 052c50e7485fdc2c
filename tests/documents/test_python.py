"""docs/python.md against the code: the calls that it lists are there, and its errors are of the kinds that it says."""

import re
from collections.abc import Iterator
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

import feedstore.app.services  # noqa: F401 - all errors are known once it is imported
from feedstore.boards.service import BoardService
from feedstore.catalog.service import CatalogService
from feedstore.following.service import FeedService

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def rows(after: str) -> list[list[str]]:
    """The cells of the table that begins with a text."""
    lines = PAGE[PAGE.index(after) :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def kinds(of: type) -> Iterator[type]:
    for each in of.__subclasses__():
        yield each
        yield from kinds(each)


@pytest.mark.parametrize(
    ("title", "service"),
    [("feeds", FeedService), ("boards", BoardService), ("catalogs", CatalogService)],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_calls_of_each_service_are_listed(title: str, service: type) -> None:
    listed = {name for row in rows(f"| `services.{title}` |") for name in re.findall(r"`(\w+)\(", row[0])}
    public = {name for name, _function in getmembers(service, isfunction) if not name.startswith("_")}
    assert listed == public - {"close"}


def test_the_errors_are_of_the_kinds_that_are_said() -> None:
    classes = {each.__name__: each for each in kinds(Exception)} | {"ValueError": ValueError}
    found = 0
    for caught, named, *_rest in rows("| caught |"):
        for name in re.findall(r"`(\w+Error)`", named.partition(", which are")[0]):
            assert issubclass(classes[name], classes[caught.strip("`")]), name
            found += 1
    assert found > 10
