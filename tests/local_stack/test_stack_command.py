"""The command line says what it does, and its exit status says whether it was done."""

import errno
import io
import json
import sys
from pathlib import Path

import pytest
from fake_servers import FakeServer, StackOf

from deploy.local.cli import main
from deploy.local.home import Home
from deploy.local.stack import NAMES, Stack


def test_help_names_every_server_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES)
    assert "python -m deploy.local up --home /tmp/k kafka" in shown


@pytest.mark.parametrize("command", [["down"], ["status"], ["logs"], ["kill", "kafka"], ["start", "kafka"]])
def test_nothing_but_up_makes_a_home(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--home", str(tmp_path / "none")]) == 1
    assert "there is no stack here" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_an_unknown_server_is_an_error_that_lists_the_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "zookeeper", "--home", str(tmp_path)]) == 1
    assert "there is no server 'zookeeper'; there are kafka, " in capsys.readouterr().err


def test_status_of_a_stack_that_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = Stack(tmp_path)
    assert main(["status", "--home", str(tmp_path)]) == 3
    assert capsys.readouterr().out.count("stopped") == len(NAMES)
    assert main(["status", "--json", "--home", str(tmp_path), "kafka"]) == 3
    (kafka,) = json.loads(capsys.readouterr().out)
    assert (kafka["state"], kafka["ports"]["client"]) == ("stopped", stack.port("kafka"))


def test_what_only_looks_does_not_wait_for_a_start_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.home._LOCK_WAIT_S", 0.0)
    log = Stack(tmp_path).log("kafka")
    log.write_text("one\n", encoding="utf-8")
    with Home(tmp_path).lock(lambda _: None):
        assert main(["status", "--home", str(tmp_path)]) == 3
        assert main(["logs", "--home", str(tmp_path)]) == 0
        capsys.readouterr()
        assert main(["kill", "--home", str(tmp_path), "kafka"]) == 1
    assert f"{tmp_path}: waiting for another command to end" in capsys.readouterr().err


def test_logs_of_what_never_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = Stack(tmp_path)
    assert main(["logs", "--home", str(tmp_path)]) == 1
    stack.log("kafka").write_text("one\ntwo\n", encoding="utf-8")
    assert main(["logs", "kafka", "--lines", "1", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "two\n"


def test_a_home_that_cannot_be_written_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = Stack(tmp_path)
    (stack.home / "conf" / "mariadb").touch()
    assert main(["up", "mariadb", "--home", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "conf/mariadb" in line


class Unread(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.processes
def test_down_stops_all_although_nothing_reads_what_it_says(
    home: Home, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Ctrl-C has ended the `tee` behind it, too."""
    needs = {"thrift2-a": ("hbase-a",)}
    servers = [FakeServer(home, name, needs=needs.get(name, ())) for name in NAMES]
    stack = stack_of(*servers)
    stack.up("thrift2-a", "kafka")
    monkeypatch.setattr("deploy.local.stack._servers", lambda *_: [each.server() for each in servers])
    monkeypatch.setattr(sys, "stderr", Unread())
    status = main(["down", "--home", str(home.root)])
    assert [name for name in NAMES if stack.pid(name) is not None] == []
    assert status == 0
