"""Servers for a test that breaks them: one more region server, and one more broker, which join those of a stack that is
the test's own. They show their metrics to the Prometheus of another stack.
"""

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from deploy.hbase.settings import site_xml
from deploy.local import Stack, jars, java, kafka, ports, processes
from deploy.local.hbase import cluster_name
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command, HeldProcess
from deploy.monitoring import servers
from tests.cli.command import eventually

NARROW: Final = {
    # A few MiB in memory are too many, and a few cells are enough for a flush.
    "hbase.regionserver.global.memstore.size": "0.02",
    "hbase.hregion.memstore.flush.size": "16384",
    "hbase.hregion.memstore.block.multiplier": "1000",
    # One after the other.
    "hbase.hstore.flusher.count": "1",
    "hbase.regionserver.thread.compaction.small": "1",
    "hbase.regionserver.thread.compaction.large": "1",
}
"""What makes a region server small enough that a test gives it more to do than it can."""
SESSION_MS: Final = 60_000
"""So long a region server that is suspended is not missed: its regions are in transition for several scrapes."""
_HEAP_MIB: Final = 160
_READY_S: Final = 120.0


@contextmanager
def watched(by: Stack, addresses: Mapping[str, int]) -> Iterator[None]:
    """The Prometheus of a stack scrapes servers, by their names, at these ports."""
    files = []
    try:
        for name, port in addresses.items():
            files.append(by.home / "targets" / f"{name}.json")
            files[-1].write_text(json.dumps([{"targets": [f"{LOOPBACK}:{port}"], "labels": {"server": name}}]))
        yield
    finally:
        for file in files:
            file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Running:
    """port: where it serves its clients. metrics: where it shows its metrics."""

    process: HeldProcess
    port: int
    metrics: int


@contextmanager
def region_server(stack: Stack, name: str, settings: Mapping[str, str]) -> Iterator[Running]:
    """One more region server of cluster a of a stack, which runs. settings: what it has of its own."""
    home = Home(stack.home)
    port, metrics = ports.choose(2, random.SystemRandom())
    conf = home.conf(name)
    write_conf(conf, java.LOG_CONF, java.log_conf())
    write_conf(conf, java.AGENT_CONF, servers.agent_yml(servers.HBASE))
    of_cluster = ET.parse(home.conf(cluster_name("a")) / "hbase-site.xml").getroot()
    site = {each.findtext("name", ""): each.findtext("value", "") for each in of_cluster}
    site |= {
        "hbase.cluster.distributed": "true",
        "hbase.regionserver.port": str(port),
        "zookeeper.session.timeout": str(SESSION_MS),
        **settings,
    }
    write_conf(conf, "hbase-site.xml", site_xml(site))
    command = java.command(
        home,
        name,
        jars=[jars.folder("hbase"), jars.built_folder(jars.TRIM)],
        heap_mib=_HEAP_MIB,
        flags=(
            java.watched(jars.folder(jars.AGENT), conf, f"{LOOPBACK}:{metrics}"),
            java.STARTS_FAST,
            *java.HBASE_FLAGS,
        ),
        main=("org.apache.hadoop.hbase.regionserver.HRegionServer", "start"),
    )
    with _running(home, name, command) as process:
        said = home.log(name)
        eventually(lambda: "Serving as " in said.read_text(errors="replace"), f"{name} serves: {said}", _READY_S)
        yield Running(process, port, metrics)


@contextmanager
def broker(stack: Stack, name: str) -> Iterator[Running]:
    """A second broker of the Kafka of a stack, which runs. Its number is 2."""
    home = Home(stack.home)
    port, metrics = ports.choose(2, random.SystemRandom())
    conf, data = home.conf(name), home.data(name)
    write_conf(conf, java.LOG_CONF, java.log_conf())
    write_conf(conf, java.AGENT_CONF, servers.agent_yml(servers.KAFKA))
    first = _properties(home.conf(kafka.NAME) / "server.properties")
    own = first | {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": str(data),
    }
    file = conf / "server.properties"
    write_conf(conf, file.name, "".join(f"{key}={value}\n" for key, value in own.items()))

    def started(*main: str, flags: tuple[str, ...] = ()) -> Command:
        return java.command(home, name, jars=[jars.folder("kafka")], heap_mib=384, flags=flags, main=main)

    cluster = _properties(home.data(kafka.NAME) / "meta.properties")["cluster.id"]
    formats = started(*kafka.format_words(str(file), cluster))
    subprocess.run(formats.argv, check=True, capture_output=True, timeout=_READY_S)
    agent = java.watched(jars.folder(jars.AGENT), conf, f"{LOOPBACK}:{metrics}")
    with _running(home, name, started("kafka.Kafka", str(file), flags=(agent,))) as process:
        said = home.log(name)
        is_up = "Kafka Server started"
        eventually(lambda: is_up in said.read_text(errors="replace"), f"{name} serves: {said}", _READY_S)
        yield Running(process, port, metrics)


@contextmanager
def _running(home: Home, name: str, command: Command) -> Iterator[HeldProcess]:
    pid = processes.spawn(command, home.log(name), home.pid_file(name))
    process = processes.hold(pid, command.mark)
    assert process is not None, f"{name} has ended: {home.log(name)}"
    with process:
        try:
            yield process
        finally:
            process.kill()


def _properties(file: Path) -> dict[str, str]:
    lines = (line for line in file.read_text().splitlines() if "=" in line and not line.startswith("#"))
    return {key: value for key, _, value in (line.partition("=") for line in lines)}
