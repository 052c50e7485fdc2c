"""Pages outlive the worker of their process, and everything that is asked says so."""

import errno
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from threading import Event

import httpx
import pytest
from http_servers import client_of, feedctl_serve

from feedstore.app import config as configuration
from feedstore.errors import ConfigError
from tests.cli.command import DEADLINE_S, Cli, eventually
from workers.app import home, wiring
from workers.cli import serve
from workers.following.topics import DELIVERIES
from workers.pipeline.runtime import Loop, WorkerFailedError
from workers.queue.port import QueueUnavailableError


@pytest.mark.processes
def test_pages_outlive_a_worker_that_met_too_many_dead_letters(cli: Cli):
    cli.set("dead_letters_in_a_row", "5")
    with cli.ports() as ports:
        ports.queue.publish(DELIVERIES, [b'{"v":9,"number":%d}' % number for number in range(400)])
    with feedctl_serve(cli) as (process, address), client_of(address) as client:
        why = eventually(lambda: client.get("/v1/status")["worker_stopped"], "the worker has stopped")
        assert "feedctl dead list" in why
        assert client.get("/v1/users/1/feed")["entries"] == []
        assert client.get("/healthz") == {"status": "ok"}
        assert client.get("/readyz") == {"status": "ok", "worker": "stopped"}
        assert "\nfeed_worker_stopped 1.0\n" in client.http.get("/metrics").text
        shown = cli("status", code=1)
        assert f"pid {process.pid}" in shown.stdout
        assert why.splitlines()[0].replace("feedctl dead list", cli.hint("dead list")) in shown.stdout
        assert cli.json("status", code=1)["worker"]["stopped"] == why
        buried = client.get("/v1/status")["dead_letters"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 1
    assert cli("status", code=1).stdout.count("none runs") == 1
    with cli.ports() as ports:
        assert ports.dead.count() == buried, "a worker that has stopped buries no more"


class FailsOnce:
    """A worker whose first run fails. unmade: what the next ones meet while they are made."""

    def __init__(self, unmade: Sequence[Exception] = ()) -> None:
        self.runs = 0
        self.works = Event()
        self._unmade = [*unmade]

    def made(self) -> "FailsOnce":
        if self.runs and self._unmade:
            raise self._unmade.pop()
        return self

    def run(self, until: "serve._Ended") -> None:
        self.runs += 1
        if self.runs == 1:
            raise WorkerFailedError("relay: KeyError: 'x'", [KeyError("x")])
        self.works.set()
        while not until():
            until._server.wait(0.01)


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "unmade",
    [
        [],
        [QueueUnavailableError("the queue's disk is full")],
        [OSError(errno.EMFILE, "Too many open files"), ConfigError("/dev: Too many open files")],
    ],
)
def test_a_worker_that_failed_begins_again_while_pages_are_served(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, unmade: Sequence[Exception]
):
    """Also if it cannot be noted for others why it stopped: the disk is full."""
    worker, stop = FailsOnce(unmade), Event()
    rested = Event()
    monkeypatch.setattr(wiring, "worker", lambda *_, **__: worker.made())
    monkeypatch.setattr(home, "note_stopped", no_room)
    monkeypatch.setattr(serve, "_waited", lambda *_: not rested.wait(DEADLINE_S))
    config = configuration.load(cli.home, {})
    with closing(serve.listening(config, "127.0.0.1", 0).thing) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve.run, args=(config, listener, stop))
        thread.start()
        try:
            eventually(lambda: worker.runs == 1, "it has failed")
            with httpx.Client(base_url=address, timeout=DEADLINE_S) as http:
                said = eventually(lambda: http.get("/v1/status").json()["worker_stopped"], "it is said")
                assert said == "relay: KeyError: 'x'"
                assert http.get("/v1/users/1/feed").status_code == 200
                rested.set()
                assert worker.works.wait(DEADLINE_S)
                assert http.get("/v1/status").json()["worker_stopped"] is None
                assert http.get("/readyz").json() == {"status": "ok"}
        finally:
            rested.set()
            stop.set()
            thread.join(DEADLINE_S)
    assert worker.runs == 2


def test_a_worker_that_cannot_be_made_keeps_no_group_busy(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    config = configuration.load(cli.home, {})

    def unmade(*_: object) -> Loop:
        raise QueueUnavailableError("the queue's disk is full")

    with closing(wiring.open_ports(config, "write", alone=True)) as ports:
        with monkeypatch.context() as patch:
            patch.setattr(wiring, "housekeeping", unmade)
            with pytest.raises(QueueUnavailableError):
                wiring.worker(ports, config)
        wiring.worker(ports, config).run(lambda: True)


@pytest.mark.processes
def test_a_server_says_that_no_worker_runs_in_its_home(cli: Cli):
    """As after a change from one server to another: the first one was the worker, and has ended."""
    with feedctl_serve(cli) as (worker, _), feedctl_serve(cli) as (_, address), client_of(address) as client:
        assert client.get("/readyz") == {"status": "ok"}
        assert client.get("/v1/status")["worker_stopped"] is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_S) == 0
        why = eventually(lambda: client.get("/v1/status")["worker_stopped"], "it is said")
        assert "feedctl work" in why
        assert client.get("/readyz") == {"status": "ok", "worker": "stopped"}
        assert "\nfeed_worker_stopped 1.0\n" in client.http.get("/metrics").text
        with cli.worker():
            eventually(lambda: client.get("/v1/status")["worker_stopped"] is None, "one works again")
