"""One name means one thing: no two public classes of what is shipped and deployed have one name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("feedstore", "workers", "deploy")
OF_ONE_MEANING = {
    "BoardPage": "a page of a board, in the port and as it travels",
}
"""Names that mean the same thing wherever they are."""


def test_no_two_public_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.relative_to(ROOT).as_posix())
    found = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in found.items() if name not in OF_ONE_MEANING} == {}
    assert set(OF_ONE_MEANING) <= set(found), "take a name away that is no longer there twice"
