"""docs/runbooks: one for each drill and for what no drill can do; every command that they quote is there."""

import re
import shlex
from pathlib import Path

import click
import pytest

from deploy.docker import names
from deploy.drills.catalogue import DRILLS
from deploy.local.programs import PROJECT
from workers.cli import root

FOLDER = PROJECT / "docs" / "runbooks"
PAGES = sorted(FOLDER.rglob("*.md"))
RUNBOOKS = [path for path in sorted(FOLDER.glob("*.md")) if path.name != "README.md"]
"""Of what happened. Those of alerts, in a folder of their own, are held by tests/monitoring."""
WITHOUT_A_DRILL = {"zone-without-power"}
"""A container cannot lose what its machine has in memory."""
SECTIONS = [
    "What pages you",
    "What you see",
    "What to do",
    "How to check that it is over",
    "What not to do",
]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def commands(path: Path) -> list[list[str]]:
    """The commands in the shell blocks and between backticks, each as its words; a pipe or a comment ends one."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text(path), re.DOTALL | re.MULTILINE)
    lines = [part for block in blocks for line in block.splitlines() for part in re.split(r"\s\|\|?\s|&&|\s# ", line)]
    inline = re.findall(r"`((?:feedctl|make|docker) [^`]+)`", text(path))
    return [shlex.split(line) for line in (*lines, *inline) if line.strip()]


def anchors(path: Path) -> set[str]:
    """Those that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_drill_has_a_runbook_and_every_runbook_but_one_a_drill() -> None:
    assert {path.stem for path in RUNBOOKS} == set(DRILLS) | WITHOUT_A_DRILL


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_answers_the_five_questions_and_names_its_drill(path: Path) -> None:
    assert re.findall(r"^## (.*)$", text(path), re.MULTILINE) == SECTIONS
    drill = f"`feedctl drill run {path.stem}`"
    assert ("There is no drill" if path.stem in WITHOUT_A_DRILL else drill) in text(path)
    assert f"({path.name})" in text(FOLDER / "README.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_quoted_feedctl_is_a_command_with_the_options_that_it_has(path: Path) -> None:
    for _, *words in (each for each in commands(path) if each[0] == "feedctl"):
        command: click.Command = root.main
        rest = iter(words)
        while isinstance(command, click.Group):
            word = next(rest, "")
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{command.name} has no command {word!r}: {words}"
            command = found
        options = {option for each in command.params for option in each.opts}
        assert {word for word in rest if word.startswith("-")} <= options, words


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_quoted_make_has_a_target(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for _, *words in (each for each in commands(path) if each[0] == "make"):
        assert {word for word in words if "=" not in word} <= targets


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_named_container_and_a_linked_place_are_there(path: Path) -> None:
    containers = {names.container(name) for name in (*names.SERVERS, *names.CLIENTS)}
    assert set(re.findall(r"\bfeedstore-[a-z0-9-]+", text(path))) <= containers
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text(path)):
        linked = (path.parent / target).resolve() if target else path
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def test_the_table_of_drills_says_how_long_each_fault_lasts() -> None:
    rows = re.findall(r"^\| (`.*?) \|.*\| (\d+) s[^|]*\|$", text(PROJECT / "docs" / "drills.md"), re.MULTILINE)
    said = {name: float(hold) for cell, hold in rows for name in re.findall(r"`([\w-]+)`", cell) if name in DRILLS}
    of_meta = {name for name in DRILLS if name.endswith("-with-meta")}  # a row for all of them
    assert said == {name: drill.hold_s for name, drill in DRILLS.items() if name not in of_meta}
    for name in of_meta:
        assert DRILLS[name].hold_s == DRILLS[name.removesuffix("-with-meta")].hold_s


METRIC = re.compile(r"\bfeed_[a-z_0-9]+")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_named_metric_or_setting_is_one_of_ours(path: Path) -> None:
    described = (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert set(METRIC.findall(text(path))) <= set(METRIC.findall(described))
    settings = "".join(each.read_text(encoding="utf-8") for each in (PROJECT / "deploy" / "hbase").glob("*.xml"))
    roles = (PROJECT / "deploy" / "docker" / "roles.py").read_text(encoding="utf-8")
    for setting in re.findall(r"`((?:hbase|dfs|zookeeper|ipc)\.[a-zA-Z.-]+)`", text(path)):
        assert setting in settings + roles, setting
