"""Each link between pages leads to a file, and to a heading of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^\s*```.*?^\s*```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*([^)#\s]*)#?([^)\s]*)\)")


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Those that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        linked = (page.parent / target).resolve() if target else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            yield f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []
