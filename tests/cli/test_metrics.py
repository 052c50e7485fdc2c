"""Metrics of a worker in processes of its own: what is served, and that it changes."""

import contextlib
import os
import re
import shutil
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from feedstore.app import config as configuration
from feedstore.widecolumn import Access, UnavailableError
from feedstore.widecolumn.metrics import READS
from feedstore.widecolumn.progress import Progress
from tests.cli.command import DEADLINE_S, Cli, eventually, writer_pid
from tests.http.http_servers import client_of, feedctl_serve
from workers.app import home, wiring
from workers.app import metrics as every
from workers.app.home import worker_lock
from workers.following.canary import PIN

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(address: str) -> Values:
    with urllib.request.urlopen(address, timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    return values_of(text)


def values_of(text: str) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float | None:
    return values.get((name, tuple(sorted(labels.items()))))


@contextlib.contextmanager
def working(cli: Cli, *words: object) -> Iterator[tuple[Any, str]]:
    """A worker that serves metrics, and their address."""
    log = cli.home.parent / "work.log"
    with log.open("wb") as file:
        process = cli.spawn("work", "--metrics", "127.0.0.1:0", *words, stderr=file)
    try:
        said = eventually(lambda: re.search(r'"address":\s*"(http[^"]*)"', log.read_text()), "it says where")
        yield process, said[1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.processes
def test_a_worker_says_what_it_and_its_writers_do(cli: Cli):
    with working(cli) as (process, address):
        cli("follow", 1, "--user", 2)
        cli("save-pin", 7, "--owner", 2, "--board", 3)
        # Expanded together with the unfollow, the pin would have no follower.
        eventually(
            lambda: all(value(scraped(address), "feed_action_visible_seconds_count", cluster=name) for name in "ab"),
            "the pin is delivered",
        )
        cli("unfollow", 1, "--user", 2)
        eventually(
            lambda: (
                all(value(scraped(address), "feed_purge_seconds_count", cluster=name) for name in "ab")
                and value(scraped(address), "feed_cluster_behind_seconds", cluster="b") is not None
            ),
            "it lands in both clusters, and was looked at",
        )
        found = scraped(address)
        served = {name for name, _ in found}
        told = {
            each.name
            for each in every.ALL
            if "work" in each.by and served & {each.name, f"{each.name}_count", f"{each.name}_bucket"}
        }
        missing = {each.name for each in every.ALL if "work" in each.by} - told
        # Nothing has failed yet, and no sweep was due.
        assert missing <= {
            "feed_loop_away_total",
            "feed_relay_bytes_total",
            "feed_follow_store_failures_total",
            "feed_cluster_failures_total",
            "feed_sweeps_total",
            "feed_swept_cells_total",
            "feed_sweep_seconds",
            "feed_housekeeping_rounds_total",
            "feed_canary_seconds",
            "feed_canary_age_seconds",
            "feed_canaries_total",
        }
        for name in "ab":
            assert (value(found, "feed_action_visible_seconds_count", cluster=name) or 0) >= 2
            assert (value(found, "feed_cells_written_total", cluster=name) or 0) >= 2
            assert (value(found, "feed_stage_messages_total", group=f"writer-{name}", outcome="done") or 0) >= 2
            assert value(found, "feed_loop_running", loop=f"writer-{name}") == 1
        assert value(found, "feed_actions_expanded_total", kind="follow") == 1
        assert value(found, "feed_actions_expanded_total", kind="save") == 1
        eventually(lambda: value(scraped(address), "feed_group_lag", group="relay") == 0, "all is relayed")
        writer = writer_pid(process.pid, "a")
        # A writer that is suspended says nothing of how things are, and what it had counted stays.
        os.kill(writer, signal.SIGSTOP)
        try:
            silent: Values = {}

            def only_a_is_silent() -> bool:
                silent.clear()
                silent.update(scraped(address))
                return [
                    value(silent, "feed_process_resident_bytes", process=f"writer-{name}") is None for name in "ab"
                ] == [True, False]

            eventually(only_a_is_silent, "the other process is silent")
            assert value(silent, "feed_stage_waiting_messages", group="writer-a") is None
            assert value(silent, "feed_stage_waiting_messages", group="writer-b") is not None
            assert (value(silent, "feed_cells_written_total", cluster="a") or 0) >= 2
        finally:
            os.kill(writer, signal.SIGCONT)
        eventually(
            lambda: value(scraped(address), "feed_process_resident_bytes", process="writer-a"), "it speaks again"
        )


@pytest.mark.processes
def test_a_server_that_works_says_all_of_it_once(cli: Cli):
    with feedctl_serve(cli) as (_, address), client_of(address) as client:
        client.post("/v1/follows", {"follower": "1", "user": "2"})
        client.post("/v1/pins", {"pin": "7", "owner": "2", "board": "3"})
        eventually(
            lambda: value(values_of(client.http.get("/metrics").text), "feed_cells_written_total", cluster="b"),
            "it lands",
        )
        lines = client.http.get("/metrics").text.splitlines()
        names = [line.partition("} ")[0] if "{" in line else line.partition(" ")[0] for line in lines if line[0] != "#"]
        assert len(names) == len(set(names))
        assert value(values_of("\n".join(lines) + "\n"), "feed_loop_running", loop="writer-a") == 1


@pytest.mark.processes
def test_reads_that_were_left_to_gateways_are_counted_unless_that_was_chosen(cli: Cli):
    cli.change("rocksdb:data/a", "hbase://127.0.0.1:1/one?reads=gateways")
    cli.change("rocksdb:data/b", "hbase://127.0.0.1:1/two")
    with home.worker_lock(cli.home), feedctl_serve(cli) as (_, address), client_of(address) as client:

        def reads(by: str, cluster: str) -> float | None:
            text = client.http.get("/metrics").text
            return value(values_of(text), "feed_cluster_reads_total", by=by, cluster=cluster)

        eventually(lambda: (reads("gateway", "b") or 0) > 0, "how far the cluster is was asked of its gateways")
        assert reads("region_server", "b") == 0
        assert reads("gateway", "a") is reads("region_server", "a") is None


@pytest.mark.parametrize("access", ["read", "write"])
def test_what_workers_read_goes_through_gateways(cli: Cli, access: Access):
    """What is written follows from it, and a region server that has lost a region may answer with what is old."""
    cli.change("rocksdb:data/a", "hbase://127.0.0.1:1/")
    with contextlib.closing(wiring.open_ports(configuration.load(cli.home, {}), access)) as ports:
        with pytest.raises(UnavailableError, match="cluster a"):
            Progress(ports.replicas["a"].progress).watermark()
        assert not {each.name for each in ports.meter.counts().counters} & {READS.name}


def test_a_port_that_is_taken_ends_the_worker_at_once(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"metrics cannot be served at {address}" in cli("work", "--metrics", address, code=2).stderr
    assert cli.json("status")["worker"] is None


@pytest.mark.parametrize("command", [["work"], ["relay"], ["expand"], ["write", "--cluster", "a"]])
@pytest.mark.parametrize("address", ["65536", "127.0.0.1:99999", "here", ":"])
def test_what_is_no_port_is_refused_before_the_home_is_looked_at(tmp_path: Path, command: list[str], address: str):
    said = Cli(tmp_path / "nothing")(*command, "--metrics", address, code=2).stderr
    assert "'--metrics'" in said
    assert f"expected HOST:PORT or PORT, such as 127.0.0.1:9464, got '{address}'" in said


@pytest.mark.processes
def test_a_port_that_is_taken_is_named_with_its_key_before_anything_is_done(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
):
    shutil.rmtree(filled.home / "data" / "b")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("FEED_METRICS_LISTEN", address)
        for words in (["rebuild", "--all", "--cluster", "b"], ["repair"]):
            said = filled.process(*words, code=2).stderr
            assert f"FEED_METRICS_LISTEN: metrics.listen: metrics cannot be served at {address}" in said
            assert "another process listens there" in said
            assert not (filled.home / "data" / "b").exists()
    filled.process("rebuild", "--all", "--cluster", "b")
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_canaries_go_the_whole_way_and_leave_everything_as_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEED_WORKER_CANARY", "200ms")
    cli("follow", 1, "--user", 2)
    with working(cli) as (_, address):
        for name in "ab":
            seen = eventually(
                lambda: value(scraped(address), "feed_canaries_total", cluster=name, outcome="seen"),  # noqa: B023
                "canaries are seen",
            )
            assert seen >= 16
        assert value(scraped(address), "feed_canary_seconds_count", cluster="a") >= 16  # type: ignore[operator]
        shown = cli.json("canary")
        assert {name: each["seen"] for name, each in shown["clusters"].items()} == {"a": 16, "b": 16}
    monkeypatch.delenv("FEED_WORKER_CANARY")
    cli.work()
    assert "no difference" in cli("verify").stderr
    cli.process("rebuild", "--all", "--cluster", "a")
    cli.work()
    assert "no difference" in cli("verify").stderr
    counts = cli.json("status")["counts"]
    assert (counts["edges_active"], counts["boards"], counts["pins"]) == (1, 0, 0), "people's only"


def test_canaries_that_do_not_arrive_in_time_are_late(cli: Cli):
    with worker_lock(cli.home):
        shown = cli("canary", "--within", "200ms", code=1).stdout
    assert shown.splitlines() == ["cluster   a: 0 of 16 parts", "cluster   b: 0 of 16 parts"]
    assert "expected a duration" in cli("canary", "--within", "soon", code=2).stderr


@pytest.mark.processes
def test_a_worker_that_ends_by_itself_sends_no_canaries(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEED_WORKER_CANARY", "200ms")
    monkeypatch.setenv("FEED_METRICS_LISTEN", "127.0.0.1:0")
    cli("follow", 1, "--user", 2)

    cli.process("work", "--until-idle")
    cli.process("rebuild", "--all", "--cluster", "a")

    with cli.ports() as ports:
        assert ports.follows.pins([PIN.pin]) == {}
