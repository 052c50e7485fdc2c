"""A server under siege: `feedctl serve` while six kinds of adversaries (`bench.adversaries`) hold as many connections
as they get. Another client, from another address, keeps asking for /healthz and for pages.

    python -m bench.siege [--seconds 120] [--patience 10] [--connections 1000] [--addresses 1]

It prints what was reached next to what is promised, and exits with 1 where that was missed.
"""

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bench import ours
from bench.children import MIB, without_settings
from bench.meanwhile import meanwhile
from bench.measurements.http import serving
from bench.results import Row, at_least, at_most, percentile
from deploy.local.signals import unwinding

GROWTH_MIB_MAX: Final = 50.0
IN_TIME_S: Final = 1.0
IN_TIME_SHARE: Final = 0.999
PATIENCES: Final = 2.0
"""How long a connection may live, in patiences."""
PROBE_FROM: Final = "127.0.0.2"
PROBE_EVERY_S: Final = 0.02
PROBED: Final = {"/healthz": b'{"status":"ok"}', "/v1/users/1/feed": b'"entries":[{"pin"'}
ENTRIES: Final = 1_000
LOOK_S: Final = 0.25
REFUSED_SHOWN: Final = 8
LEFT_S: Final = 120.0
START_S: Final = 60.0


@dataclass
class Probed:
    """times_s: of the requests to one path; one that failed took for ever."""

    times_s: list[float] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)

    def share_in_time(self) -> float:
        return sum(each <= IN_TIME_S for each in self.times_s) / max(1, len(self.times_s))


