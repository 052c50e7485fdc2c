"""Breaks a running system on purpose, and looks at which alert fires.

    python -m tests.monitoring.faults --stack DIRECTORY                  every fault, one after the other
    python -m tests.monitoring.faults --stack DIRECTORY broker-away      one of them
    python -m tests.monitoring.faults --stack DIRECTORY --healthy 1200   twenty healthy minutes: no alert may fire

It makes a home on a local stack, works on it with a process for each stage, and has a client save pins, follow and read
at tens of requests a second meanwhile. Each fault names an alert: that one must fire within a minute, and no other.
At the end, each metric of `excused.BY_FAULTS` that one of them changes must have changed.
Take a stack of its own: it kills servers, and brings them back. Status 1: an alert was missing, or one too many, or a
metric has not changed.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import kafka
from kafka import TopicPartition

from deploy.local import Stack
from deploy.local.signals import unwinding
from feedstore.app import config as configuration
from feedstore.clocks import wall_ms
from feedstore.following import layout
from feedstore.widecolumn.hbase import HBaseCluster
from tests.cli.command import FEEDCTL, eventually
from tests.clocks.rounds import shifted
from tests.disks import fill
from tests.monitoring import prometheus
from tests.monitoring.excused import BY_FAULTS
from tests.widecolumn.hbase_regions import Regions
from workers.app import wiring
from workers.app.metrics import ALL
from workers.following.groups import EXPANDER
from workers.following.topics import ACTIONS
from workers.queue.kafka.queue import connect
from workers.queue.port import lag_of

FIRES_S: Final = 60.0
CALM_S: Final = 15.0
"""So long all must be well before the next fault."""
CAUGHT_UP_S: Final = 30
CALM_WITHIN_S: Final = 360.0
BEGINS_S: Final = 240.0
"""So long a process may take to begin."""
USERS, OWNERS = 200, 20
STAGES: Final = {
    "relay": ("relay",),
    "expand": ("expand",),
    "write-a": ("write", "--cluster", "a"),
    "write-b": ("write", "--cluster", "b"),
    "serve": ("serve", "--port", "0"),
}


class System:
    """A home on a stack, its processes and its client. The names of the processes are those of STAGES."""

    def __init__(self, stack: Stack, directory: Path, rate: float) -> None:
        self.stack = stack
        self.home = directory / "home"
        self.homes = {str(self.home)}
        """Those whose alerts count."""
        self.address = ""
        self.requests = self.refused = 0
        self._log = (directory / "log").open("ab")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()
        self._rate = rate
        self._client = threading.Thread(target=self._run, args=(rate,), daemon=True)

    def feedctl(self, *words: str | Path, home: Path | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-c", FEEDCTL, "--home", home or self.home, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode:
            raise SystemExit(f"feedctl {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def begin(self, *, canaries: bool = True) -> None:
        """A rate of 0 has no client."""
        self.feedctl("init", "--stack", "local", "--stack-home", self.stack.home)
        if canaries:
            path = self.home / "feed.toml"
            text = path.read_text(encoding="utf-8").replace('# canary = "15s"', 'canary = "15s"')
            path.write_text(text, encoding="utf-8")
        for name in STAGES:
            self.start(name)
        if self._rate:
            self._client.start()

    def start(self, name: str, environment: dict[str, str] | None = None) -> None:
        words = STAGES[name]
        process = subprocess.Popen(
            [sys.executable, "-c", FEEDCTL, "--home", self.home, "--log-level", "warning", *words],
            stdout=subprocess.PIPE if name == "serve" else self._log,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
        )
        self._processes[name] = process
        if name == "serve":
            assert process.stdout is not None
            self.address = process.stdout.readline().decode().strip()

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self._processes[name]
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()

    def restart(self, name: str, environment: dict[str, str] | None = None) -> None:
        self.end(name)
        self.start(name, environment)

    def replace(self, name: str, environment: dict[str, str] | None = None) -> None:
        """As `restart`, but the new one works before the old one ends: nothing waits meanwhile."""
        self._processes[f"{name} before"] = self._processes[name]
        self.start(name, environment)
        self.metrics(name)
        self.end(f"{name} before")
        del self._processes[f"{name} before"]

    def metrics(self, name: str) -> str:
        """What a process says of itself; waits until it does."""
        pattern = f"*-{self.pid(name)}.json"
        path = eventually(
            lambda: next((self.stack.home / "targets").glob(pattern), None), f"{name} has metrics", BEGINS_S
        )
        [target] = json.loads(path.read_text(encoding="utf-8"))
        with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def close(self) -> None:
        self._ended.set()
        for name in self._processes:
            self.end(name)
        self._log.close()

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        headers = {} if body is None else {"content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        self.requests += 1
        try:
            request = urllib.request.Request(self.address + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
        except OSError:
            self.refused += 1

    def _run(self, rate: float) -> None:
        """The client: saves a pin, follows now and then, reads a feed."""
        number = 0
        while not self._ended.wait(1 / rate):
            number += 1
            user, owner = number % USERS + 1, number % OWNERS + 1_000
            pin = str(time.time_ns() // 1_000)
            if number <= USERS or number % 10 == 0:
                self._ask("POST", "/v1/follows", {"follower": str(user), "user": str(owner)})
            self._ask("POST", "/v1/pins", {"pin": pin, "owner": str(owner), "board": str(owner)})
            self._ask("GET", f"/v1/users/{user}/feed")


@dataclass(frozen=True)
class Fault:
    """alert: the one that must fire. happens: breaks something, and puts it right again on exit."""

    alert: str
    happens: Callable[[System], Any]


@contextmanager
def suspended(system: System, *names: str) -> Iterator[None]:
    for name in names:
        system.send(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in names:
            system.send(name, signal.SIGCONT)


@contextmanager
def no_worker(system: System) -> Iterator[None]:
    names = [name for name in STAGES if name != "serve"]
    for name in names:
        system.end(name, signal.SIGKILL)
    yield
    for name in names:
        system.start(name)


@contextmanager
def away(system: System, server: str) -> Iterator[None]:
    system.stack.kill(server)
    try:
        yield
    finally:
        system.stack.up()


@contextmanager
def poisoned(system: System) -> Iterator[None]:
    """Three messages that are no actions."""
    address = wiring.kafka_address(configuration.load(system.home, {}))
    with closing(kafka.KafkaProducer(**address.options())) as producer:
        for partition in range(3):
            producer.send(f"{address.prefix}{ACTIONS.name}", b"not one of ours", partition=partition).get(30)
    yield
    system.feedctl("dead", "drop", "--all")


@contextmanager
def emptied(system: System) -> Iterator[None]:
    """The table of the feeds in cluster a. Its writers must be started again once it is rebuilt."""
    config = configuration.load(system.home, {})
    (cluster,) = (each for each in config.clusters if each.name == "a")
    with closing(HBaseCluster.open(cluster.url, [], check=False)) as opened:
        opened.administration.empty(layout.FEEDS)
    yield
    system.end("write-a")
    system.feedctl("rebuild", "--all", "--cluster", "a")
    system.start("write-a")


@contextmanager
def actions_lost(system: System) -> Iterator[None]:
    """No expander runs, and messages are dropped that none has read."""
    system.end("expand")
    config = configuration.load(system.home, {})
    address = wiring.kafka_address(config)
    with closing(wiring.open_queue(config, wall_ms)) as queue, closing(connect(address)) as admin:
        eventually(lambda: lag_of(queue, ACTIONS, EXPANDER), "actions wait for the expander")
        ends = {TopicPartition(address.named(ACTIONS.name), each): end for each, end in queue.ends(ACTIONS).items()}
        admin.delete_records(ends)
    yield
    system.feedctl("reindex")
    system.start("expand")


@contextmanager
def region_away(system: System) -> Iterator[None]:
    """One region of the table of the feeds in cluster a is closed."""
    (cluster,) = (each for each in configuration.load(system.home, {}).clusters if each.name == "a")
    with Regions(cluster.url, layout.FEEDS).one_away(("127.0.0.1", system.stack.port("hbase-a", "master"))):
        yield


@contextmanager
def few_files(system: System) -> Iterator[None]:
    """The limit of the expander comes down to a little more than what it has open."""
    pid = system.pid("expand")
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now * 10 // 9 + 1, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def clock_ahead(system: System) -> Iterator[None]:
    system.replace("relay", shifted(30_000))
    yield
    system.replace("relay")


@contextmanager
def full_disk(system: System) -> Iterator[None]:
    """Of another home, with files on a small file system."""
    place = system.home.with_name("small")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], check=True)
    process = None
    try:
        home = place / "home"
        system.feedctl("init", home=home)
        targets = system.stack.home / "targets"
        text = (home / "feed.toml").read_text(encoding="utf-8")
        text = text.replace('# targets = "targets" ', f'targets = "{targets}" ')
        (home / "feed.toml").write_text(text, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-c", FEEDCTL, "--home", home, "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        process.stdout.readline()
        system.homes.add(str(home))
        fill(place / "ballast")
        yield
        (place / "ballast").unlink()
    finally:
        # It ends, and is remembered as a home without a worker.
        system.homes.clear()
        system.homes.add(str(system.home))
        if process is not None:
            process.terminate()
            process.wait()
        subprocess.run(["umount", place], check=True)


@contextmanager
def hidden(system: System) -> Iterator[None]:
    """The server wants tokens from now on, and Prometheus has none: as after its token was revoked."""
    tokens = system.home / "tokens.toml"
    path = system.home / "feed.toml"
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace('# tokens = "tokens.toml"', 'tokens = "tokens.toml"'), encoding="utf-8")
    system.feedctl("token", "new", "--name", "other", "--scope", "read")
    system.restart("serve")
    yield
    path.write_text(before, encoding="utf-8")
    tokens.unlink()
    system.restart("serve")


FAULTS: Final = {
    "relay-suspended": Fault("FeedStageStuck", lambda system: suspended(system, "relay")),
    "expander-suspended": Fault("FeedStageStuck", lambda system: suspended(system, "expand")),
    "writer-suspended": Fault("FeedStageStuck", lambda system: suspended(system, "write-a")),
    "poison": Fault("FeedDeadLetters", poisoned),
    "few-files": Fault("FeedFilesLow", few_files),
    "token-revoked": Fault("FeedServerSilent", hidden),
    "clock-ahead": Fault("FeedClockOff", clock_ahead),
    "disk-full": Fault("FeedDiskLow", full_disk),
    "broker-away": Fault("FeedQueueAway", lambda system: away(system, "kafka")),
    "database-away": Fault("FeedFollowStoreAway", lambda system: away(system, "mariadb")),
    "actions-lost": Fault("FeedActionsLost", actions_lost),
    "region-away": Fault("FeedRegionAway", region_away),
    "cluster-away": Fault("FeedClusterAway", lambda system: away(system, "cluster-a")),
    "no-worker": Fault("FeedNoWorker", no_worker),
    "table-emptied": Fault("FeedClusterDamaged", emptied),
}


def firing(system: System, *states: str) -> set[str]:
    """The alerts that fire for homes of this run, or are in one of these states."""
    return {
        each["labels"]["alertname"]
        for each in prometheus.asked(system.stack, "alerts")["alerts"]
        if each["state"] in (states or ("firing",)) and each["labels"]["home"] in system.homes
    }


def not_well(system: System) -> set[str]:
    """What is still to be seen of the fault before: alerts, also those that are about to fire, a cluster that has not
    caught up, and messages that wait for their next attempt.
    """
    of_home = f'{{home="{system.home}"}}'
    behind = prometheus.values(system.stack, f"feed_cluster_behind_seconds{of_home} > {CAUGHT_UP_S}")
    retrying = prometheus.values(system.stack, f"feed_stage_retrying_seconds{of_home} > 0")
    return (
        firing(system, "firing", "pending")
        | {f"cluster {each['metric']['cluster']} {float(each['value'][1]):.0f} s behind" for each in behind}
        | {f"{each['metric']['group']} still tries again" for each in retrying}
    )


def calm(system: System) -> set[str]:
    """Waits until all has been well for a while; what still is not if that takes too long."""
    until_s = time.monotonic() + CALM_WITHIN_S
    since_s = time.monotonic()
    while time.monotonic() < until_s:
        if left := not_well(system):
            since_s = time.monotonic()
        elif time.monotonic() - since_s >= CALM_S:
            return set()
        time.sleep(1)
    return left


def watched(system: System, seconds: float) -> dict[str, float]:
    """What fires within so long, and after how many seconds."""
    began_s = time.monotonic()
    found: dict[str, float] = {}
    while (after_s := time.monotonic() - began_s) < seconds:
        for each in firing(system):
            found.setdefault(each, round(after_s, 1))
        time.sleep(1)
    return found


def run(system: System, name: str) -> bool:
    """Whether a fault was told by its alert alone; says so in a line."""
    if left := calm(system):
        print(f"{name:<20} NOT SHOWN: {', '.join(sorted(left))} before it", flush=True)
        return False
    fault = FAULTS[name]
    with fault.happens(system):
        found = watched(system, FIRES_S)
        others = {each: after_s for each, after_s in found.items() if each != fault.alert}
        told = f"{fault.alert} after {found[fault.alert]} s" if fault.alert in found else f"{fault.alert} did NOT fire"
        more = f"; ALSO {others}" if others else ""
        print(f"{name:<20} {told}{more}", flush=True)
    return fault.alert in found and not others


def unchanged(system: System, names: Collection[str]) -> list[str]:
    """Of the metrics that only these faults change, those that have not changed in this run."""
    kinds = {each.name: each.kind for each in ALL}

    def changed(name: str) -> bool:
        series = f'{name}{{home="{system.home}"}}[2h]'
        return bool(prometheus.values(system.stack, f"{prometheus.change(kinds[name], series)} > 0"))

    return [name for name in names if not changed(name)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.monitoring.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--stack", type=Path, required=True, help="the home of a local stack, which is started")
    parser.add_argument("--rate", type=float, default=20.0, help="rounds of the client a second: two requests each")
    parser.add_argument("--healthy", type=float, metavar="S", help="break nothing for so long: no alert may fire")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    options = parser.parse_args(arguments)
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    stack = Stack(options.stack, lambda _: None)
    # One that runs keeps the rules that it was started with.
    stack.stop("prometheus")
    stack.up()
    with unwinding(), tempfile.TemporaryDirectory(prefix="feedstore-faults-") as directory:
        system = System(stack, Path(directory), options.rate)
        try:
            system.begin()
            if options.healthy is not None:
                left = calm(system)
                found = watched(system, options.healthy)
                print(
                    f"healthy for {options.healthy:.0f} s: {found or 'no alert'}; {system.requests:,} requests",
                    flush=True,
                )
                return int(bool(found or left))
            faults = options.faults or list(FAULTS)
            told = [run(system, name) for name in faults]
            print(f"{sum(told)} of {len(told)}; {system.requests:,} requests, {system.refused:,} refused", flush=True)
            shown = [name for name, fault in BY_FAULTS.items() if fault in faults]
            left = unchanged(system, shown)
            print(f"metrics that only these faults change: {len(shown) - len(left)} of {len(shown)} have", flush=True)
            for name in left:
                print(f"{name} has NOT changed, and {BY_FAULTS[name]} should change it", flush=True)
            return int(bool(left) or not all(told))
        finally:
            system.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
