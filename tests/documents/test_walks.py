"""docs/architecture.md says how many files a walk passes through. More than that: find out why, or say so there."""

import re
from pathlib import Path

from tests.documents.walks import OBSERVES, ROOT, walks

SAID = {
    "record an action": "record",
    "relay it": "relay",
    "expand it": "expander",
    "write it": "writer",
    "a follow to a cell": "follow",
    "a page": "page",
}
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_no_walk_is_longer_than_the_page_says(tmp_path: Path) -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in rows} == set(SAID)
    found = walks(tmp_path / "home")
    for name, most, most_without, way in rows:
        files = found[SAID[name]].files
        assert len(files) <= int(most), f"{name}: {sorted(files)}"
        assert len(files - OBSERVES) <= int(most_without), f"{name}: {sorted(files - OBSERVES)}"
        assert set(re.findall(r"`([\w/.]+)`", way)) <= files


def test_every_file_that_only_observes_is_on_some_walk(tmp_path: Path) -> None:
    assert frozenset().union(*(walk.files for walk in walks(tmp_path / "home").values())) >= OBSERVES
