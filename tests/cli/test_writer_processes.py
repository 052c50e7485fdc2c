"""The processes of the writers, by themselves: each test forks in a process that has no threads."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import COMMAND_S, Cli, eventually, writer_pid
from tests.cli.template import run
from workers.app import home

pytestmark = pytest.mark.processes


def said(home: Path, program: str) -> str:
    """What a program prints. It has a home's `config`, and everything of `writer_process`."""
    before = """
        import os, signal, sys, threading
        from pathlib import Path
        from feedstore.app import config as configuration
        from workers.app.writer_process import NoProcessError, ProcessEndedError, forked

        def children():
            return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]

        config = configuration.load(Path(sys.argv[1]), {})
    """
    done = run(dedent(before) + dedent(program), home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_that_was_not_told_to_begin_opens_nothing_and_ends(empty: Cli) -> None:
    empty("init")
    found = said(
        empty.home,
        """
        os.chmod(config.home, 0)
        with forked(config, "error") as writers:
            names = [each.name for each in writers]
            still = [each.step() for each in writers]
        os.chmod(config.home, 0o700)
        print(names, still)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            print("none is left")
        """,
    )
    assert found == "['writer-a', 'writer-b'] [True, True]\nnone is left\n"


def test_none_is_forked_from_a_process_with_threads(empty: Cli) -> None:
    empty("init")
    found = said(
        empty.home,
        """
        ends = threading.Event()
        threading.Thread(target=ends.wait, name="another").start()
        try:
            with forked(config, "error"):
                print("forked")
        except NoProcessError as error:
            print("another" in str(error))
        ends.set()
        """,
    )
    assert found == "True\n"


def test_none_is_forked_from_a_process_in_which_a_cluster_was_open(cli: Cli) -> None:
    """Its library still has threads, though Python has none."""
    found = said(
        cli.home,
        """
        from workers.app import wiring
        ports = wiring.open_ports(config, "write")
        wiring.refuse_unsafe(ports, config, ["a"])
        ports.close()
        print(threading.active_count())
        try:
            with forked(config, "error"):
                print("forked")
        except NoProcessError:
            print("refused")
        """,
    )
    assert found == "1\nrefused\n"


def test_one_that_ends_before_it_is_told_to_begin_says_how(empty: Cli) -> None:
    empty("init")
    found = said(
        empty.home,
        """
        with forked(config, "error") as [a, b]:
            os.kill(children()[-1], signal.SIGKILL)
            while True:
                try:
                    b.step()
                except ProcessEndedError as error:
                    print(error)
                    break
            b.begin(None)
            print(a.step())
        """,
    )
    assert found == "killed by SIGKILL\nTrue\n"


@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_where_no_process_can_be_started_the_command_says_so(cli: Cli, call: str) -> None:
    program = (
        "import os, errno\n"
        "def refused(): raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        f"os.{call} = refused\n"
        "from workers.cli import main; main()"
    )
    process = cli.spawn("work", "--until-idle", program=program)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stderr.decode().splitlines()[-1] == (
        "Error: no process for the writer of a: Resource temporarily unavailable: end others, or raise its limit"
    )


def test_a_signal_between_the_fork_and_the_first_line_of_a_writer_ends_only_its_parent(empty: Cli) -> None:
    empty("init")
    found = said(
        empty.home,
        """
        fork, parent = os.fork, os.getpid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests were started

        def interrupted():
            pid = fork()
            os.kill(os.getpid(), signal.SIGINT)  # in both
            return pid

        os.fork = interrupted
        try:
            with forked(config, "error"):
                print("begun")
        except KeyboardInterrupt:
            print("interrupted", os.getpid() == parent, children())
        """,
    )
    assert found == "interrupted True []\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_what_ends_a_worker_and_is_sent_to_its_writers_too_is_left_to_the_worker(empty: Cli, name: str) -> None:
    empty("init")
    found = said(
        empty.home,
        f"""
        with forked(config, "error") as writers:
            os.kill(children()[0], signal.{name})
            print([each.step() for each in writers])
        """,
    )
    assert found == "[True, True]\n"


def test_a_process_that_was_started_with_the_ends_of_children_ignored_waits_for_its_writers(cli: Cli) -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "again = 'from workers.cli import main; main()'\n"
        "os.execv(sys.executable, [sys.executable, '-c', again, *sys.argv[1:]])"
    )
    cli("follow", 1, "--user", 2)
    process = cli.interpreter("work", "--until-idle", program=program)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr.decode()


def test_the_output_of_a_worker_ends_with_it_whatever_its_writers_do(empty: Cli) -> None:
    empty("init")
    found = said(
        empty.home,
        """
        with forked(config, "error") as writers:
            for pid in children():
                while Path(f"/proc/{pid}/comm").read_text().strip() not in {"writer-a", "writer-b"}:
                    os.sched_yield()
                print(os.readlink(f"/proc/{pid}/fd/1"))
        """,
    )
    assert found == "/dev/null\n/dev/null\n"


def test_a_writer_outlives_the_rounds_of_a_repair(filled: Cli) -> None:
    found = said(
        filled.home,
        """
        with forked(config, "error") as writers:
            for _ in range(2):
                for each in writers:
                    each.begin(None)
                    assert each.step()
                    each.close()
            print(all(each.step() for each in writers))
        """,
    )
    assert found == "True\n"


@pytest.mark.parametrize("command", [("rebuild", 1), ("repair",)])
def test_a_command_says_that_it_runs_while_its_writers_end(filled: Cli, command: tuple[object, ...]) -> None:
    program = dedent(
        """
        import threading
        from workers.app.writer_process import WriterProcess
        from workers.cli import main, output

        output._SILENT_S = output._LINE_S = output._LOOK_S = 0.01
        ending, said, wait, show = threading.Event(), threading.Event(), WriterProcess.wait, output.ProgressLine.show

        def waits(self, end_s):
            ending.set()
            assert said.wait(60), "nothing was said"
            wait(self, end_s)

        def shows(self, *what):
            show(self, *what)
            if ending.is_set():
                said.set()

        WriterProcess.wait, output.ProgressLine.show = waits, shows
        main()
        """
    )
    process = filled.spawn(*command, program=program)
    _, stderr = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, stderr.decode()


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is missing (procps)")
def test_they_are_found_as_the_pages_and_the_message_say(cli: Cli) -> None:
    """Their command line is that of their worker."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    commands = re.findall(r"`(pgrep [^`]*)`", text)
    with home.worker_lock(cli.home):
        (cli.home / home.LOCK_NAME).write_text(f"{2**22}\n")  # no process has this number
        commands += re.findall(r"pgrep .*writer-", cli("work", code=3).stderr)
    assert len(commands) == 3

    with cli.worker() as worker:
        writers = {str(writer_pid(worker.pid, cluster)) for cluster in "ab"}
        for command in commands:
            found = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
            assert writers <= set(found.stdout.split()), command


def test_one_that_hangs_ends_with_a_worker_that_was_killed(cli: Cli) -> None:
    """Its step would never end, and it would hold the home and the files of its cluster."""

    def is_free() -> bool:
        with suppress(home.HomeBusyError), home.worker_lock(cli.home):
            return True
        return False

    worker = cli.spawn("work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    writer = writer_pid(worker.pid, "b")
    os.kill(writer, signal.SIGSTOP)
    try:
        worker.kill()
        worker.wait(COMMAND_S)
        eventually(is_free, "the home is free")
    finally:
        with suppress(ProcessLookupError):
            os.kill(writer, signal.SIGKILL)
    cli.process("work", "--until-idle")
