"""A command line for tests: in this process where that is enough, in one of its own where processes matter."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from click.testing import CliRunner, Result

from feedstore.app import config as configuration
from tests.cli.template import Forked
from workers.app import wiring
from workers.app.home import private, worker_lock
from workers.cli import main
from workers.cli.session import BUG, Session
from workers.cli.signals import Stop
from workers.cli.work import all_idle, run_until
from workers.following.ports import Ports

FEEDCTL = "from workers.cli import main; main()"
"""What an interpreter runs as feedctl."""
DEADLINE_S = 60.0
COMMAND_S = 600.0


def eventually(holds: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """What `holds` returns, once that is true. Between two looks it rests for twice as long as a look takes: what it
    waits for needs the processors too.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        began = time.monotonic()
        if found := holds():
            return found
        now = time.monotonic()
        assert now < deadline, f"timed out waiting for: {what}"
        time.sleep(min(0.5, max(0.02, 2 * (now - began))))


def has_ended(process: psutil.Process) -> bool:
    """Whether a process that may be no child of this one has ended."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # not every init takes those away
    return True


def writer_pid(worker: int, cluster: str) -> int:
    """The process that a worker has forked for a cluster."""

    def found() -> list[int]:
        # Its first thread forks them. Others may end while they are looked at.
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        return [int(each) for each in children if Path(f"/proc/{each}/comm").read_text() == f"writer-{cluster}\n"]

    [pid] = eventually(found, f"the writer of {cluster} runs")
    return int(pid)


@dataclass(frozen=True)
class Cli:
    """feedctl on one home."""

    home: Path

    def __call__(self, *words: object, code: int | None = 0, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, ["--home", str(self.home), *map(str, words)], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code != BUG, result.stderr
        if code is not None:
            assert result.exit_code == code, f"{words}: exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    def process(self, *words: object, code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        """A command that forks, in a process of its own: `work`, `rebuild`, `repair`."""
        process = self.spawn(*words, text=True)
        stdout, stderr = process.communicate(timeout=COMMAND_S)
        if code is not None:
            assert process.returncode == code, f"{words}: exit {process.returncode}\n{stdout!s}\n{stderr!s}"
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def hint(self, command: str) -> str:
        """A command as this home's messages name it, to be copied."""
        return f"feedctl --home {shlex.quote(str(self.home))} {command}"

    def json(self, *words: object, code: int | None = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).stdout.splitlines()[-1])

    def feed(self, user: int) -> list[int]:
        return [pin for pin, _ in self.json("feed", user, "--limit", 1000)["entries"]]

    def export(self, cluster: str) -> dict[int, list[list[int]]]:
        lines = [json.loads(line) for line in self("export", "--cluster", cluster).stdout.splitlines()]
        return {line["user"]: line["entries"] for line in lines}

    def work(self) -> None:
        """Works until everything has landed, as `feedctl work --until-idle` does but in this process: a test of that
        command calls the command.
        """
        config = configuration.load(self.home, os.environ)
        with private(), worker_lock(config.home), closing(wiring.open_ports(config, "write")) as ports:
            session, worker = Session(self.home, "error"), wiring.worker(ports, config)
            run_until(session, all_idle(session, ports, worker), ports, worker, Stop())

    def set(self, key: str, value: str) -> None:
        """Changes a line of feed.toml."""
        file = self.home / configuration.FILE_NAME
        text, count = re.subn(rf"^{key} = \S+", f"{key} = {value}", file.read_text(), flags=re.MULTILINE)
        assert count == 1
        file.write_text(text)

    def change(self, old: str, new: str) -> None:
        """Changes a text of feed.toml."""
        file = self.home / configuration.FILE_NAME
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def add(self, sections: str) -> None:
        """Adds sections to feed.toml."""
        with (self.home / configuration.FILE_NAME).open("a") as file:
            file.write(sections)

    @contextmanager
    def ports(self, **arguments: Any) -> Iterator[Ports]:
        config = configuration.load(self.home, {})
        with closing(wiring.open_ports(config, arguments.pop("access", "read"), **arguments)) as ports:
            yield ports

    def spawn(self, *words: object, program: str | None = None, **popen: Any) -> subprocess.Popen[Any]:
        """In a process of its own. program: what runs there instead of feedctl."""
        return self._started(Forked, ["feedctl"] if program is None else ["-c", program], words, popen)

    def interpreter(self, *words: object, program: str = FEEDCTL, **popen: Any) -> subprocess.Popen[Any]:
        """In an interpreter of its own, which loads feedctl itself: for another environment, or to see it start."""
        return self._started(subprocess.Popen, [sys.executable, "-c", program], words, popen)

    def _started(
        self, start: type[subprocess.Popen[Any]], command: list[str], words: Iterable[object], popen: dict[str, Any]
    ) -> subprocess.Popen[Any]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        line = [*command, "--home", str(self.home), *map(str, words)]
        return start(line, **({"env": {**os.environ}} | streams | popen))

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker in a process of its own, which is running."""
        process = self.spawn("work")
        try:
            eventually(
                lambda: process.poll() is not None or self.json("status", code=None)["worker"], "the worker runs"
            )
            assert process.poll() is None, process.communicate()[1].decode()
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
