"""A measurement that cannot be taken says so; it neither waits for ever nor counts what was not done."""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from bench import children, command, faults, paced, report, siege, storm, stream_framework
from bench import hbase as hbase_bench
from bench.children import Child, ChildError, answering, child, without_settings
from bench.context import Context
from bench.deliveries import Deliveries
from bench.measurements import MEASUREMENTS, boards, http
from bench.ours import make_home
from bench.redis_server import MissingServerError, redis_server
from bench.results import Row
from bench.stack import arriving, trim
from feedstore.follows import sqlite_boards
from tests.cli.command import eventually
from tests.cli.template import Forked


class BrokenError(Exception):
    """The server has gone."""


def broken(_: object) -> None:
    raise BrokenError


def test_pages_during_what_has_failed_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    reader: Any = SimpleNamespace(page=lambda *_: None)
    monkeypatch.setattr(trim.ours, "pages_of", lambda *_: reader)
    feeds: Any = [SimpleNamespace(user=1)]
    place: Any = None
    with pytest.raises(BrokenError):
        trim._pages(place, feeds, lambda: broken(None))


def test_faults_are_not_found_beside_a_recording_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def record(*_: object) -> None:
        failed.set()
        raise BrokenError

    monkeypatch.setattr(faults.Round, "_record", record)
    the = faults.Round(make_home(tmp_path / "home").home, users=3, seed=1)
    with pytest.raises(BrokenError), the.recording(rate=1e6, seconds=60.0):
        assert failed.wait(60)


def test_a_look_at_a_server_that_fails_is_no_memory_that_did_not_grow() -> None:
    watch = siege.Watch(SimpleNamespace(memory_info=lambda: broken(None)))  # type: ignore[arg-type]
    with pytest.raises(BrokenError), siege.looking(watch.look, siege.LOOK_S):
        pass


@pytest.mark.processes
def test_a_server_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('http://h:1', flush=True)"
    monkeypatch.setattr(children, "STOP_S", 0.1)
    with http.serving([sys.executable, "-c", f"{deaf}; time.sleep(600)"], tmp_path / "log") as server:
        pass
    assert not server.process.is_running()


@pytest.mark.processes
def test_a_process_that_has_ended_is_said_to_have_ended(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nread line\necho '{}'\n")
    python.chmod(0o755)
    framework = stream_framework.stream_framework(str(python), 1, Deliveries(), 1, tmp_path / "framework.log")
    with pytest.raises(ChildError, match="framework: it ended"), framework as it:  # noqa: PT012 - it is said again at the end
        it._child.process.wait()
        it.seconds()


@pytest.mark.processes
def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    deaf = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ChildError, match="no answer"), answering(deaf, tmp_path / "deaf.log", 0.1) as child:
        child.ask("anything")


@pytest.mark.processes
def test_faults_are_not_found_beside_a_worker_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the = faults.Round(make_home(tmp_path / "home").home, users=3, seed=1)
    monkeypatch.setattr(faults.ours, "feedctl", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(AssertionError, match="ended by itself, with 3"), the.worker() as process:
        process.wait()


@pytest.mark.processes
def test_a_client_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    server = http.Server("http://127.0.0.1:1", psutil.Process())
    with pytest.raises(subprocess.CalledProcessError):
        http.load(server, connections=1, count=1, paths=["/"])
    assert "ConnectionRefusedError" in capfd.readouterr().err


def test_a_watermark_that_does_not_come_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storm, "TIMEOUT_S", 0.0)
    with pytest.raises(TimeoutError, match="cluster a"):
        storm._wait_for(make_home(tmp_path / "home"), 1, cast("Child", SimpleNamespace(refuse_ended=lambda: None)))


def test_a_worker_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('no room')"]
    config, nothing = make_home(tmp_path / "home"), SimpleNamespace(entries=())
    service: Any = SimpleNamespace(page=lambda *_: nothing)
    follows: Any = SimpleNamespace(record=lambda _: None)
    with child(words, tmp_path / "log", watched=False) as worker:
        worker.process.wait(60)
        with pytest.raises(ChildError, match="exit status 1\nno room"):
            storm.shown_s(service, follows, 1, worker)
        with pytest.raises(ChildError, match="exit status 1\nno room"):
            storm._wait_for(config, 1, worker)


def test_variables_of_the_caller_are_no_settings_of_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"FEED_FEED_CAP", "FEED_MYSQL_PASSWORD", "FEEDBACK"}
    for name in names:
        monkeypatch.setenv(name, "7")
    without_settings()
    assert names - os.environ.keys() == {"FEED_FEED_CAP"}


