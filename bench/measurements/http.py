"""Pages over HTTP, against the same framework answering with a constant of the same size."""

import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import ours
from bench.children import ChildError, child, processor_s
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.results import Row, at_least, interleaved, ratios

LIMIT = 25
CONNECTIONS = 8
START_S = 60.0
LOAD_S = 120.0
ADDRESS = re.compile(r"http://\S+")


def measure(context: Context) -> list[Row]:
    """Pages of 25 over HTTP against a constant of the same size from the same framework"""
    feeds = made_feeds(context.pick(200, 20), CAP, seed=1)
    folder = context.folder("http")
    homes = {name: home_of(folder / name, feeds) for name in ("home", "quiet")}
    paths = [f"/v1/users/{feed.user}/feed?limit={LIMIT}" for feed in feeds]
    count = context.pick(20_000, 400)
    with ExitStack() as stack:
        served = stack.enter_context(serving(ours.feedctl(homes["home"], "serve", "--port", "0"), folder / "serve.log"))
        without_log = ours.feedctl(homes["quiet"], "--log-level", "warning", "serve", "--port", "0")
        quiet = stack.enter_context(serving(without_log, folder / "quiet.log"))
        # The home is held by the first one: this one only reads.
        beside = stack.enter_context(
            serving(ours.feedctl(homes["home"], "serve", "--port", "0"), folder / "beside.log")
        )
        page = get(served.address + paths[0])
        _check(page, feeds[0].entries[:LIMIT])
        length = len(page)
        fixed = [sys.executable, "-m", "bench.http_constant", str(length)]
        constant = stack.enter_context(serving(fixed, folder / "constant.log"))
        as_served = stack.enter_context(serving([*fixed, "as-served"], folder / "as_served.log"))
        taken = interleaved(
            {
                "constant": lambda: load(constant, CONNECTIONS, count, paths),
                "as_served": lambda: load(as_served, CONNECTIONS, count, paths),
                "page": lambda: load(served, CONNECTIONS, count, paths),
                "quiet": lambda: load(quiet, CONNECTIONS, count, paths),
                "beside": lambda: load(beside, CONNECTIONS, count, paths),
                "alone": lambda: load(served, 1, count // 5, paths),
            },
            max(5, context.repeats),
        )
    rate = {side: [each["rate"] for each in some] for side, some in taken.items()}
    share = statistics.median(each["server_share"] for each in taken["page"])
    return [
        Row(
            "pages of 25 / a constant of the same size, requests a second",
            "x",
            ratios(rate["page"], rate["constant"]),
            at_least(0.5),
            f"{CONNECTIONS} connections; an answer of {length:,} bytes; the server had {share:.0%} of a core",
        ),
        Row("the same without a line in the log for each request", "x", ratios(rate["quiet"], rate["constant"])),
        Row(
            "the same / the constant on our connections, which send head and body at once",
            "x",
            ratios(rate["page"], rate["as_served"]),
        ),
        Row("pages of 25 over HTTP", "requests/s", rate["page"]),
        Row(
            "pages of 25 beside the process that writes / a constant, requests a second",
            "x",
            ratios(rate["beside"], rate["constant"]),
        ),
        Row("the constant", "requests/s", rate["constant"]),
        Row("the constant on our connections", "requests/s", rate["as_served"]),
        Row("processor time of the server, a page", "us", [each["server_us"] for each in taken["page"]]),
        Row("the same without the log", "us", [each["server_us"] for each in taken["quiet"]]),
        Row("processor time of the server, a constant", "us", [each["server_us"] for each in taken["constant"]]),
        Row(
            "processor time of the server, a constant on our connections",
            "us",
            [each["server_us"] for each in taken["as_served"]],
        ),
        Row(
            "processor time of the server, a page / a constant",
            "x",
            ratios([each["server_us"] for each in taken["page"]], [each["server_us"] for each in taken["constant"]]),
        ),
        Row("a page over one connection, p50", "us", [each["p50_us"] for each in taken["alone"]]),
        Row("a page over one connection, p99", "us", [each["p99_us"] for each in taken["alone"]]),
    ]


def home_of(path: Path, feeds: Sequence[Feed]) -> Path:
    """A home with these feeds in both clusters."""
    with ours.ports(ours.make_home(path)) as opened:
        for replica in opened.replicas.values():
            ours.fill(replica, feeds)
    return path


class Server(NamedTuple):
    address: str
    process: psutil.Process


@contextmanager
def serving(args: Sequence[str], log: Path) -> Iterator[Server]:
    """A server that has printed its address."""
    with child(args, log, watched=False) as running:
        deadline_s = time.monotonic() + START_S
        while not (said := ADDRESS.search(log.read_text())):
            if time.monotonic() > deadline_s or running.process.poll() is not None:
                raise ChildError(f"{args}: no address: {log.read_text()[-2_000:]}")
            time.sleep(0.05)
        yield Server(said[0], psutil.Process(running.process.pid))


def load(server: Server, connections: int, count: int, paths: Sequence[str]) -> dict[str, float]:
    """A client's run; the client is a process of its own."""
    port = server.address.rpartition(":")[2]
    before_s = processor_s(server.process)
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load", port, str(connections), str(count)],
        input="\n".join(paths),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LOAD_S,
    )
    took_s = processor_s(server.process) - before_s
    said = json.loads(done.stdout)
    answered = said["answered"]
    return {
        "rate": answered / said["seconds"],
        "server_us": 1e6 * took_s / answered,
        "server_share": took_s / said["seconds"],
        "p50_us": said["p50_us"],
        "p99_us": said["p99_us"],
    }


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=START_S) as answer:
        return bytes(answer.read())


def _check(page: bytes, entries: Sequence[tuple[int, int]]) -> None:
    """What is timed is also right."""
    lines = json.loads(page)["entries"]
    assert [(int(line["pin"]), line["created_ms"]) for line in lines] == list(entries)
