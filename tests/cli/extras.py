"""feedctl as where only some of the extras of `pyproject.toml` are installed, although the tests have all of them."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

_PROJECT: Final = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]

_PROGRAM: Final = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from workers.cli import main
main()
"""


def feedctl_with(*extras: str) -> str:
    """The program of an interpreter that finds what feedstore itself needs, what these extras do, and nothing else.
    The processes that it forks are the same.
    """
    wanted = [*_PROJECT["dependencies"], *(each for extra in extras for each in _extra(extra))]
    there = {_name("feedstore"), *_closure(map(Requirement, wanted))}
    hidden = {top for top, owners in packages_distributions().items() if not {_name(each) for each in owners} & there}
    return _PROGRAM.format(hidden=hidden)


def _extra(name: str) -> Iterator[str]:
    for each in _PROJECT["optional-dependencies"][name]:
        requirement = Requirement(each)
        if requirement.name == "feedstore":
            for inner in requirement.extras:
                yield from _extra(inner)
        else:
            yield each


def _closure(requirements: Iterable[Requirement]) -> set[str]:
    found: set[str] = set()
    left = list(requirements)
    while left:
        requirement = left.pop()
        environments: list[dict[str, Any]] = [{"extra": extra} for extra in (requirement.extras or {""})]
        name = _name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            below = [Requirement(each) for each in requires(name) or ()]
        except PackageNotFoundError:
            continue
        left += [each for each in below if each.marker is None or any(map(each.marker.evaluate, environments))]
    return found


def _name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
