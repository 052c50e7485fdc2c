"""`feedctl table` and the Java tool behind it, as far as that needs no servers: a script replaces Java."""

import json
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from tests.cli.command import Cli
from workers.app import table_tool

HBASE = """\
[[clusters]]
name = "a"
url = "hbase://127.0.0.1:1/space"
zookeeper = "127.0.0.1:3"

[[clusters]]
name = "b"
url = "hbase://127.0.0.1:4/"
zookeeper = "10.0.0.1:6,10.0.0.2:6"
"""
EMBEDDED = configuration.DEFAULT[configuration.DEFAULT.index("[[clusters]]") : configuration.DEFAULT.index("[follows]")]
REGION = {"region": "4f2a", "name": "space:following_feed,,1.4f2a.", "start_key": "", "store_files": 3}


@pytest.fixture
def real(tmp_path: Path) -> Cli:
    """A home whose clusters are HBase."""
    home = tmp_path / "real"
    home.mkdir()
    text = configuration.DEFAULT.replace(EMBEDDED, HBASE).replace("[worker]", '[hbase]\njars = "x/*:y.jar"\n\n[worker]')
    (home / configuration.FILE_NAME).write_text(text)
    return Cli(home)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the script that replaces Java: it notes its arguments in `arguments`, does what is in `does`."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@" >> $(dirname $0)/arguments\n. $(dirname $0)/does\n')
    program.chmod(0o755)
    (program.parent / "does").write_text(f"echo '{json.dumps(REGION)}'\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return program.parent


def asked(java: Path) -> list[str]:
    """What the tool was asked for, without Java's own options."""
    lines = (java / "arguments").read_text().splitlines()
    assert all("-cp x/*:y.jar feedstore.admin.TableTool " in line for line in lines)
    return [line.partition("feedstore.admin.TableTool ")[2] for line in lines]


def test_each_cluster_is_asked_with_its_own_table_and_zookeeper(real: Cli, java: Path) -> None:
    shown = real("table", "major-compact", "following_feed", "--wait", "--timeout-s", 7).stdout.splitlines()
    assert asked(java) == [
        "--zookeeper 127.0.0.1:3 major-compact space:following_feed --wait --timeout-s 7",
        "--zookeeper 10.0.0.1:6,10.0.0.2:6 major-compact default:following_feed --wait --timeout-s 7",
    ]
    assert shown == ["a  region 4f2a  store_files 3", "b  region 4f2a  store_files 3"]


@pytest.mark.parametrize(
    ("words", "asked_for"),
    [
        (["flush", "progress", "--region", "4f2a"], "flush default:progress --region 4f2a"),
        (["compact", "following_feed"], "compact default:following_feed"),
        (["regions", "following_feed"], "regions default:following_feed"),
        (["store-files", "following_feed"], "store-files default:following_feed"),
        (["cells", "following_feed", "12", "--limit", "5"], "cells default:following_feed 12 --limit 5"),
        (["move", "4f2a"], "move 4f2a"),
        (["move", "4f2a", "host,16020,1"], "move 4f2a host,16020,1"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_every_command_is_the_tools(real: Cli, java: Path, words: list[str], asked_for: str) -> None:
    lines = real("table", *words, "--cluster", "b", "--json").stdout.splitlines()
    assert asked(java) == [f"--zookeeper 10.0.0.1:6,10.0.0.2:6 {asked_for} --timeout-s 600"]
    assert [json.loads(line) for line in lines] == [{"cluster": "b"} | REGION]


@pytest.mark.parametrize("words", [["schema", "check"], ["trim"]])
def test_a_cluster_in_hbase_that_is_away_is_named(cli: Cli, words: list[str]) -> None:
    """There are two, and an address says neither which one is meant nor what to give to --cluster."""
    cli.change(EMBEDDED, HBASE)
    said = cli(*words, code=3).stderr
    assert "Error: cluster a: 127.0.0.1:1: " in said


def test_what_the_tool_says_is_wrong_is_all_that_is_said(real: Cli, java: Path) -> None:
    (java / "does").write_text("echo OpenJDK warning >&2\necho 'error: there is no table x' >&2\nexit 1\n")
    result = real("table", "regions", "following_feed", code=1)
    assert result.stderr == "Error: a: there is no table x\n"
    assert len(asked(java)) == 1  # the other cluster is left alone


def test_a_cluster_that_is_away_is_to_be_asked_later(real: Cli, java: Path) -> None:
    (java / "does").write_text("echo 'error: no ZooKeeper answers at 127.0.0.1:3' >&2\nexit 3\n")
    result = real("table", "regions", "following_feed", code=3)
    assert result.stderr == "Error: a: no ZooKeeper answers at 127.0.0.1:3\n"


@pytest.mark.parametrize("line", ["SLF4J: no binding was found", "[]"])
def test_a_line_of_the_tool_that_means_nothing_is_shown(real: Cli, java: Path, line: str) -> None:
    (java / "does").write_text(f"echo '{line}'\n")
    said = real("table", "regions", "following_feed", code=1).stderr
    assert f"the tool said {line!r}, which is no answer" in said


def test_a_tool_that_does_not_end_is_ended(real: Cli, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_tool, "_MARGIN_S", 0.0)
    (java / "does").write_text("exec sleep 600\n")
    said = real("table", "flush", "following_feed", "--timeout-s", 1, code=1).stderr
    assert "a: the tool did not end in 1 s; HBase finishes its part" in said


def test_java_that_is_missing_is_named(real: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    said = real("table", "flush", "following_feed", code=1).stderr
    assert f"{tmp_path / 'nowhere' / 'bin' / 'java'}: No such file or directory; a JDK 17 is needed" in said


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ('jars = "x/*:y.jar"', 'jars = ""', "hbase.jars: expected the Java class path"),
        ('zookeeper = "127.0.0.1:3"', "", 'cluster a: expected zookeeper = "HOST:PORT"'),
        ('zookeeper = "127.0.0.1:3"', 'zookeeper = "here"', "clusters[0].zookeeper: expected HOST:PORT"),
    ],
)
def test_what_the_configuration_lacks_is_named(real: Cli, java: Path, line: str, instead: str, said: str) -> None:
    real.change(line, instead)
    assert said in real("table", "flush", "following_feed", code=2).stderr
    assert not (java / "arguments").exists()


def test_jars_may_come_from_the_environment(real: Cli, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_HBASE_JARS", '"/opt/hbase/lib/*"')
    real("table", "flush", "following_feed")
    assert "-cp /opt/hbase/lib/* feedstore.admin.TableTool" in (java / "arguments").read_text()


def test_files_of_a_home_have_no_tables(cli: Cli) -> None:
    assert "no cluster of this home is HBase" in cli("table", "regions", "following_feed", code=2).stderr
    assert "cluster a is not HBase" in cli("table", "regions", "following_feed", "--cluster", "a", code=2).stderr
    assert "no cluster 'x'" in cli("table", "regions", "following_feed", "--cluster", "x", code=2).stderr
