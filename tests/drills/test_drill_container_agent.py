"""What runs inside a container, on processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.drills import container_agent
from tests.cli.command import eventually

NAME = f"drilled-{os.getpid()}"


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one of a host's servers."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()", f"-Dfeed.process={NAME}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait(10)
    process.stdin.close()
    process.stdout.close()


def ran(*words: str) -> dict[str, object]:
    text = Path(container_agent.__file__).read_text()
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, check=True, timeout=20)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until_state(pid: int, state: str) -> None:
    eventually(lambda: state_of(pid) == state, f"state {state}")


def test_a_signal_reaches_the_servers_of_a_name_and_says_when(server: "subprocess.Popen[bytes]") -> None:
    before = time.monotonic()
    said = ran("signal", str(int(signal.SIGSTOP)), NAME, "another")
    assert said["reached"] == [NAME]
    assert before <= float(str(said["at_s"])) <= time.monotonic()
    until_state(server.pid, "T")
    ran("signal", str(int(signal.SIGCONT)), NAME)
    until_state(server.pid, "S")
    ran("signal", str(int(signal.SIGKILL)), NAME)
    assert server.wait(10) == -signal.SIGKILL
    assert ran("signal", str(int(signal.SIGKILL)), NAME)["reached"] == []


def test_ages_are_those_of_servers_and_peers_those_of_a_port(server: "subprocess.Popen[bytes]") -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            said = container_agent.main(["state", str(listening.getsockname()[1])])
    assert isinstance(said, dict)
    assert said["peers"] == ["127.0.0.1"]
    assert 0 <= said["ages_s"][NAME] < 60


def test_a_script_that_fails_fails() -> None:
    assert "at_s" in ran("shell", "true; echo not for standard output")
    with pytest.raises(subprocess.CalledProcessError):
        ran("shell", "false; true")


@pytest.mark.parametrize(("bytes_s", "limit"), [(1_024, "8:0 1024"), (0, "8:0 0")])
def test_version_1_of_control_groups_is_told_by_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_s: int, limit: str
) -> None:
    group = tmp_path / "blkio" / "docker" / "c0ffee"
    group.mkdir(parents=True)
    for name in ("read", "write"):
        (group / f"blkio.throttle.{name}_bps_device").touch()
    monkeypatch.setattr(container_agent, "GROUPS", tmp_path)
    container_agent._throttle("c0ffee", bytes_s, "8:0")
    for name in ("read", "write"):
        assert (group / f"blkio.throttle.{name}_bps_device").read_text() == limit


@pytest.mark.parametrize(("bytes_s", "limit"), [(1_024, "8:0 rbps=1024 wbps=1024"), (0, "8:0 rbps=max wbps=max")])
def test_version_2_of_control_groups_is_told_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_s: int, limit: str
) -> None:
    group = tmp_path / "system.slice" / "docker-c0ffee.scope"
    group.mkdir(parents=True)
    monkeypatch.setattr(container_agent, "GROUPS", tmp_path)
    (group / "io.max").touch()
    container_agent._throttle("c0ffee", bytes_s, "8:0")
    assert (group / "io.max").read_text() == limit


@pytest.mark.parametrize("group", ["c0ffee", "unknown"])
def test_where_no_limit_can_be_there_none_is_set_and_none_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    (tmp_path / "docker-c0ffee.scope").mkdir()  # the controller of disks is not on: there is no io.max
    monkeypatch.setattr(container_agent, "GROUPS", tmp_path)
    with pytest.raises(SystemExit, match="no control group"):
        container_agent._throttle(group, 1_024, "8:0")
    # Healing it has nothing to do, and must not fail: the mark of the drill would stay, and refuse every other one.
    container_agent._throttle(group, 0, "8:0")


def test_what_is_on_no_disk_cannot_be_throttled_and_is_not_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_agent, "_disk", lambda _: None)
    with pytest.raises(SystemExit, match="cannot be throttled"):
        container_agent.main(["throttle", "c0ffee", "1024"])
    # Healing it has nothing to do, and must not fail.
    assert container_agent.main(["throttle", "c0ffee", "0"])


def test_a_directory_on_no_disk_is_told() -> None:
    nowhere = SimpleNamespace(stat=lambda: SimpleNamespace(st_dev=os.makedev(0, 999_999)))
    assert container_agent._disk(nowhere) is None  # type: ignore[arg-type]
