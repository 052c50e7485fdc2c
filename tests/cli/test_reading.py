"""feed, export, status, trim, and the same while a worker runs."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from feedstore.domain import RefillAsked
from feedstore.follows.port import actions_in
from tests.cli.command import Cli, eventually, writer_pid


def test_feed_shows_pages(filled: Cli) -> None:
    first = filled.json("feed", 1, "--limit", 4)
    assert first["entries"] == [[6, 1_010], [5, 1_005], [4, 1_004], [3, 1_003]]
    assert first["served_by"] == "a"
    assert first["behind_ms"] >= 0

    second = filled.json("feed", 1, "--limit", 4, "--cursor", first["cursor"])
    assert second["entries"] == [[2, 1_002], [1, 1_001]]
    assert second["cursor"] is None
    assert second["returned"] == 6

    human = filled("feed", 1)
    assert human.stdout.splitlines()[0] == "1970-01-01 00:00:01.010  pin 6"
    assert "6 entries, from a" in human.stderr


def test_a_user_without_a_feed_has_an_empty_one(filled: Cli) -> None:
    assert filled.json("feed", 404)["entries"] == []


def test_export_streams_users_ascending(filled: Cli) -> None:
    filled("follow", 300, "--user", 2)
    filled("follow", 40, "--board", 31)
    filled.work()

    for cluster in ("a", "b"):
        lines = [json.loads(line) for line in filled("export", "--cluster", cluster).stdout.splitlines()]
        assert [line["user"] for line in lines] == [1, 40, 300]
        assert lines[1] == {"user": 40, "entries": [[6, 1_010]]}
    assert "there are: a, b" in filled("export", "--cluster", "c", code=2).stderr


def test_a_feed_ends_at_the_cap(empty: Cli) -> None:
    empty("init", "--cap", 2, "--slack", 1)
    empty("follow", 1, "--user", 2)
    empty.work()
    for pin in range(1, 6):
        empty("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", pin)
    empty.work()

    assert empty.feed(1) == [5, 4]
    assert empty.export("b") == {1: [[5, 5], [4, 4]]}
    trimmed = json.loads(empty("trim", "--json").stdout.splitlines()[0])
    # The witnesses are rows too, and their old versions are masked.
    assert trimmed == {"cluster": "a", "rows": 1 + 16, "trimmed": 2, "masked": trimmed["masked"], "markers": 0}
    assert empty.feed(1) == [5, 4]
    assert "no difference" in empty("verify").stderr


def test_status_counts_and_says_how_far_each_cluster_is(filled: Cli) -> None:
    status = filled.json("status")

    assert status["counts"]["edges_active"] == 2
    assert status["counts"]["pins"] == 7
    assert status["groups"] == dict.fromkeys(["relay", "expander", "writer-a", "retries-a", "writer-b", "retries-b"], 0)
    assert status["idle"]
    assert status["worker"] is None
    assert status["dead_letters"] == 0
    for cluster in ("a", "b"):
        assert status["clusters"][cluster]["error"] is None
        assert status["clusters"][cluster]["behind_ms"] >= 0
    filled("follow", 5, "--user", 2)
    assert filled.json("status")["groups"]["relay"] == 1
    assert "relay 1" in filled("status").stdout


@pytest.mark.processes
def test_status_tells_a_machine_whether_a_cluster_is_too_far_behind(cli: Cli) -> None:
    def problems(code: int | None, *options: str) -> list[str]:
        said: list[str] = cli.json("status", *options, code=code)["problems"]
        return said

    # No worker has run: what has landed is unknown.
    assert problems(0) == []
    unknown = "how far cluster {} is behind is unknown, and no worker runs in this home"
    assert problems(1, "--max-behind", "60s") == [unknown.format("a"), unknown.format("b")]

    with cli.worker() as worker:
        eventually(lambda: problems(None, "--max-behind", "60s") == [], "both have everything")
        assert problems(0, "--max-behind", "60s") == []
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0

    cli("follow", 1, "--user", 2)
    eventually(lambda: cli.json("status")["clusters"]["b"]["behind_ms"] > 1, "time has passed")
    late = cli("status", "--max-behind", "1ms", code=1).stdout
    assert "problem   cluster b is " in late
    assert "behind, more than 0.0 s, and no worker runs in this home" in late
    assert problems(0) == []
    assert problems(0, "--max-behind", "1d") == []
    assert "expected a duration such as" in cli("status", "--max-behind", "soon", code=2).stderr


def test_a_cluster_that_is_gone_shows_in_status_and_the_other_one_serves(filled: Cli) -> None:
    (filled.home / "data" / "a").rename(filled.home / "data" / "away")

    status = filled.json("status", code=1)
    assert "there is no cluster" in status["clusters"]["a"]["error"]
    assert status["clusters"]["b"]["error"] is None
    assert status["problems"] == [status["clusters"]["a"]["error"]]
    assert filled.json("feed", 1)["served_by"] == "b"
    assert "there is no cluster" in filled("export", "--cluster", "a", code=3).stderr
    assert not (filled.home / "data" / "a").exists()


def test_a_feed_is_served_without_the_follow_store(filled: Cli) -> None:
    (filled.home / "data" / "follows.db").rename(filled.home / "data" / "away.db")

    result = filled("feed", 1, "--json")

    assert [pin for pin, _ in json.loads(result.stdout)["entries"]] == [6, 5, 4, 3, 2, 1]
    assert "no follow store" in result.stderr


def test_rule_9_a_walk_that_ends_early_asks_for_a_refill(filled: Cli) -> None:
    filled("feed", 1)

    with filled.ports() as ports:
        (asked,) = actions_in(ports.follows.unrelayed(9))
        assert isinstance(asked, RefillAsked)
        assert (asked.user, asked.cluster) == (1, None)


@pytest.mark.processes
def test_beside_a_worker_reads_see_what_lands_and_actions_are_queued_to_it(filled: Cli) -> None:
    with filled.worker() as worker:
        filled("save-pin", 50, "--owner", 2, "--board", 20, "--created-ms", 5_000)
        eventually(lambda: filled.feed(1)[:1] == [50], "the pin has landed")
        eventually(lambda: filled.export("b")[1][0] == [50, 5_000], "in the other replica, too")
        assert "no difference" in filled("verify").stderr

        refused = filled("trim", code=3).stderr
        assert f"pid {worker.pid}" in refused
        assert "stop it, then run this again" in refused

        asked = filled.process("rebuild", 1).stderr
        assert f"the worker (pid {worker.pid}) does it" in asked
        eventually(lambda: filled.json("status", code=None)["idle"], "the rebuild is done")

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert filled.feed(1)[:1] == [50]


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_worker_gracefully(cli: Cli, number: signal.Signals) -> None:
    with cli.worker() as worker:
        worker.send_signal(number)
        _, stderr = worker.communicate(timeout=60)

    assert worker.returncode == 0
    events = [json.loads(line) for line in stderr.decode().splitlines()]
    stopped = sorted(event["loop"] for event in events if event["event"] == "loop.stopped")
    # A writer is told of twice: by its own process, and by the one that started it.
    apart = ["retries-a", "retries-b", "sweeper-a", "sweeper-b", "writer-a", "writer-a", "writer-b", "writer-b"]
    assert stopped == sorted(["expander", "housekeeper", "relay-0", "ticker", *apart])


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, 130)])
def test_a_signal_before_everything_has_landed_is_no_success(cli: Cli, number: signal.Signals, code: int) -> None:
    cli("follow", 1, "--user", 2)
    shutil.rmtree(cli.home / "data" / "b")  # whose writer waits for it
    process = cli.spawn("work", "--until-idle")
    eventually(lambda: cli.json("status", code=None)["worker"], "the worker runs")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == code
    assert stderr.decode().splitlines()[-1].startswith("Error: stopped before everything had landed")


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_ends_a_rebuild_that_still_reads_the_clusters(filled: Cli, number: signal.Signals, code: int) -> None:
    # What starts the tests may ignore Ctrl-C, and its children with it.
    program = """
