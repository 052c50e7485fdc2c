"""The supervisor of a container, as a process that runs real ones."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.docker.supervisor import ASK_S, restart_delay_s
from tests.cli.command import eventually

pytestmark = pytest.mark.processes

PROGRAM = """
import sys
from deploy.docker.supervisor import SupervisedProcess, Supervisor
places = [("127.0.0.1", int(port)) for port in sys.argv[2:]]
needed = {"needs": places} if len(places) < 2 else {"needs_some": (2, places)}
after = [sys.executable, "-c", "import sys; print('run after it', file=sys.stderr)"]
server = SupervisedProcess("server", [sys.executable, "-c", sys.argv[1]], lambda: None, after=after, **needed)
other = SupervisedProcess("other", ["sleep", "1000"], lambda: None)
Supervisor([server, other], 0.05).run()
"""
DEAF_LAST = """
import sys
from deploy.docker import supervisor
from deploy.docker.supervisor import SupervisedProcess, Supervisor
supervisor.STOP_S = 4.0
tidy = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), sys.exit(0)));"
deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
# Short sleeps: a signal that arrives just before one is handled after it.
lasts = "\\nwhile True: time.sleep(0.05)"
def process(name, does):
    program = f"{does} print('{name} hears', file=sys.stderr){lasts}"
    return SupervisedProcess(name, [sys.executable, "-c", program], lambda: None)
Supervisor([process("tidy", tidy), process("deaf", deaf)], 0.05).run()
"""
LASTS = "import time; time.sleep(1000)"


class Running:
    """A supervisor and what it says."""

    def __init__(self, log: Path, *words: str, program: str = PROGRAM) -> None:
        self._log = log
        with log.open("w") as out:
            self.process = subprocess.Popen([sys.executable, "-c", program, *words], stderr=out)

    def lines(self, part: str) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if part in line]

    def until(self, part: str, count: int = 1) -> list[str]:
        eventually(lambda: len(self.lines(part)) >= count, part)
        return self.lines(part)

    def pid(self, name: str) -> int:
        return int(self.until(f"{name}: started, process ")[-1].split("process ")[1].split(",")[0])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def make(*words: str, program: str = PROGRAM) -> Running:
        started.append(Running(tmp_path / f"log{len(started)}", *words, program=program))
        return started[-1]

    yield make
    for each in started:
        each.process.terminate()
        each.process.wait(timeout=30)


def test_what_dies_is_started_again_and_the_rest_is_left_alone(start: Callable[..., Running]) -> None:
    running = start(LASTS)
    first, other = running.pid("server"), running.pid("other")
    os.kill(first, signal.SIGKILL)
    running.until("server: ended by SIGKILL")
    running.until("server: started", 2)
    assert running.pid("server") != first
    assert is_alive(running.pid("server"))
    assert running.pid("other") == other
    assert is_alive(other)


def test_what_is_to_be_done_after_an_end_is_done_each_time_and_for_that_server_only(
    start: Callable[..., Running],
) -> None:
    running = start(LASTS)
    for times in (1, 2):
        os.kill(running.pid("server"), signal.SIGKILL)
        running.until("run after it", times)
        running.until("server: started", times + 1)
    os.kill(running.pid("other"), signal.SIGKILL)
    running.until("other: started", 2)
    assert len(running.lines("run after it")) == 2


def test_it_waits_for_what_a_server_needs(start: Callable[..., Running]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        running = start(LASTS, str(listener.getsockname()[1]))
        running.until("other: started")
        assert running.lines("server: started") == []
        listener.listen()
        running.until("server: started")


def test_it_waits_for_so_many_of_a_group_whichever_they_are(start: Callable[..., Running]) -> None:
    with contextlib.ExitStack() as open_ones:
        listeners = [open_ones.enter_context(socket.socket()) for _ in range(3)]
        for each in listeners:
            each.bind(("127.0.0.1", 0))
        listeners[2].listen()
        running = start(LASTS, *(str(each.getsockname()[1]) for each in listeners))
        running.until("other: started")
        assert running.lines("server: started") == []
        listeners[0].listen()
        running.until("server: started")


def test_one_that_was_suspended_while_a_server_waits_goes_on(start: Callable[..., Running]) -> None:
    """As by a debugger, or where a container is paused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        running = start(LASTS, str(listener.getsockname()[1]))
        running.until("other: started")
        running.process.send_signal(signal.SIGSTOP)
        resumed_s = time.monotonic() + 3 * ASK_S
        eventually(lambda: time.monotonic() > resumed_s, "what it waits for is over meanwhile")
        running.process.send_signal(signal.SIGCONT)
        listener.listen()
        running.until("server: started")
    assert running.process.poll() is None


def test_it_ends_what_it_started(start: Callable[..., Running]) -> None:
    running = start(LASTS)
    pids = [running.pid("server"), running.pid("other")]
    running.process.terminate()
    assert running.process.wait(timeout=30) == 0
    assert not any(is_alive(pid) for pid in pids)


def test_one_that_does_not_end_leaves_the_others_their_time(start: Callable[..., Running]) -> None:
    """A region server that hangs must not cost the DataNode its orderly end."""
    running = start(program=DEAF_LAST)
    running.until("tidy hears")
    running.until("deaf hears")
    running.process.terminate()
    assert running.process.wait(timeout=30) == 0
    assert running.lines("tidy: ended with status 0")


def test_what_its_children_leave_behind_is_no_end_of_a_server(start: Callable[..., Running]) -> None:
    orphan = "import subprocess, time; subprocess.Popen(['sleep', '0']); time.sleep(1000)"
    running = start(orphan)
    pid = running.pid("server")
    os.kill(running.pid("other"), signal.SIGKILL)
    running.until("other: started", 2)
    assert running.pid("server") == pid


def test_a_server_that_does_not_last_is_started_ever_less_often() -> None:
    assert [restart_delay_s(1.0, lives, is_alone=False) for lives in range(6)] == [1, 1, 2, 4, 8, 15]
    assert restart_delay_s(20.0, 9, is_alone=False) == 20


def test_a_server_that_has_not_lasted_for_days_is_still_started_again() -> None:
    assert restart_delay_s(1.0, 1_000_000, is_alone=False) == 15


def test_what_nobody_takes_the_place_of_is_started_again_at_once() -> None:
    assert [restart_delay_s(10.0, lives, is_alone=True) for lives in range(6)] == [1, 1, 2, 4, 8, 15]
    assert restart_delay_s(10.0, 1, is_alone=False) == 10
    # A test that asks for quick restarts gets them everywhere.
    assert restart_delay_s(0.2, 1, is_alone=True) == 0.2
