"""What the processes of a worker write of their threads, if SIGQUIT asks them or if they crash in native code."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cli.command import DEADLINE_S, Cli, eventually, writer_pid

pytestmark = pytest.mark.processes

_LINE = re.compile(r'^  File ".*", line \d+ in ', re.MULTILINE)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGSEGV])
def test_each_process_writes_where_its_threads_are_and_a_crash_does_too(
    cli: Cli, tmp_path: Path, end: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    log = tmp_path / "stderr"

    def asked(pid: int, number: signal.Signals) -> None:
        before = log.stat().st_size
        os.kill(pid, number)
        eventually(lambda: _LINE.search(log.read_text()[before:]), f"{pid} writes where its threads are")

    with log.open("wb") as stderr:
        # In an interpreter of its own: what tests fork has what pytest has done for crashes.
        worker = cli.interpreter("work", stderr=stderr)
    try:
        writer = eventually(lambda: cli.json("status", code=None)["worker"] and writer_pid(worker.pid, "a"), "it runs")
        asked(worker.pid, signal.SIGQUIT)
        asked(writer, signal.SIGQUIT)
        cli("follow", 1, "--user", 2)
        cli("save-pin", 7, "--owner", 2, "--board", 3)
        eventually(lambda: cli.feed(1) == [7], "the same processes still deliver")
        assert writer_pid(worker.pid, "a") == writer
        if end == signal.SIGSEGV:
            asked(worker.pid, end)
            assert "Segmentation fault" in log.read_text()
        else:
            worker.send_signal(end)
        assert worker.wait(DEADLINE_S) == (0 if end == signal.SIGTERM else -end)
    finally:
        worker.kill()
        worker.communicate()