@contextlib.contextmanager
def looking(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Looks again and again until the end of the block. Raises what a look has raised."""

    def run(ended: threading.Event) -> None:
        look()
        while not ended.wait(every_s):
            look()

    with meanwhile(run):
        yield


class Probe:
    """Asks each path in turn, on a new connection each time, as a balancer's health check does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.of = {path: Probed() for path in PROBED}

    def look(self) -> None:
        for path, expected in PROBED.items():
            began_s = time.perf_counter()
            answered = ask(self._port, path, PROBE_FROM)
            well = answered.startswith(b"HTTP/1.1 200") and expected in answered
            if not well:
                self.of[path].refused.append(b"%.1f s: " % (time.perf_counter() - began_s) + answered[:100])
            self.of[path].times_s.append(time.perf_counter() - began_s if well else float("inf"))


class Watch:
    """Looks at a server and its adversaries from outside.

    peak_bytes: the most memory that it held. longest_s: how long it held the connection that it held longest. most,
    now: how many it held at once, and holds.
    """

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._since_s: dict[object, float] = {}
        self._last_new_s = time.monotonic()
        self.peak_bytes = 0
        self.longest_s = 0.0
        self.most = 0
        self.now = 0

    def look(self) -> None:
        now_s = time.monotonic()
        self.peak_bytes = max(self.peak_bytes, int(self._process.memory_info().rss))
        peers = (each.raddr for each in self._process.net_connections("tcp4") if len(each.raddr))
        clients = {each for each in peers if each[0] != PROBE_FROM}
        if clients - self._since_s.keys():
            self._last_new_s = now_s
        self._since_s = {each: self._since_s.get(each, now_s) for each in clients}
        self.longest_s = max(self.longest_s, *(now_s - since_s for since_s in self._since_s.values()), 0.0)
        self.now = len(clients)
        self.most = max(self.most, self.now)

    def until_alone(self, within_s: float) -> float:
        """Waits until the server holds no adversary; how long that took from the last one that it accepted."""
        until_s = time.monotonic() + within_s
        while self.now and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        return time.monotonic() - self._last_new_s


def ask(port: int, path: str, source: str, method: str = "GET", body: bytes = b"") -> bytes:
    """The whole answer; empty where there was none."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    try:
        with closing(socket.create_connection(("127.0.0.1", port), 5.0, (source, 0))) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while part := connection.recv(65_536):
                answer += part
    except OSError as error:
        return repr(error).encode()
    return answer


@contextlib.contextmanager
def serving_a_long_feed(home: Path, patience_s: float, connections: int) -> Iterator[tuple[psutil.Process, int]]:
    """`feedctl serve`, and its port."""
    ours.make_home(home)
    bounds = [f"FEED_HTTP_PATIENCE={round(1_000 * patience_s)}ms", f"FEED_HTTP_CONNECTIONS={connections}"]
    serve = ["env", *bounds, *ours.feedctl(home, "serve", "--port", "0")]
    with serving(serve, home / "serve.log") as (address, process):
        port = int(address.rpartition(":")[2])
        _fill(port)
        yield process, port


def _fill(port: int) -> None:
    ask(port, "/v1/follows", PROBE_FROM, "POST", b'{"follower": "1", "user": "2"}')
    for pin in range(1, ENTRIES + 1):
        ask(port, "/v1/pins", PROBE_FROM, "POST", b'{"pin": "%d", "owner": "2", "board": "9"}' % pin)
    end_s = time.monotonic() + START_S
    while b'"entries":%d' % ENTRIES not in ask(port, "/v1/users/1/feed/size", PROBE_FROM):
        if time.monotonic() > end_s:
            raise TimeoutError(
                "the feed was not filled in time: " + repr(ask(port, "/v1/users/1/feed/size", PROBE_FROM))
            )
        time.sleep(0.1)


def siege(seconds: float, patience_s: float, connections: int, addresses: int) -> Sequence[Row]:
    with tempfile.TemporaryDirectory(prefix="siege-") as scratch:
        home = Path(scratch) / "home"
        with serving_a_long_feed(home, patience_s, connections) as (process, port):
            for _ in range(200):
                for path in (*PROBED, "/v1/users/1/feed?limit=1000"):
                    ask(port, path, PROBE_FROM)
            before = process.memory_info().rss
            sources = ",".join(f"127.0.1.{number}" for number in range(1, addresses + 1))
            words = [str(port), str(seconds), str(connections), sources]
            command = [sys.executable, "-m", "bench.adversaries", *words]
            watch, probe = Watch(process), Probe(port)
            with (
                looking(watch.look, LOOK_S),
                looking(probe.look, PROBE_EVERY_S),
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as attack,
            ):
                try:
                    time.sleep(seconds)
                    gone_s = watch.until_alone(LEFT_S)
                    said, _ = attack.communicate(timeout=START_S)
                finally:
                    attack.kill()
        log = (home / "serve.log").read_text()
    scores = json.loads(said)
    for name, score in scores.items():
        print(
            f"{name:<26} {score['connections']:>9,} connections, {score['refused']:>7,} refused,"
            f" {score['sent_bytes'] / MIB:>9,.1f} MiB sent"
        )
    print(f"at most {watch.most:,} connections at once")
    for path, probed in probe.of.items():
        p50, p999 = (1_000 * percentile(probed.times_s, share) for share in (0.5, 0.999))
        worst = 1_000 * max(probed.times_s)
        for refused in probed.refused[:REFUSED_SHOWN]:
            print(f"{path:<26} {refused!r}")
        print(
            f"{path:<26} {len(probed.times_s):>9,} asked, p50 {p50:.1f} ms, p99.9 {p999:.1f} ms, worst {worst:.1f} ms"
        )
    alive_s = at_most(PATIENCES * patience_s)
    in_time = at_least(100 * IN_TIME_SHARE)
    return [
        Row("memory grew by", "MiB", [(watch.peak_bytes - before) / MIB], at_most(GROWTH_MIB_MAX)),
        Row("longest connection", "s", [watch.longest_s], alive_s),
        Row("all gone after the last one came", "s", [gone_s], alive_s),
        Row("connections that were left", "", [watch.now], at_most(0)),
        *(
            Row(f"{path} within {IN_TIME_S:g} s", "%", [100 * probed.share_in_time()], in_time)
            for path, probed in probe.of.items()
        ),
        Row("tracebacks in the log", "", [log.count("Traceback")], at_most(0)),
    ]


def line(row: Row) -> str:
    assert row.target is not None
    return (
        f"{row.what:<48} {row.samples[0]:>10.4g} {row.unit:<4} {row.target.kind} {row.target.value:g}:"
        f" {row.verdict.replace('missed', 'MISSED')}"
    )


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m bench.siege", description=__doc__)
    made.add_argument("--seconds", type=float, default=120.0, help="how long (default 120)")
    made.add_argument("--patience", type=float, default=10.0, help="[http] patience, in seconds (default 10)")
    made.add_argument(
        "--connections", type=int, default=1_000, help="[http] connections; each kind wants as many (default 1000)"
    )
    made.add_argument("--addresses", type=int, default=1, help="how many the adversaries come from (default 1)")
    chosen = made.parse_args()
    without_settings()
    try:
        with unwinding():
            rows = siege(chosen.seconds, chosen.patience, chosen.connections, chosen.addresses)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(*map(line, rows), sep="\n")
    return 0 if all(row.verdict == "met" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
