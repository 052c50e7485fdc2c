"""Metrics of relay, expander and writers as processes of their own, on the real servers."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import Stack
from tests.cli.command import Cli, eventually
from tests.cli.test_metrics import Values, scraped, value
from tests.stack.own_home import own_home

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("metrics")]

DEADLINE_S = 120.0
PARTS = {"relay": ("relay",), "expand": ("expand",), "a": ("write", "--cluster", "a"), "b": ("write", "--cluster", "b")}


@contextmanager
def working(cli: Cli, directory: Path) -> Iterator[dict[str, str]]:
    """All parts, each with its own address."""
    processes: list[subprocess.Popen[bytes]] = []
    logs = {name: directory / f"{name}.log" for name in PARTS}
    try:
        for name, words in PARTS.items():
            with logs[name].open("wb") as log:
                env = {**os.environ, "FEED_WORKER_CANARY": "1s"}
                processes.append(cli.spawn(*words, "--metrics", "127.0.0.1:0", stderr=log, env=env))
        yield {name: _address(log) for name, log in logs.items()}
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.communicate(timeout=DEADLINE_S)


def _address(log: Path) -> str:
    said = eventually(lambda: re.search(r'"address":\s*"(http[^"]*)"', log.read_text()), "it says where", DEADLINE_S)
    return str(said[1])


def test_each_part_says_what_it_does(stack: Stack, tmp_path: Path) -> None:
    with own_home(stack, tmp_path / "home") as cli, working(cli, tmp_path) as addresses:
        cli("follow", 1, "--user", 2)
        cli("save-pin", 7, "--owner", 2, "--board", 3)

        def told() -> dict[str, Values] | None:
            found = {name: scraped(address) for name, address in addresses.items()}
            seen = [value(found["relay"], "feed_canaries_total", cluster=name, outcome="seen") for name in "ab"]
            landed = [value(found[name], "feed_cells_written_total", cluster=name) for name in "ab"]
            known = [value(found["relay"], "feed_cluster_behind_seconds", cluster=name) is not None for name in "ab"]
            whole = [value(found["relay"], "feed_cluster_damaged", cluster=name) == 0 for name in "ab"]
            parts = [value(found["relay"], "feed_cluster_parts_answer", cluster=name) == 1 for name in "ab"]
            return found if all(seen) and all(landed) and all(known) and all(whole) and all(parts) else None

        found = eventually(told, "canaries are seen in both clusters, and both were looked at", DEADLINE_S)
        assert (value(found["relay"], "feed_ticks_total", loop="ticker") or 0) > 0
        assert (value(found["expand"], "feed_actions_expanded_total", kind="follow") or 0) >= 1
        assert value(found["expand"], "feed_process_open_files", process="expand")
        for name in "ab":
            writer = found[name]
            assert (value(writer, "feed_action_visible_seconds_count", cluster=name) or 0) >= 2
            assert (value(writer, "feed_cluster_call_seconds_count", cluster=name, call="apply") or 0) >= 1
            assert value(writer, "feed_group_behind_seconds", group=f"writer-{name}", partition="0") is not None
            assert value(writer, "feed_group_lag", group=f"writer-{name}") is None, "the relay looks at the queue"
        lags = {labels for metric, labels in found["relay"] if metric == "feed_group_partition_lag"}
        assert {dict(labels)["group"] for labels in lags} == {
            "expander",
            "writer-a",
            "retries-a",
            "writer-b",
            "retries-b",
        }
