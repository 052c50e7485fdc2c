"""Whose clusters run on an engine, and what is done to those of others: nothing. With a made-up engine."""

import json
import socket
import stat
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.docker import clusters as docker_clusters
from deploy.docker import container
from deploy.docker.clusters import Clusters
from deploy.docker.engine import Engine
from deploy.local.errors import StackError


class Docker:
    """Answers what is asked of the programs. homes: a line for each container. left: a line for each volume."""

    def __init__(self) -> None:
        self.homes: list[str] = []
        self.left: list[str] = []
        self.said = ""
        self.restarted: list[str] = []
        self.pruned: list[str] = []
        self.composed: list[tuple[str, ...]] = []

    def run(self, *words: Any, failed: str, env: Any = None) -> str:
        if words[:2] == ("docker", "ps"):
            return "".join(f"{home}\n" for home in self.homes)
        if words[:2] == ("docker", "volume"):
            return "".join(f"{home}\n" for home in self.left)
        if words[:3] == ("docker", "container", "prune"):
            self.pruned += words[3:]
            return ""
        if words[0] == "docker":
            self.restarted += words[2:] if words[1] == "restart" else ()
            return ""
        self.composed.append(tuple(str(word) for word in words[5:]))
        return self.said


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker()
    monkeypatch.setattr(docker_clusters, "run", made.run)
    monkeypatch.setattr(docker_clusters.engine, "compose", lambda: ("docker-compose",))
    monkeypatch.setattr(Engine, "answers", lambda _: True)
    return made


def test_the_clusters_of_another_home_are_left_alone(docker: Docker, tmp_path: Path) -> None:
    mine = Clusters(tmp_path / "mine", lambda _: None)
    docker.homes = ["/somebody/elses", "/somebody/elses", ""]
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        mine.up()
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        mine.down()
    assert docker.composed == []
    assert not mine.home.exists()


def test_the_data_that_another_home_left_is_not_taken_over(docker: Docker, tmp_path: Path) -> None:
    docker.left = ["/somebody/elses"]
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        Clusters(tmp_path / "mine", lambda _: None).up()
    assert docker.composed == []


def test_clusters_that_another_home_started_while_the_image_was_built_are_left_alone(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_clusters.image, "build", lambda _: docker.homes.append("/somebody/elses"))
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        Clusters(tmp_path / "mine", lambda _: None).up()
    assert docker.composed == []


