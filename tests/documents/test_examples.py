"""The examples for a first day do what they say, as they are printed."""

import os
import re
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from feedstore.app import config as configuration
from feedstore.app.catalogs import open_catalog
from feedstore.catalog.pins import key_of
from feedstore.domain import Pin
from feedstore.errors import NotNowError
from feedstore.metering import Program
from tests.cli.command import Cli

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str, section: str) -> list[str]:
    """The blocks of code in a section of a page."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page}: {section} has no {language}"
    return found


def run(cli: Cli, line: str) -> str:
    """What a line of a shell block prints."""
    command, _, _ = line.partition("  #")
    words = shlex.split(command)[1:]
    if words[0] != "work":
        return cli(*words).stdout
    cli.work()
    return ""


def test_the_example_of_a_prometheus_has_every_program_that_the_rules_need():
    [example] = blocks("docs/operating.md", "yaml", "Alerts")
    [job] = yaml.safe_load(example)["scrape_configs"]
    programs = {each["labels"]["program"] for each in job["static_configs"]}
    assert programs == set(get_args(Program)) - {"work"}, "`work` is all of them but `serve`"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path / ".feed")


def test_what_the_readme_shows_to_use(home: Cli):
    [lines] = [each for each in blocks("README.md", "sh", "Use it") if "feedctl init" in each]
    said = {line: run(home, line) for line in lines.splitlines()}
    for line, printed in said.items():
        _, _, pins = line.partition("  # ")
        if re.match(r"\d+, \d+, \d+", pins):
            assert re.findall(r"pin (\d+)", printed) == re.findall(r"\d+", pins)[:3], line

    [actions] = blocks("README.md", "json", "Use it")
    home("replay", "-", stdin=actions)
    home.work()
    assert home.feed(1) == [103, 102, 101], "by the board, which is followed since"

    here: dict[str, Any] = {}
    for code in blocks("README.md", "python", "Use it"):
        exec(code, here)
    assert [pin.pin for pin in here["pins"].pins] == [103, 102, 101]
    assert here["page"].cursor is None
    home.work()
    assert home.feed(1) == [103, 102, 101, 104]


def test_what_the_page_of_the_catalog_shows_to_python(home: Cli):
    home("init")
    with (home.home / configuration.FILE_NAME).open("a") as file:
        file.write("\n".join(["", *blocks("docs/catalog.md", "toml", "Use it"), "[catalogs.ads]", ""]))
    Path("ads.jsonl").write_text('{"key": "campaign-7", "record": {"bid": 5}}\n')
    home("save-pin", 12345, "--owner", 2, "--board", 9)
    home("catalog", "build", "pins")
    home("catalog", "load", "ads", "ads.jsonl", "--as-of", 1_732_000_000_000)
    config = configuration.load(home.home, os.environ)
    here: dict[str, Any] = {"load": configuration.load, "os": os, "Path": Path, "rank": sorted, "candidates": []}
    [code] = blocks("docs/catalog.md", "python", "Use it")
    with redirect_stdout(StringIO()):
        exec(code, here)
    assert here["got"].records == {b"campaign-7": b'{"bid":5}'}
    assert here["got"].missing == {b"campaign-8"}
    with open_catalog(config, "pins") as pins:
        [record] = pins.begin([key_of(12345)]).result().records.values()
    assert record == Pin(12345, 2, 9, record.created_ms)


@pytest.mark.processes
def test_what_the_page_of_the_library_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    [code] = blocks("docs/python.md", "python", "Test your application")
    here: dict[str, Any] = {}
    exec(code, here)
    here["test_a_follower_sees_a_pin"](tmp_path)

    (tmp_path / "feed").rename(tmp_path / ".feed")
    monkeypatch.chdir(tmp_path)
    [code] = blocks("docs/python.md", "python", "Open and close")
    exec(code, here)
    with pytest.raises(NotNowError):
        here["services"].feeds.page(1)
