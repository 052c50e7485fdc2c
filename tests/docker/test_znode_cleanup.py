"""A region server that was killed is missed at once: its node in ZooKeeper is taken away for it."""

import socket
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from deploy.docker import roles, znode_cleanup
from deploy.local.stack import Stack

NODE = "/hbase/rs/a-host-1,16020,1700000000000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "znode"
    file.write_text(f"{NODE}\n")
    return file


def test_one_that_ended_in_order_has_left_nothing_to_do(tmp_path: Path) -> None:
    assert znode_cleanup.main(tmp_path / "znode", "127.0.0.1:1") == 0


def test_where_zookeeper_does_not_answer_it_gives_up_and_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(znode_cleanup, "_PATIENCE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert znode_cleanup.main(file, f"127.0.0.1:{silent.getsockname()[1]}") == 1
    assert f"{NODE} could not be taken away" in capsys.readouterr().err
    assert file.exists()


def test_a_region_server_says_where_its_node_is_and_what_is_run_after_it(tmp_path: Path) -> None:
    (server,) = [each for each in roles.processes("host", "b") if each.name == "regionserver"]
    file = server.argv[1].removeprefix("HBASE_ZNODE_FILE=")
    assert server.argv[0] == "env"
    assert list(server.after) == ["python3", "-m", "deploy.docker.znode_cleanup", file, "b-control:2181"]
    others = [each for role in roles.ROLES for each in roles.processes(role, "b") if each.name != "regionserver"]
    assert not any(each.after for each in others)


@pytest.mark.stack
def test_its_node_is_taken_away_once(stack: Stack, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack.up("hbase-a")
    zookeeper = f"127.0.0.1:{stack.port('hbase-a', 'zookeeper')}"
    node = "/presence-of-a-test"
    file.write_text(f"{node}\n")
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        client.create(node)
        assert znode_cleanup.main(file, zookeeper) == 0
        assert client.exists(node) is None
        assert not file.exists()
        file.write_text(f"{node}\n")
        assert znode_cleanup.main(file, zookeeper) == 0  # its session was faster
        assert not file.exists()
    finally:
        client.stop()
        client.close()
    assert "is taken away" in capsys.readouterr().err
