"""docs/glossary.md: few terms, each once, in order."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| ([a-z ]+) \|", PAGE, re.MULTILINE)[1:]


def test_terms_are_few_and_in_order() -> None:
    assert len(TERMS) <= 50
    assert sorted(set(TERMS)) == TERMS
