"""The engine: used where one answers, started where none does, stopped only if it was started here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.docker import engine as engines
from deploy.docker.engine import Engine, NoEngineError
from deploy.local import processes
from deploy.local.errors import StackError
from deploy.local.programs import PROJECT

pytestmark = pytest.mark.processes

# Answers while somebody has left the file.
DOCKER = """#!/bin/sh
test -e {answers} || exit 1
echo 20.10, storage vfs, cgroups 1
"""
# Works with one storage driver only, and is known by its arguments, as the real one. Not through `env`: between its
# image and that of Python a process has no arguments for a moment.
DOCKERD = """#!{python}
import pathlib, signal, sys, time
if "--storage-driver={driver}" not in sys.argv:
    sys.exit("level=error msg=the driver is not supported here")
lock = pathlib.Path(sys.argv[sys.argv.index("--pidfile") + 1])
if lock.exists() and pathlib.Path("/proc", lock.read_text()).exists():
    sys.exit(f"level=error msg=process with PID {{lock.read_text()}} is still running")
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("{answers}").unlink(), sys.exit(0)))
pathlib.Path("{answers}").touch()
while True:  # A signal that arrives just before a sleep is handled after it.
    time.sleep(0.05)
"""

# Is not done with its start before somebody leaves the file.
SLOW_DOCKERD = """#!{python}
import time
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that lets the engine answer; without a dockerd."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = tmp_path / "answers"
    program(tmp_path, "docker", DOCKER.format(answers=path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return path


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "home")
    yield made
    made.stop(lambda _: None)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def dockerd(answers: Path, driver: str) -> None:
    program(answers.parent, "dockerd", DOCKERD.format(python=sys.executable, answers=answers, driver=driver))


def test_one_that_answers_is_used_and_never_stopped(answers: Path, engine: Engine) -> None:
    answers.touch()
    said: list[str] = []
    engine.ensure(said.append)
    assert said == ["engine: 20.10, storage vfs, cgroups 1"]
    assert not engine.is_ours()
    assert not engine.stop(said.append)
    assert engine.answers()


def test_it_is_started_with_the_first_driver_that_works_and_stopped_again(answers: Path, engine: Engine) -> None:
    dockerd(answers, engines.DRIVERS[-1])
    said: list[str] = []
    engine.ensure(said.append)
    assert [line for line in said if "starting" in line] == [
        f"engine: starting dockerd with the storage driver {driver}" for driver in engines.DRIVERS
    ]
    assert engine.is_ours()
    assert engine.stop(said.append)
    assert not engine.is_ours()
    assert not engine.answers()


def test_the_process_id_of_an_engine_that_was_killed_may_be_somebody_elses_by_now(
    answers: Path, engine: Engine
) -> None:
    dockerd(answers, engines.DRIVERS[0])
    (engine.home / "engine").mkdir(parents=True)
    (engine.home / "engine" / "dockerd.lock").write_text(str(os.getpid()))
    engine.ensure(lambda _: None)
    assert engine.is_ours()


def test_where_no_driver_works_it_says_what_each_said(answers: Path, engine: Engine) -> None:
    dockerd(answers, "none")
    with pytest.raises(NoEngineError) as refused:
        engine.ensure(lambda _: None)
    for driver in engines.DRIVERS:
        assert f"--storage-driver={driver}" in str(refused.value)
    assert "the driver is not supported here" in str(refused.value)
    assert processes.find(engine.home / "engine" / "dockerd.pid", f"--label=feedstore.home={engine.home}") is None


def test_one_that_is_slow_to_answer_keeps_its_storage_driver(
    answers: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a power cut it starts the clusters' containers first. With another driver it would have none of them.
    monkeypatch.setattr(engines, "_READY_S", 0.0)
    program(answers.parent, "dockerd", SLOW_DOCKERD.format(python=sys.executable))
    said: list[str] = []
    with pytest.raises(StackError, match="does not answer yet") as refused:
        engine.ensure(said.append)
    assert not isinstance(refused.value, NoEngineError)
    assert said == [f"engine: starting dockerd with the storage driver {engines.DRIVERS[0]}"]
    assert engine.is_ours()
    answers.touch()
    engine.ensure(said.append)
    assert said[1:] == ["engine: 20.10, storage vfs, cgroups 1"]


@pytest.mark.usefixtures("answers")
def test_who_is_not_root_is_told_what_to_do(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoEngineError, match="systemctl start docker"):
        engine.ensure(lambda _: None)


@pytest.mark.usefixtures("answers")
def test_an_engine_elsewhere_is_not_replaced_by_one_here(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(StackError, match="DOCKER_HOST") as refused:
        engine.ensure(lambda _: None)
    # Somebody says that there is one: that it does not answer is a fault, not a machine without engines.
    assert not isinstance(refused.value, NoEngineError)


def test_an_engine_that_runs_no_containers_is_none(answers: Path) -> None:
    program(answers.parent, "docker", "#!/bin/sh\necho cgroups: mount point does not exist >&2; exit 125\n")
    with pytest.raises(NoEngineError, match="cgroups: mount point does not exist"):
        engines.try_out("base")
    program(answers.parent, "docker", "#!/bin/sh\nexit 0\n")
    engines.try_out("base")


def test_that_nothing_may_be_installed_is_told_from_a_failed_installation(tmp_path: Path) -> None:
    def status() -> int:
        install = PROJECT / "deploy" / "docker" / "install"
        done = subprocess.run([install], env={"PATH": str(tmp_path)}, capture_output=True, check=False)
        return done.returncode

    for name in ("bash", "sort", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    assert status() == engines.CANNOT_BE_HERE
    program(tmp_path, "apt-get", "#!/bin/sh\nexit 100\n")
    (tmp_path / "id").unlink()
    program(tmp_path, "id", "#!/bin/sh\necho 1000\n")
    assert status() == engines.CANNOT_BE_HERE
    program(tmp_path, "id", "#!/bin/sh\necho 0\n")
    assert status() == 100


def test_what_makes_a_base_image_is_demanded_only_by_the_one_who_needs_it(tmp_path: Path) -> None:
    """The base image may be there, or come from a registry."""
    install = PROJECT / "deploy" / "docker" / "install"
    for name in ("bash", "sort", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    for name in ("docker", "dockerd", "docker-compose", "iptables"):
        program(tmp_path, name, "#!/bin/sh\nexit 1\n")
    statuses = [
        subprocess.run([install, *words], env={"PATH": str(tmp_path)}, capture_output=True, check=False).returncode
        for words in ([], ["debootstrap"], ["docker"])
    ]
    assert statuses == [0, engines.CANNOT_BE_HERE, 0]


@pytest.mark.parametrize("script", ["docker", "local"])
def test_packages_are_installed_from_old_lists_if_there_are_no_new_ones(tmp_path: Path, script: str) -> None:
    for name in ("bash", "sort", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    for name in ("promtool", "prometheus"):
        program(tmp_path, name, "#!/bin/sh\n")
    program(tmp_path, "id", "#!/bin/sh\necho 0\n")
    program(tmp_path, "apt-get", f"#!/bin/sh\necho $1 >>{tmp_path}/asked\n[ $1 = install ]\n")
    install = PROJECT / "deploy" / script / "install"
    done = subprocess.run([install], env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert (done.returncode, (tmp_path / "asked").read_text().split()) == (0, ["update", "install"])
