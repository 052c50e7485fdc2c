"""The smoke: whatever happens to the drill, what was started is taken away. Clusters and engine are made up."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.docker import cli, engine, image, smoke
from deploy.docker.clusters import Clusters
from deploy.docker.engine import NoEngineError
from deploy.local.errors import StackError
from deploy.local.programs import EndedError


class World:
    """Notes what is done; `failing` names what raises which error."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: dict[str, Callable[[], BaseException]] = {}
        self.ignored_at_down: list[bool] = []
        self.unwatched: list[str] = []
        self.unchanged: list[str] = []

    def do(self, what: str) -> None:
        self.done.append(what)
        if (failure := self.failing.get(what)) is not None:
            raise failure()

    def run(self, program: Path, *words: Any, **_: Any) -> str:
        assert program.name == "feedctl"
        self.do(" ".join(map(str, words[2:4])))
        return ""

    def down(self) -> None:
        self.ignored_at_down = [
            signal.getsignal(each) == signal.SIG_IGN for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ]
        self.do("down")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(smoke.engine, "install", lambda: made.do("install"))
    monkeypatch.setattr(smoke.engine, "compose", lambda: ("docker-compose",))
    monkeypatch.setattr(smoke.engine, "try_out", lambda base: made.do(f"try out {base}"))
    monkeypatch.setattr(image, "ensure_base", lambda _: "base")
    monkeypatch.setattr(engine.Engine, "ensure", lambda *_: made.do("engine"))
    monkeypatch.setattr(engine.Engine, "stop", lambda *_: made.do("stop"))
    monkeypatch.setattr(Clusters, "refuse_those_of_another_home", lambda _: made.do("refuse"))
    monkeypatch.setattr(Clusters, "up", lambda _: made.do("up"))
    monkeypatch.setattr(Clusters, "unwatched", lambda _: made.unwatched)
    monkeypatch.setattr(Clusters, "unchanged", lambda *_: made.unchanged)
    monkeypatch.setattr(Clusters, "down", lambda _: made.down())
    monkeypatch.setattr(Clusters, "log", lambda _, name, lines: f"what {name} said")
    monkeypatch.setattr(smoke, "run", made.run)
    return made


ALL = ["install", "engine", "try out base", "refuse", "up", "init --stack", "drill run", "down", "stop"]


def test_what_it_started_is_taken_away(world: World, tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "feed.toml").touch()
    said: list[str] = []
    smoke.smoke(tmp_path, said.append)
    assert world.done == ALL
    assert not (tmp_path / "feed").exists()
    assert not any("log" in line for line in said)


def test_what_prometheus_does_not_see_fails_it_by_name(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "_WATCHED_S", 0.0)
    world.unwatched = ["http://writer-a:9464/metrics: connection refused"]
    with pytest.raises(StackError, match="writer-a"):
        smoke.smoke(tmp_path, lambda _: None)
    assert "drill run" not in world.done
    assert world.done[-2:] == ["down", "stop"]


def test_a_lost_host_that_prometheus_does_not_see_fails_it_by_name(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "_WATCHED_S", 0.0)
    world.unchanged = ["hbase_dead_region_servers"]
    with pytest.raises(StackError, match="hbase_dead_region_servers"):
        smoke.smoke(tmp_path, lambda _: None)
    assert world.done == ALL


def report(home: Path, **figures: int) -> None:
    (home / "feed" / "drills").mkdir(parents=True, exist_ok=True)
    text = json.dumps({"figures": {"missing": 0, "extra": 0, "differing": 0, **figures}})
    (home / "feed" / "drills" / "kill-host.json").write_text(text)


def test_a_drill_that_fails_once_is_tried_again(world: World, tmp_path: Path) -> None:
    def fail_once() -> BaseException:
        world.failing.clear()
        report(tmp_path, pages_failed=1)
        return EndedError("1 of 1 runs did not pass", 1)

    world.failing["drill run"] = fail_once
    smoke.smoke(tmp_path, lambda _: None)
    assert world.done.count("drill run") == 2


@pytest.mark.parametrize("lost", ["missing", "extra", "differing"])
def test_a_drill_that_lost_something_is_not_tried_again(world: World, tmp_path: Path, lost: str) -> None:
    def fail() -> BaseException:
        report(tmp_path, **{lost: 1})
        return EndedError("1 of 1 runs did not pass", 1)

    world.failing["drill run"] = fail
    with pytest.raises(StackError):
        smoke.smoke(tmp_path, lambda _: None)
    assert world.done.count("drill run") == 1


@pytest.mark.parametrize("what", ["up", "init --stack", "drill run"])
def test_a_failure_shows_the_logs_before_they_are_gone(world: World, tmp_path: Path, what: str) -> None:
    world.failing[what] = lambda: EndedError("not done", 1)
    with pytest.raises(StackError, match="not done"):
        smoke.smoke(tmp_path, world.done.append)
    assert world.done[-2:] == ["down", "stop"]
    assert world.done.index("what a-host-1 said") < world.done.index("down")


@pytest.mark.parametrize("what", ["up", "drill run"])
def test_ctrl_c_takes_everything_away_and_a_second_one_does_not_stop_that(
    world: World, tmp_path: Path, what: str
) -> None:
    world.failing[what] = KeyboardInterrupt
    # Tests that run in the background of a shell have SIGINT ignored already.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            smoke.smoke(tmp_path, lambda _: None)
        assert world.done[-2:] == ["down", "stop"]
        assert world.ignored_at_down == [True, True, True]
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_so_does_a_polite_kill(world: World, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def killed() -> BaseException:
        os.kill(os.getpid(), signal.SIGTERM)
        return AssertionError("nothing was done on SIGTERM")

    world.failing["drill run"] = killed
    with pytest.raises(SystemExit) as ended:
        smoke.smoke(tmp_path, lambda _: None)
    assert ended.value.code == 128 + signal.SIGTERM
    assert world.done[-2:] == ["down", "stop"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_engine_is_stopped_even_where_the_clusters_do_not_go(world: World, tmp_path: Path) -> None:
    world.failing["down"] = lambda: StackError("they stay")
    with pytest.raises(StackError, match="they stay"):
        smoke.smoke(tmp_path, lambda _: None)
    assert world.done[-1] == "stop"


def test_the_clusters_of_another_home_are_not_touched(world: World, tmp_path: Path) -> None:
    world.failing["refuse"] = lambda: StackError("those of somebody else")
    with pytest.raises(StackError, match="somebody else"):
        smoke.smoke(tmp_path, lambda _: None)
    assert "up" not in world.done
    assert "down" not in world.done
    assert world.done[-1] == "stop"


@pytest.mark.parametrize("command", ["ready", "smoke"])
@pytest.mark.parametrize("what", ["install", "engine", "try out base"])
def test_that_no_engine_can_run_here_has_a_status_of_its_own(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, what: str
) -> None:
    world.failing[what] = lambda: NoEngineError("no cgroups")
    assert cli.main([command, "--home", str(tmp_path)]) == 4
    assert capsys.readouterr().err.splitlines()[-1] == "error: no engine can run here: no cgroups"
    assert "up" not in world.done


@pytest.mark.parametrize("what", ["install", "refuse", "up", "drill run"])
def test_whatever_else_fails_is_a_failure(world: World, tmp_path: Path, what: str) -> None:
    world.failing[what] = lambda: StackError("no")
    assert cli.main(["smoke", "--home", str(tmp_path)]) == 1
