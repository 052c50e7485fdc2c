"""The floor plan of docs/architecture.md against the checkout: it has a row for each room, and a room for each row."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("feedstore", "workers", "deploy")
PLAN: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## The floor plan")[2]


def named() -> list[str]:
    rows = re.findall(r"^\| (`.+?`) \|", PLAN.partition("\n## ")[0], re.MULTILINE)
    return [room for row in rows for room in re.findall(r"`([^`]+)`", row)]


def rooms() -> set[str]:
    """The folders and modules directly in a package, without those that only hold it together."""
    return {
        f"{package}/{each.name}"
        for package in PACKAGES
        for each in (ROOT / package).iterdir()
        if (each.is_dir() and each.name != "__pycache__") or (each.suffix == ".py" and each.name != "__init__.py")
    }


def test_each_room_has_one_row() -> None:
    assert sorted(named()) == sorted(rooms())
