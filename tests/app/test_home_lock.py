"""Who holds a home, as others are told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.app import home


def test_a_worker_that_holds_a_home_is_named(tmp_path: Path):
    with home.worker_lock(tmp_path), pytest.raises(home.HomeBusyError, match=f"pid {os.getpid()}"):
        home.worker_lock(tmp_path).__enter__()


@pytest.mark.processes
def test_the_command_that_holds_a_home_is_said_and_how_to_stop_it(tmp_path: Path):
    held = f"""
import sys
from pathlib import Path
from workers.app import home
with home.worker_lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", held, "/usr/bin/feedctl", "--home", "h", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        with pytest.raises(home.HomeBusyError) as refused:
            home.worker_lock(tmp_path).__enter__()
        assert worker.stdin is not None
        worker.stdin.close()
    assert str(refused.value) == (
        f"{tmp_path}: a worker holds this home already (pid {worker.pid}, feedctl --home h serve):"
        f" stop it (kill -TERM {worker.pid}), then run this again"
    )


@pytest.mark.processes
def test_writers_that_outlive_their_worker_are_named(tmp_path: Path):
    """They inherit the lock: one that hangs holds the home, and its worker is not there."""
    held = f"""
import os, sys
from pathlib import Path
from workers.app import home
lock = home.worker_lock(Path({str(tmp_path)!r}))
lock.__enter__()
if os.fork():
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "forked\n"
        worker.wait(60)
        with pytest.raises(home.HomeBusyError, match="does not run here: if it has ended, its writers hang"):
            home.worker_lock(tmp_path).__enter__()
        assert worker.stdin is not None
        worker.stdin.close()
