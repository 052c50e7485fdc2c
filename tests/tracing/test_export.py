"""Sending spans: a receiver that is away or hangs delays nothing and loses no action."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from feedstore.app import config as configuration
from feedstore.app.services import open_service
from feedstore.app.tracing import open_tracer
from feedstore.domain import Pin, user
from feedstore.errors import ConfigError
from feedstore.tracing import UNTRACED, otel
from tests.cli.command import Cli
from tests.http.http_servers import client_of, feedctl_serve
from tests.replicas.fakes import until
from tests.tracing.receiver import Receiver, receiving
from tests.tracing.recorded import home_of

PIN = {"pin": "101", "owner": "2", "board": "9", "created_ms": 1_341_100_973_000}


@pytest.fixture(autouse=True)
def logging_as_it_comes() -> None:
    """A command that ran in this process may have set a level."""
    structlog.reset_defaults()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


@pytest.fixture(autouse=True)
def threads_that_end(receiver: Receiver) -> Iterator[None]:
    """What a tracer that ended has left behind: it would draw random numbers in the middle of another test."""
    before = set(threading.enumerate())
    yield
    receiver.answer()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path / "home")
    made("init")
    made.set("tick", '"50ms"')
    return made


def nowhere() -> str:
    """An address at which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"


def test_the_end_sends_what_is_left(receiver: Receiver):
    tracer = otel.exporting(receiver.address, 1.0, "test", "embedded")
    with tracer.trace("whole"):
        pass
    tracer.close()
    assert [(service, span.name) for service, span in receiver.spans()] == [("feedstore-test", "whole")]


def test_a_receiver_that_hangs_holds_up_no_span_and_no_end(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    receiver.hang()
    tracer = otel.exporting(receiver.address, 1.0, "test", "embedded")
    for _ in range(3 * otel.QUEUE_MAX):
        with tracer.trace("whole"):
            pass
    until(lambda: receiver.asked, "a request that hangs")
    monkeypatch.setattr(otel, "CLOSE_S", 0.01)
    with capture_logs() as lines:
        tracer.close()
    # It ended while the receiver still held the request.
    assert [line["event"] for line in lines] == ["traces.not_sent"]


@pytest.mark.parametrize("hangs", [True, False])
def test_a_home_works_while_its_receiver_does_not(tmp_path: Path, receiver: Receiver, hangs: bool):
    receiver.hang()
    endpoint = receiver.address if hangs else nowhere()
    text = configuration.DEFAULT + f'endpoint = "{endpoint}"\n'
    text = text.replace("sample = 0.01", "sample = 1")
    tracer = open_tracer(configuration.parse(tmp_path, text, {}), "test")
    with home_of(tmp_path / "home", tracer, text) as home:
        home.client.post("/v1/follows", {"follower": "1", "user": "2"})
        for pin in range(30):
            home.client.post("/v1/pins", {**PIN, "pin": str(1_000 + pin)})
        home.work()
        page = home.client.get("/v1/users/1/feed?limit=100")
        assert len(page["entries"]) == 30
    tracer.close()
    assert receiver.spans() == []


def test_a_library_sends_what_it_records_and_reads(tmp_path: Path, receiver: Receiver):
    with home_of(tmp_path / "home", UNTRACED) as home:
        text = configuration.DEFAULT + f'endpoint = "{receiver.address}"\n'
        config = configuration.parse(home.config.home, text.replace("sample = 0.01", "sample = 1.0"), {})
        with open_service(config) as service:
            service.follow(1, user(2))
            service.save_pin(Pin(101, owner=2, board=9, created_ms=1_341_100_973_000))
            service.page(1)
    names = [span.name for _, span in receiver.spans()]
    assert names.count("record") == 2
    assert "read following_feed" in names


def test_an_endpoint_has_a_path_and_no_password(tmp_path: Path):
    for wrong in ("127.0.0.1:4318", "http://127.0.0.1:4318", "http://me:secret@127.0.0.1:4318/v1/traces"):
        with pytest.raises(ConfigError, match=r"traces\.endpoint") as refused:
            configuration.parse(tmp_path, configuration.DEFAULT, {"FEED_TRACES_ENDPOINT": wrong})
        assert "secret" not in str(refused.value)
    for wrong in ("-1", "1.5", "often"):
        with pytest.raises(ConfigError, match=r"traces\.sample"):
            configuration.parse(tmp_path, configuration.DEFAULT, {"FEED_TRACES_SAMPLE": wrong})


SERVICE = """
import sys
from pathlib import Path
from feedstore.app import config as configuration, services
from feedstore.domain import Pin, user
with services.open_service(configuration.load(Path(sys.argv[1]), {})) as service:
    service.save_pin(Pin(101, owner=2, board=9, created_ms=1341100973000))
    service.follow(1, user(2))
    service.page(1)
import feedstore.app.http
"""
WORKER = """
import sys
from workers.cli import main
sys.argv = ["feedctl", "--home", sys.argv[1], "work", "--until-idle"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
LOADED = """
rooms = {name.partition(".")[0] for name in sys.modules}
print(*sorted(rooms & {"opentelemetry", "google", "requests"}), "-")
"""


@pytest.mark.processes
def test_a_home_without_traces_imports_nothing_of_them(cli: Cli):
    for program in (SERVICE, WORKER):
        command = [sys.executable, "-c", program + LOADED, str(cli.home)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.stdout.split() == ["-"], (found.stdout, found.stderr)


@pytest.mark.processes
def test_one_trace_through_the_processes_of_a_home(cli: Cli, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """A server, a worker and its two writers: each sends its own spans, and their lines of the log name the trace."""
    monkeypatch.setenv("FEED_TRACES_ENDPOINT", receiver.address)
    monkeypatch.setenv("FEED_TRACES_SAMPLE", "1")
    with cli.worker(), feedctl_serve(cli) as (_, address), client_of(address) as client:
        client.post("/v1/follows", {"follower": "1", "user": "2"})
        client.post("/v1/pins", PIN, headers={"traceparent": f"00-{7:032x}-{7:016x}-01", "x-request-id": "asked-7"})

        def mine() -> set[tuple[str, str]]:
            return {(service, span.name) for service, span in receiver.spans() if int.from_bytes(span.trace_id) == 7}

        wanted = {
            ("feedstore-serve", "POST /v1/pins"),
            ("feedstore-serve", "record"),
            ("feedstore-work", "send feed.actions"),
            ("feedstore-work", "process feed.actions"),
            ("feedstore-write", "process feed.deliveries"),
        }
        until(lambda: wanted <= mine(), "the spans of all processes")

        def written() -> set[str]:
            writers = [span for _, span in receiver.spans() if span.name == "process feed.deliveries"]
            return {each.value.string_value for span in writers for each in span.attributes if "cluster" in each.key}

        until(lambda: written() == {"a", "b"}, "the spans of both writers")
    lines = [json.loads(line) for line in (cli.home.parent / "serve.log").read_text().splitlines() if "asked-7" in line]
    assert [line["trace_id"] for line in lines if line["event"] == "http.request"] == [f"{7:032x}"]