def test_settings_that_there_are_not_are_refused_before_anything_is_started(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(docker_clusters.SITES, "default")
    with pytest.raises(StackError, match="tuned, defaults"):
        Clusters(tmp_path / "mine", lambda _: None).up()
    assert docker.composed == []


@pytest.mark.parametrize("homes", [[], ["", ""], ["mine", "mine"]])
def test_ones_own_are_taken_away(docker: Docker, tmp_path: Path, homes: list[str]) -> None:
    docker.homes = [home and str(tmp_path / home) for home in homes]
    Clusters(tmp_path / "mine", lambda _: None).down()
    ((*_, words),) = [docker.composed]
    assert "down" in words


def test_secrets_stay_as_long_as_an_engine_that_was_stopped_may_keep_the_data(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Clusters(tmp_path, lambda _: None)
    mine._write_secrets()
    with monkeypatch.context() as stopped:
        stopped.setattr(Engine, "answers", lambda _: False)
        with pytest.raises(StackError, match="make docker-ready"):
            mine.down()
    assert (tmp_path / "places.json").exists()
    mine.down()
    assert not (tmp_path / "places.json").exists()
    assert not any((tmp_path / "secrets").iterdir())


def test_a_token_does_not_outlive_the_data_that_knows_it(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Clusters(tmp_path, lambda _: None)
    mine._write_secrets()
    (tmp_path / "token").write_text("feed_secret\n")
    password = (tmp_path / "secrets" / "mariadb.password").read_text()

    def interrupted(*words: Any, **options: Any) -> str:
        if "down" in words:
            raise KeyboardInterrupt
        return docker.run(*words, **options)

    monkeypatch.setattr(docker_clusters, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mine.down()
    # The next `up` asks for a token, whether the home of the web is still there or not. The data keeps its password.
    assert not (tmp_path / "token").exists()
    assert (tmp_path / "secrets" / "mariadb.password").read_text() == password


def test_an_empty_password_starts_no_clusters(docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_clusters.image, "build", lambda _: None)
    mine = Clusters(tmp_path, lambda _: None)
    mine._write_secrets()
    (tmp_path / "secrets" / "mariadb.password").unlink()
    (tmp_path / "secrets" / "mariadb.password").touch()
    with pytest.raises(StackError, match=r"mariadb\.password is empty.*remove it"):
        mine.up()
    assert docker.composed == []


def test_with_no_engine_there_is_nothing_to_take_away_where_nothing_was_started(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "answers", lambda _: False)
    Clusters(tmp_path, lambda _: None).down()
    assert docker.composed == []


def test_a_token_is_made_as_long_as_none_is_written_down(docker: Docker, tmp_path: Path) -> None:
    mine = Clusters(tmp_path, lambda _: None)
    with pytest.raises(StackError, match="no token"):
        mine._set_up()
    docker.said = "feed_secret\n"
    mine._set_up()
    assert (tmp_path / "token").read_text() == "feed_secret\n"
    mine._set_up()
    names = [words[5:] for words in docker.composed]
    assert [len(each) for each in names] == [1, 1, 0]
    assert names[0] != names[1]
    assert docker.restarted == []


def test_a_web_that_runs_learns_of_its_new_token(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clusters, "_inspected", lambda _, wanted: dict.fromkeys(wanted, object()))
    docker.said = "feed_secret\n"
    Clusters(tmp_path, lambda _: None)._set_up()
    assert docker.restarted == ["feedstore-web"]


def test_a_set_up_removes_what_an_interrupted_one_left(docker: Docker, tmp_path: Path) -> None:
    docker.said = "feed_secret\n"
    Clusters(tmp_path, lambda _: None)._set_up()
    # Stopped containers of this service of this project, and no others.
    assert docker.pruned == [
        "--force",
        *("--filter", "label=com.docker.compose.project=feedstore"),
        *("--filter", "label=com.docker.compose.service=setup"),
    ]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_set_up_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    ran: list[str] = []

    def run(command: tuple[str, ...], **_: Any) -> Any:
        ran.append(command[1])
        return SimpleNamespace(returncode=0, stdout="feed_of_prometheus\n")

    monkeypatch.setenv("FEED_HOME", str(tmp_path))
    monkeypatch.setattr(container.roles, "TOKEN", tmp_path / "token")
    monkeypatch.setattr(container.subprocess, "run", run)
    if is_there:
        (tmp_path / "feed.toml").touch()
    init = [] if is_there else ["init"]
    assert container.main(["setup", "cluster-up-1"]) == 0
    assert ran == [*init, "token", "token"]
    assert (tmp_path / "token").read_text() == "feed_of_prometheus"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    ran.clear()
    assert container.main(["setup"]) == 0
    assert ran == init


def test_a_set_up_that_fails_has_printed_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What it printed is shown with the error.
    printed: list[str] = []

    def run(command: tuple[str, ...], **options: Any) -> Any:
        if "stdout" not in options:
            printed.append(command[1])
        is_of_prometheus = any(word.startswith("prometheus-") for word in command)
        return SimpleNamespace(returncode=int(is_of_prometheus), stdout="")

    monkeypatch.setenv("FEED_HOME", str(tmp_path))
    monkeypatch.setattr(container.roles, "TOKEN", tmp_path / "token")
    monkeypatch.setattr(container.subprocess, "run", run)
    assert container.main(["setup", "cluster-up-1"]) == 1
    assert printed == ["init"]


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e300", "ten"])
def test_a_time_between_restarts_that_no_supervisor_can_wait_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    began: list[Any] = []
    monkeypatch.setattr(container, "Supervisor", lambda *words: SimpleNamespace(run=lambda: began.append(words)))
    monkeypatch.setenv("FEED_RESTART_S", text)
    assert container.main(["mariadb"]) == 1
    assert f"FEED_CLUSTER_RESTART_S: expected seconds, from 0 to 86400, got '{text}'" in capsys.readouterr().err
    assert began == []


def test_a_server_that_ends_at_once_leaves_its_host_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Any] = []
    monkeypatch.setattr(container, "Supervisor", lambda *words: SimpleNamespace(run=lambda: began.append(words[1])))
    for text in ("0", "0.5"):
        monkeypatch.setenv("FEED_RESTART_S", text)
        assert container.main(["mariadb"]) == 0
    assert began == [0.1, 0.5]


def test_a_server_that_ends_at_each_start_is_not_waited_for(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = Clusters(Path("/home-of-a-test"), lambda _: None)
    restarts = {"a-control": iter(range(100, 200)), "relay": iter(range(0, 200, 20))}

    def inspected(_: Clusters, wanted: Sequence[str]) -> dict[str, Any]:
        return {name: docker_clusters._Container(next(restarts[name]), age_s=0.1) for name in wanted}

    monkeypatch.setattr(Clusters, "_inspected", inspected)
    monkeypatch.setattr(Clusters, "log", lambda *_: "ImportError: no such module")
    monkeypatch.setattr(docker_clusters, "run_check", lambda _: "it is restarting")
    monkeypatch.setattr(docker_clusters, "_ASK_S", 0.0)
    with pytest.raises(StackError, match=r"a-control: it ended 8 times.*\n.*ImportError"):
        clusters._wait(["relay", "a-control"], time.monotonic(), deadline_s=60)


def engine_says(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], memory: str, name: str = "relay") -> None:
    """There is one container. state: of it, as `docker inspect` has it. memory: as `docker stats` has it."""

    def run(*words: Any, failed: str) -> str:
        match words[1]:
            case "ps":
                return f"feedstore-{name}\n"
            case "inspect":
                return json.dumps([{"Name": f"/feedstore-{name}", "RestartCount": 7, "State": state}])
        return f"feedstore-{name} {memory}\n"

    monkeypatch.setattr(docker_clusters, "run", run)
    monkeypatch.setattr(Engine, "answers", lambda _: True)


LONG_AGO = "2026-01-01T00:00:00.123456789Z"


def test_a_worker_that_the_engine_will_start_again_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine waits longer before each restart, up to a minute: its start before that is long ago.
    state = {"Status": "restarting", "Running": True, "StartedAt": LONG_AGO}
    engine_says(monkeypatch, state, "0B / 0B")
    (relay,) = [each for each in Clusters(Path("/home-of-a-test"), [].append).status() if each.name == "relay"]
    assert (relay.state, relay.detail, relay.restarts) == ("not ready", "it ended, and is started again soon", 7)


@pytest.mark.parametrize(("memory", "in_bytes"), [("12.5MiB / 500MiB", 13_107_200), ("-- / --", 0)])
def test_a_container_whose_memory_is_not_known_is_shown_as_well(
    monkeypatch: pytest.MonkeyPatch, memory: str, in_bytes: int
) -> None:
    # It ends while the engine is asked.
    engine_says(monkeypatch, {"Status": "running", "StartedAt": LONG_AGO}, memory)
    (relay,) = [each for each in Clusters(Path("/home-of-a-test"), [].append).status() if each.name == "relay"]
    assert (relay.state, relay.memory_bytes) == ("ready", in_bytes)


def test_what_is_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": {"activeTargets": [], "groups": [1]}}')

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
        closed.close()
        monkeypatch.delenv("FEED_WEB_ADDRESS", raising=False)
        monkeypatch.setenv("FEED_WEB_PORT", str(server.server_port))
        monkeypatch.setattr(docker_clusters.names, "PROMETHEUS_LOOPBACK_PORT", server.server_port)
        engine_says(monkeypatch, {"Status": "running", "StartedAt": LONG_AGO}, "1MiB / 2MiB", name="web")
        clusters = Clusters(Path("/home-of-a-test"), [].append)
        (web,) = [each for each in clusters.status() if each.name == "web"]
        found = web.detail, clusters.unwatched()
        server.shutdown()
    assert found == ("", [])


@pytest.mark.parametrize(
    ("address", "port", "url"),
    [
        (None, None, "http://127.0.0.1:18080"),
        ("", "", "http://127.0.0.1:18080"),  # to Compose an empty variable is none
        ("0.0.0.0", "80", "http://127.0.0.1:80"),
        ("192.0.2.7", None, "http://192.0.2.7:18080"),
    ],
)
def test_the_web_is_asked_where_it_is_published(
    monkeypatch: pytest.MonkeyPatch, address: str | None, port: str | None, url: str
) -> None:
    asked: list[str] = []
    for name, value in (("FEED_WEB_ADDRESS", address), ("FEED_WEB_PORT", port)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    monkeypatch.setattr(docker_clusters.probes, "http_answer", lambda at, _: asked.append(at))
    engine_says(monkeypatch, {"Status": "running", "StartedAt": LONG_AGO}, "1MiB / 2MiB", name="web")
    Clusters(Path("/home-of-a-test"), [].append).status()
    assert asked == [f"{url}/readyz"]
