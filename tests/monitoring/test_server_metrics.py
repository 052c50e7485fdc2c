"""Every metric of HBase's and Kafka's servers that the dashboard asks for comes from a running server into Prometheus,
and changes there.

A home of its own on the local stack has feeds that are longer than they may be, and its tables are flushed and
compacted. What changes only where something is wrong: `test_servers_in_trouble.py`.
"""

import json
import time
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from deploy import monitoring
from deploy.local import Stack
from deploy.monitoring import servers
from deploy.monitoring.servers import ServerMetric
from feedstore.following import layout
from tests.monitoring import prometheus
from tests.monitoring.excused import SERVERS_IN_TROUBLE
from tests.stack import homes
from tests.stack.homes import eventually
from tests.stack.own_home import own_home
from tests.widecolumn.hbase_regions import Regions

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

SINCE: Final = "1h"
USERS, PINS = 3, 40
EVERY: Final = list(chain.from_iterable(metrics for _, metrics in servers.SECTIONS))


def fault(stack: Stack, metric: ServerMetric) -> str:
    """What is wrong with a metric; empty if each of its servers shows it, and it has changed on each, or need not."""
    labels = ",".join(f'{name}="{value}"' for name, value in metric.labels.items())
    series = f"{metric.name}{{{labels}}}[{SINCE}]"
    changes = prometheus.values(stack, f"max by (server) (max_over_time({series}) - min_over_time({series}))")
    wanted = {"kafka"} if metric in servers.KAFKA else {"hbase-a", "hbase-b"}
    # Others are those of another test.
    changed = {each["metric"]["server"]: float(each["value"][1]) for each in changes}
    if not wanted <= set(changed):
        return f"was not scraped from {sorted(wanted - set(changed))}"
    same = sorted(server for server in wanted if changed[server] <= 0)
    return f"never changed on {same}" if same and metric.name not in SERVERS_IN_TROUBLE else ""


def test_all_of_them_are_scraped_and_change(stack: Stack, tmp_path: Path) -> None:
    with own_home(stack, tmp_path / "home") as cli:
        cli.set("cap", "10")
        cli.set("slack", "2")
        cli("schema", "apply")
        for user in range(1, USERS + 1):
            cli("follow", user, "--user", 1_000)
        pins = [
            {"type": "save_pin", "ts": time.time_ns() // 1_000_000, "pin": pin, "owner": 1_000, "board": 9}
            for pin in range(1, PINS + 1)
        ]
        regions = [Regions(cluster.url, layout.FEEDS) for cluster in homes.config_of(cli).clusters]
        with homes.running(list(homes.parts_of(cli).values())), cli.ports() as ports:
            homes.landed(ports)
            # Before there is anything to count, Prometheus has looked at the counters of the trim.
            eventually(lambda: not missing(stack), f"all are scraped, but {missing(stack)}")
            homes.replay(cli, [json.dumps(each).encode() for each in pins])
            cli("delete-pin", PINS)
            homes.landed(ports)
            for each in regions:
                each.flush()
                each.compact(major=True)
            homes.check(cli, homes.exported(cli, "a"))
            until_s = time.monotonic() + homes.DEADLINE_S
            while faults(stack) and time.monotonic() < until_s:
                time.sleep(monitoring.EVERY_S)
    assert faults(stack) == {}


def faults(stack: Stack) -> dict[str, str]:
    return {metric.name: found for metric in EVERY if (found := fault(stack, metric))}


def missing(stack: Stack) -> dict[str, str]:
    return {name: found for name, found in faults(stack).items() if "not scraped" in found}
