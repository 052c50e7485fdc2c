"""docs/rules.md against the code: each rule that is cited exists, and each rule is shown."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
RULES = range(1, 13)
PAGE = (ROOT / "docs" / "rules.md").read_text()
KEPT_IN = ("feedstore", "workers", "tests", "bench", "deploy", "coprocessor/src", "docs")
CITED = re.compile(r"\b[Rr]ules? (\d+)")


def sources() -> Iterator[Path]:
    for folder in KEPT_IN:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".java", ".md"} and "target" not in path.parts:
                yield path


@pytest.fixture(scope="module")
def cited() -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for path in sources():
        for number in CITED.findall(path.read_text()):
            found.setdefault(int(number), []).append(path.relative_to(ROOT))
    return found


def test_each_rule_that_is_cited_exists(cited: dict[int, list[Path]]) -> None:
    assert {number: paths for number, paths in cited.items() if number not in RULES} == {}


def test_the_page_has_each_rule_with_its_reason() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [int(section.split(".")[0]) for section in sections] == list(RULES)
    assert [section.splitlines()[0] for section in sections if "\nWhy: " not in section] == []


@pytest.mark.parametrize("rule", RULES)
def test_what_keeps_a_rule_and_what_shows_it_is_there(rule: int) -> None:
    (row,) = re.findall(rf"^\| {rule} \|.*$", PAGE, flags=re.MULTILINE)
    _, _, _, kept, shown, _ = row.split("|")
    for cell in (kept, shown):
        paths = re.findall(r"`([^`]+)`", cell)
        assert paths
        assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_a_mutant_or_a_test_that_names_it(rule: int) -> None:
    named = [path for path in (ROOT / "tests").rglob("test_*.py") if f"def test_rule_{rule}_" in path.read_text()]
    assert named or [mutant for mutant in MUTANTS.values() if mutant.rule == rule]
