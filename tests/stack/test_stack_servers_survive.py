"""The real servers: each answers, comes back after a kill with what it acknowledged, and leaves nothing running."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deploy.local import NAMES, Stack, probes
from deploy.local.errors import NotReadyError
from feedstore.widecolumn.hbase import HBaseCluster, Record, RecordTable, TableDefinition

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

_ROWS = 500
_TABLE = "surviving"
_RECORD = Record(1, b"value")


@contextmanager
def _records(stack: Stack, cluster: str) -> Iterator[RecordTable]:
    url = f"hbase://127.0.0.1:{stack.port(f'thrift2-{cluster}')}/"
    with closing(HBaseCluster.open(url, [], check=False)) as opened:
        opened.administration.create(TableDefinition(_TABLE, {"feed": {}}, {}))
        yield opened.records(_TABLE)


def _sql(stack: Stack, statement: str) -> str:
    conf = stack.home / "conf" / "mariadb" / "client.cnf"
    argv = ["mariadb", f"--defaults-file={conf}", "-N", "-e", statement, "follows_1"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def _ends_listening(port: int) -> bool:
    """Whether no server listens there any more, within half a minute."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return True
        time.sleep(0.5)
    return False


@pytest.mark.parametrize("cluster", ["a", "b"])
def test_a_cluster_that_is_killed_comes_back_with_every_acknowledged_row(stack: Stack, cluster: str) -> None:
    stack.up(f"cluster-{cluster}")
    rows = [f"row-{number:05d}".encode() for number in range(_ROWS)]
    with _records(stack, cluster) as records:
        for row in rows:
            records.put([(row, _RECORD)])
        stack.kill(f"hbase-{cluster}")
        assert _state(stack, f"thrift2-{cluster}") == "not ready"
        stack.up(f"cluster-{cluster}")
        assert records.get(rows) == [_RECORD] * _ROWS


def test_a_cluster_of_which_half_has_died_is_brought_back(stack: Stack) -> None:
    """Suspended for longer than its session, its region server ends when it is resumed, and its master lives."""
    stack.up("cluster-b")
    with _records(stack, "b") as records:
        records.put([(b"kept", _RECORD)])
    before = stack.pid("hbase-b")
    for suspended_s in (15, 30, 60, 15, 30, 60):
        stack.suspend("hbase-b")
        time.sleep(suspended_s)
        stack.resume("hbase-b")
        if _ends_listening(stack.port("hbase-b", "regionserver")):
            if stack.pid("hbase-b") == before:
                break
            # Its master has lost its session as well, and the process has ended: that is another test's.
            stack.up("cluster-b")
            before = stack.pid("hbase-b")
    else:
        pytest.fail("its region server has never ended alone")
    assert _state(stack, "hbase-b") != "ready"
    stack.up("cluster-b")
    assert stack.pid("hbase-b") not in (None, before)
    with _records(stack, "b") as records:
        assert records.get([b"kept"]) == [_RECORD]


def test_a_gateway_that_is_killed_comes_back_on_its_port(stack: Stack) -> None:
    stack.up("cluster-a")
    port = stack.port("thrift2-a")
    stack.kill("thrift2-a")
    assert (_state(stack, "thrift2-a"), _state(stack, "hbase-a")) == ("stopped", "ready")
    stack.start("thrift2-a")
    assert stack.port("thrift2-a") == port


def test_a_database_that_is_killed_comes_back_with_what_was_committed(stack: Stack) -> None:
    stack.up("mariadb")
    _sql(stack, "CREATE OR REPLACE TABLE survivors (id INT PRIMARY KEY) ENGINE=InnoDB")
    _sql(stack, "INSERT INTO survivors SELECT seq FROM seq_1_to_1000")
    stack.kill("mariadb")
    stack.up("mariadb")
    assert _sql(stack, "SELECT COUNT(*) FROM survivors; DROP TABLE survivors") == "1000"


def test_the_broker_comes_back_after_a_kill_and_after_a_suspension(stack: Stack) -> None:
    stack.up("kafka")
    stack.kill("kafka")
    stack.up("kafka")
    stack.suspend("kafka")
    with pytest.raises(NotReadyError, match="no answer"):
        probes.kafka_metadata(stack.port("kafka"))
    stack.resume("kafka")
    stack.up("kafka")


def test_everything_listens_on_the_loopback_only(stack: Stack) -> None:
    stack.up()
    ours = {status.pid for status in stack.status()}
    listening = {line for name in ("tcp", "tcp6") for line in _listeners(name)}
    sockets = {inode for pid in ours for inode in _sockets(pid)}
    addresses = {address for address, inode in listening if inode in sockets}
    assert len(addresses) >= 13
    assert {address.partition(":")[0] for address in addresses} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_nothing_is_left_running_and_everything_comes_back(stack: Stack) -> None:
    stack.up()
    pids = [status.pid for status in stack.status()]
    stack.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
    assert {status.state for status in stack.status()} == {"stopped"}
    stack.up()
    assert [status.name for status in stack.status() if status.state == "ready"] == list(NAMES)


def test_two_stacks_stand_side_by_side(stack: Stack, tmp_path: Path) -> None:
    stack.up("kafka", "mariadb")
    other = Stack(tmp_path / "other")
    try:
        other.up("kafka", "mariadb")
        assert _state(stack, "kafka") == "ready"
        other.stop()
        assert _state(stack, "mariadb") == "ready"
    finally:
        other.stop()


def _listeners(table: str) -> list[tuple[str, str]]:
    """The local address and the inode of every socket that listens."""
    lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    return [(fields[1], fields[9]) for fields in map(str.split, lines) if fields[3] == "0A"]


def _sockets(pid: int | None) -> set[str]:
    links = (str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
    return {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}


def _state(stack: Stack, name: str) -> str:
    [found] = stack.status(name)
    return found.state
