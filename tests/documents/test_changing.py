"""docs/changing.md and CONTRIBUTING.md against the checkout: what they name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("feedstore", "workers", "deploy", "schemas", "tests", "bench", "docs", "coprocessor")
CHANGING = (ROOT / "docs" / "changing.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def paths(page: str) -> list[str]:
    return [each for each in re.findall(r"`([\w./-]+)`", page) if each.partition("/")[0] in ROOMS]


@pytest.mark.parametrize("page", [CHANGING, CONTRIBUTING], ids=["changing", "contributing"])
def test_each_named_path_is_there(page: str) -> None:
    assert paths(page)
    assert [each for each in paths(page) if not (ROOT / each).exists()] == []


def test_there_are_eleven_changes_and_each_names_where() -> None:
    sections = re.split(r"^## ", CHANGING, flags=re.MULTILINE)[1:]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 12))
    assert [section.splitlines()[0] for section in sections if not paths(section)] == []


def test_a_kind_of_action_is_a_change_in_twelve_places_at_most() -> None:
    section = CHANGING.partition("\n## 1.")[2].partition("\n## ")[0]
    code = {each for each in paths(section) if each.partition("/")[0] in {"feedstore", "workers"}}
    assert len(code - {"workers/following/fanout.py"}) + 1 <= 12


@pytest.mark.parametrize(
    ("number", "tells_apart"),
    [(1, r"^ +case .*\bUnfollow(ed)?\("), (11, r"kind_of\(\w+\)\.source")],
    ids=["a kind of action", "a kind of catalog"],
)
def test_the_page_names_every_file_that_tells_the_kinds_apart(number: int, tells_apart: str) -> None:
    section = CHANGING.partition(f"\n## {number}.")[2].partition("\n## ")[0]
    files = {
        str(path.relative_to(ROOT))
        for room in ("feedstore", "workers")
        for path in (ROOT / room).rglob("*.py")
        if re.search(tells_apart, path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert files
    assert files <= set(paths(section))


def test_each_target_that_is_quoted_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", CHANGING + CONTRIBUTING, re.MULTILINE)) <= targets
