"""A short siege: what does not depend on how fast the machine is. `make siege` is the whole one."""

import signal
from contextlib import suppress

import psutil
import pytest

from bench.siege import line, siege
from tests.cli.command import eventually, has_ended
from tests.cli.template import Forked


@pytest.mark.processes
def test_a_server_under_siege_neither_grows_nor_keeps_its_adversaries():
    rows = {row.what: row for row in siege(seconds=2.5, patience_s=1.0, connections=50, addresses=3)}
    for what in ("memory grew by", "connections that were left", "tracebacks in the log"):
        assert rows[what].verdict == "met", line(rows[what])


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_siege_that_is_ended_ends_and_leaves_no_server(number: signal.Signals, code: int) -> None:
    # What starts the tests may ignore signals, and its children with it.
    program = """
import signal
import sys
from bench import siege
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
siege._fill = lambda _: None
sys.argv = ["siege", "--seconds", "600", "--connections", "1"]
sys.exit(siege.main())
"""
    with Forked(["-c", program]) as process:
        try:
            eventually(lambda: len(psutil.Process(process.pid).children()) == 2, "a server and its adversaries run")
            server, adversaries = psutil.Process(process.pid).children()
            try:
                process.send_signal(number)
                assert process.wait(60) == code
                assert not server.is_running()
                # If the signal came while they were started, they end as soon as they see that the siege has ended.
                eventually(lambda: has_ended(adversaries), "its adversaries have ended")
            finally:
                for each in (server, adversaries):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
        finally:
            process.kill()