def test_an_answer_that_is_none_does_not_fail_the_pages_after_it() -> None:
    body = json.dumps({"served_by": "a"}).encode()
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    answers = [b"no answer\r\n\r\n", head + body]
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(65_536)
                    client.sendall(answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        ask = paced.through_http(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Exception, match="no answer"):
            ask(1)
        assert ask(1) == "a"
        serving.join(60)


def test_what_boards_add_to_an_index_write_can_be_left_out() -> None:
    nowhere: Any = None
    with boards._without_boards():
        sqlite_boards.drop(nowhere, [(1, 2)])
        sqlite_boards.end_quiet(nowhere, [1])


def test_a_stream_of_writes_that_fails_is_no_rate() -> None:
    store: Any = SimpleNamespace(apply=broken)
    with pytest.raises(BrokenError):
        hbase_bench.written(store, [hbase_bench.backfill(number) for number in range(4)], streams=2)


@pytest.mark.processes
def test_a_replay_that_takes_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(arriving, "feedctl", lambda *_: deaf)
    config: Any = SimpleNamespace(home=tmp_path)
    with arriving.arriving(config, tmp_path / "log", per_s=1.0):
        pass


@pytest.fixture
def _in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is for a whole process, which this one is not."""
    monkeypatch.setattr(command.structlog, "configure", lambda **_: None)


@pytest.mark.usefixtures("_in_a_test")
def test_a_measurement_that_needs_no_redis_is_taken_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    def compared(_: Context) -> list[Row]:
        with redis_server(tmp_path / "redis"):
            raise AssertionError

    def alone(_: Context) -> list[Row]:
        return [Row("what", "s", (1.0,))]

    both: dict[str, command.Measurement] = {"compared": compared, "alone": alone}

    def run(options: argparse.Namespace, out: Path, scratch: Path) -> int:
        return command.measure(options, command.context(options, out, scratch), out, both)

    parsed = command.parser("bench", None, both, str(tmp_path / "out"))
    monkeypatch.setattr(sys, "argv", ["bench", "--size", "10", "--out", str(tmp_path / "out")])
    assert command.main(command.options(parsed), run) == 1
    said = capsys.readouterr()
    assert MissingServerError.__name__ in said.out
    assert "could not be measured: compared\n" in said.err


@pytest.mark.usefixtures("_in_a_test")
def test_what_a_killed_bench_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A container gives the next process the number of the one before.
    for name in (f"scratch-{os.getpid()}/home", f"scratch-{2**30}", "scratch-notes", f"scratch-{os.getppid()}"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path)])
    parsed = command.parser("bench", None, {}, "unused")
    seen: list[list[Path]] = []

    def run(_: argparse.Namespace, __: Path, scratch: Path) -> int:
        seen.append([*scratch.iterdir()])
        return 0

    assert command.main(command.options(parsed), run) == 0
    assert seen == [[]], "it began with an empty directory"
    assert {each.name for each in tmp_path.iterdir()} == {"scratch-notes", f"scratch-{os.getppid()}"}


@pytest.mark.processes
def test_what_a_bench_says_of_its_servers_does_not_keep_them_running_if_nothing_takes_it() -> None:
    unread, end = os.pipe()
    os.close(unread)
    say = "from bench.context import Context; Context(None, None, None, 1, True).say('stopped')"
    try:
        assert subprocess.run([sys.executable, "-c", say], stderr=end, timeout=60, check=False).returncode == 0
    finally:
        os.close(end)


@pytest.mark.processes
@pytest.mark.usefixtures("_in_a_test")
def test_the_servers_of_a_killed_bench_end_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, of_another = (tmp_path / f"scratch-{number}" / "home" for number in (2**30, os.getppid()))
    sleeps = "import time; time.sleep(600)"
    with ExitStack() as stack:
        servers = []
        for home in (left, of_another):
            home.mkdir(parents=True)
            words = [sys.executable, "-c", sleeps, f"--home={home}"]
            servers.append(stack.enter_context(subprocess.Popen(words)))
            stack.callback(servers[-1].kill)
        monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path)])
        assert command.main(command.options(command.parser("bench", None, {}, "unused")), lambda *_: 0) == 0
        assert [psutil.pid_exists(server.pid) for server in servers] == [False, True]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["board_clients", "crowds", "faults", "http_servers", "storm", "unfollows", "wide"])
def test_a_bench_that_is_ended_takes_away_what_it_has_made(tmp_path: Path, name: str) -> None:
    program = f"import runpy; runpy.run_module('bench.{name}', run_name='__main__')"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with Forked(["-c", program], env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            # In its folder: a folder that a signal meets while it is made stays, whatever the program does.
            eventually(lambda: [*tmp_path.glob("*/*")], "it has begun")
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("words", [("--size", "0"), ("--size", "-1"), ("--repeats", "0")])
def test_a_number_that_would_measure_nothing_is_refused(
    words: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit):
        command.options(command.parser("bench", None, {}, "unused"))
    assert f"{words[0]}: at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(("quick", "says"), [(True, True), (False, False)])
def test_a_table_of_a_quick_run_says_that_its_numbers_mean_nothing(quick: bool, says: bool) -> None:
    table = report.markdown([Row("what", "s", (1.0,))], {**report.machine(), "options": {"quick": quick}})
    assert ("its numbers mean nothing" in table) == says


def test_the_help_says_of_each_measurement_what_it_is() -> None:
    said = command.parser("bench", None, MEASUREMENTS, "unused").format_help()
    assert "  page             A page of 25 against Redis ZREVRANGE" in said