import signal
import time
from workers.app import rebuild
from workers.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
def needs_new(*_):
    print("reads", flush=True)
    while True:  # A signal that arrives just before a sleep is handled after it.
        time.sleep(0.05)
rebuild.needs_new = needs_new
main()
"""
    process = filled.spawn("rebuild", "--all", program=program)
    try:
        assert process.stdout.readline() == b"reads\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == code
    filled("rebuild", "--all")
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_rule_12_a_writer_that_is_killed_stops_the_worker_with_its_name(filled: Cli) -> None:
    with filled.worker() as worker:
        os.kill(writer_pid(worker.pid, "b"), signal.SIGKILL)
        _, stderr = worker.communicate(timeout=60)

    assert worker.returncode == 1
    assert stderr.decode().splitlines()[-1] == "Error: writer-b: ProcessEndedError: killed by SIGKILL"
    filled("save-pin", 50, "--owner", 2, "--board", 20, "--created-ms", 5_000)
    filled.work()
    assert filled.export("b")[1][0] == [50, 5_000]


@pytest.mark.processes
def test_writers_end_when_the_worker_that_started_them_is_killed(filled: Cli) -> None:
    with filled.worker() as worker:
        writers = [writer_pid(worker.pid, name) for name in ("a", "b")]
        worker.kill()
        worker.wait(60)
        eventually(lambda: not any(runs(pid) for pid in writers), "both writers have ended")

    filled.work()
    assert "no difference" in filled("verify").stderr


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.processes
def test_logs_are_json_where_nobody_looks(cli: Cli) -> None:
    process = cli.spawn("work", "--until-idle")
    stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 0
    assert not stdout
    assert {"event", "level", "timestamp", "loop"} <= set(json.loads(stderr.decode().splitlines()[0]))
