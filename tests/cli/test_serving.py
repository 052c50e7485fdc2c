"""feedctl serve and token: what hosts what, and where it refuses."""

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.http.http_servers import client_of, feedctl_serve


@pytest.mark.processes
def test_in_a_home_with_files_it_is_the_worker_too(cli: Cli):
    with feedctl_serve(cli) as (process, address), client_of(address) as client:
        assert cli.json("status", code=None)["worker"] == {"pid": process.pid, "stopped": None}
        assert "holds this home" in cli.process("work", code=3).stderr
        client.post("/v1/follows", {"follower": "1", "user": "2"})
        cli("save-pin", 7, "--owner", 2, "--board", 3)  # recorded by another process
        eventually(lambda: cli.feed(1) == [7], "it lands, and a second process sees it")
        assert [entry["pin"] for entry in client.get("/v1/users/1/feed")["entries"]] == ["7"]
    assert cli.json("status")["worker"] is None
    cli.work()  # what had not landed yet when it ended
    assert "no difference" in cli("verify").stderr


@pytest.mark.processes
def test_beside_a_worker_it_only_serves(cli: Cli):
    with cli.worker() as worker, feedctl_serve(cli) as (_, address), client_of(address) as client:
        client.post("/v1/follows", {"follower": "1", "user": "2"})
        client.post("/v1/pins", {"pin": "7", "owner": "2", "board": "3"})
        eventually(lambda: client.get("/v1/users/1/feed")["entries"], "the worker lands it, and the server sees it")
        both = {"a": True, "b": True}
        eventually(lambda: client.get("/v1/users/1/feed/7/why")["clusters"] == both, "it lands in both")
        assert client.get("/v1/status")["dead_letters"] == 0
        assert worker.poll() is None
    assert "that worker does the work, and this process only serves" in (cli.home.parent / "serve.log").read_text()


@pytest.mark.processes
def test_what_it_kept_is_there_after_a_kill(cli: Cli):
    with feedctl_serve(cli) as (process, address), client_of(address) as client:
        client.post("/v1/follows", {"follower": "1", "user": "2"})
        client.post("/v1/pins", {"pin": "7", "owner": "2", "board": "3"})
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
    cli.work()
    assert cli.feed(1) == [7]


@pytest.mark.processes
def test_tokens_are_made_shown_once_and_asked_for(cli: Cli):
    assert "http.tokens is not set" in cli("token", "new", "--name", "web", "--scope", "read", code=2).stderr
    assert "loopback" in cli("serve", "--host", "0.0.0.0", "--port", 0, code=2).stderr
    cli.change("# tokens =", "tokens =")
    assert "not found" in cli("serve", "--port", 0, code=2).stderr
    made = cli("token", "new", "--name", "web", "--scope", "read")
    token = made.stdout.strip()
    assert "open to this machine without a token until it is started again" in made.stderr
    second = cli("token", "new", "--name", "sre", "--scope", "operate", "--scope", "read")
    operator = second.stdout.strip()
    assert "started with this file load it within seconds" in second.stderr
    assert re.fullmatch(r"feed_[A-Za-z0-9_-]{43}", token)
    assert token not in (cli.home / "tokens.toml").read_text() + made.stderr
    assert "'web' already" in cli("token", "new", "--name", "web", "--scope", "read", code=2).stderr

    with feedctl_serve(cli, "--host", "0.0.0.0") as (_, address):
        port = address.rpartition(":")[2]
        with client_of(f"http://127.0.0.1:{port}", token, operator) as client:
            assert client.get("/v1/users/1/feed")["entries"] == []
            client.post("/v1/follows", {"follower": "1", "user": "2"}, 403)
            client.get("/v1/dead-letters", 403)
            assert client.operator.get("/v1/dead-letters").json() == {"letters": [], "after": None}
            assert httpx.get(f"http://127.0.0.1:{port}/v1/users/1/feed", timeout=DEADLINE_S).status_code == 401
    said = (cli.home.parent / "serve.log").read_text()
    assert token not in said
    assert operator not in said
    assert (cli.home / "cursor.key").read_text().strip() not in said


@pytest.mark.processes
def test_a_home_that_cannot_be_served_is_said(tmp_path: Path):
    cli = Cli(tmp_path / "home")
    assert "not found" in cli("serve", "--port", 0, code=2).stderr
    cli("init")
    (cli.home / "cursor.key").write_text("short")
    (cli.home / "cursor.key").chmod(0o600)
    assert "cursor.key" in cli("serve", "--port", 0, code=2).stderr


@pytest.mark.processes
def test_the_demonstration_can_end_by_being_served(tmp_path: Path):
    cli = Cli(tmp_path / "home")
    notes = tmp_path / "notes"
    with notes.open("wb") as stderr:
        process = cli.spawn("demo", "--users", 60, "--count", 1_500, "--seed", 7, "--serve", stderr=stderr)
    try:
        assert process.stdout is not None
        said = ""
        while not (address := re.search(r"http://\S+", said)):
            line = process.stdout.readline().decode()
            assert line, said
            said += line
        assert "Everything held" in said
        with client_of(address[0]) as client:
            users = [each for each in range(1, 61) if client.get(f"/v1/users/{each}/feed")["entries"]]
            assert users
            shown = re.search(r"/\?user=(\d+) and \S+/\?board=(\d+)", notes.read_text())
            assert shown, notes.read_text()
            assert int(shown[1]) in users
            assert client.get(f"/v1/boards/{shown[2]}/pins")["pins"]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    cli.work()  # pages that ended early asked for refills
    assert "no difference" in cli("verify").stderr
