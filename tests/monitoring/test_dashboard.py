"""The dashboard is what the code makes, and asks for what is defined."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy import monitoring
from deploy.monitoring import dashboard
from workers.app.metrics import ALL

PANELS = [panel for panel in dashboard.dashboard()["panels"] if panel["type"] != "row"]
ASKED = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_file_is_up_to_date() -> None:
    assert dashboard.FILE.read_text(encoding="utf-8") == dashboard.text(), "`make schemas` writes it"


def test_every_metric_has_a_panel_and_every_panel_asks_for_metrics() -> None:
    named = {name for each in ASKED for name in re.findall(r"\bfeed_[a-z_0-9]+", each)}
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in NAMES else name for name in named}
    assert bare == NAMES - {"feed_build_info"}


NAMES = {each.name for each in ALL}


def test_a_clock_that_is_behind_is_seen_next_to_one_that_is_right() -> None:
    (panel,) = [each for each in PANELS if each["title"] == "feed_clock_offset_seconds"]
    assert "min" not in panel["fieldConfig"]["defaults"], "it is less than 0"
    (target,) = panel["targets"]
    assert target["expr"] == 'max by (instance, of) (feed_clock_offset_seconds{home="$home"})'
    assert target["legendFormat"] == "{{instance}} {{of}}"


def test_of_a_gauge_whose_smallest_value_pages_the_panel_shows_that():
    rules = monitoring.RULES.read_text(encoding="utf-8")
    least = set(re.findall(r"\bmin by \([^)]*\) \((feed_[a-z_]+)", rules))
    assert least
    for each in PANELS:
        smallest = any(re.match(r"min\b", target["expr"]) for target in each["targets"])
        assert smallest == (each["title"] in least), each["title"]


def test_no_panel_covers_another_or_leaves_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= dashboard.COLUMNS
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.promtool
def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    assert program is not None, "promtool is not installed: `make test-rules` installs it"
    plain = [each.replace("$home", "h").replace("$__rate_interval", "1m") for each in ASKED]
    rules = [{"record": f"asked:{at}", "expr": expression} for at, expression in enumerate(plain)]
    path = tmp_path / "asked.yml"
    path.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([program, "check", "rules", path], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
