"""Workers that are started while the servers of the queue and of the follow store are away."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import DEADLINE_S, Cli, eventually

SHARD = "mysql://feed@127.0.0.1:1/follows"
QUEUE = "kafka://127.0.0.1:1"


@pytest.fixture
def on_servers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A home of which every server is away."""
    for cluster in ("a", "b"):
        cli.change(f"rocksdb:data/{cluster}", f"hbase://127.0.0.1:1/{cluster}")
    monkeypatch.setenv("FEED_FOLLOWS_SHARDS", json.dumps([SHARD]))
    monkeypatch.setenv("FEED_QUEUE_URL", QUEUE)
    return cli


@pytest.mark.processes
@pytest.mark.parametrize("command", ["work", "relay", "expand", "write --cluster a"])
def test_a_worker_waits_for_servers_that_are_away_at_its_start(on_servers: Cli, tmp_path: Path, command: str) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        worker = on_servers.spawn(*command.split(), stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        eventually(lambda: '"failures":2' in log.read_text() or worker.poll() is not None, "it tries again")
        waits = [json.loads(line) for line in log.read_text().splitlines() if "start.waits" in line]
        assert [each["failures"] for each in waits[:2]] == [1, 2], log.read_text()
        assert SHARD.removeprefix("mysql://feed@").partition("/")[0] in waits[0]["error"]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_S) == 0
    finally:
        worker.kill()
        worker.wait()


def test_until_idle_waits_for_no_server_at_its_start(on_servers: Cli) -> None:
    assert "Can't connect to MySQL server" in on_servers("work", "--until-idle", code=3).stderr
