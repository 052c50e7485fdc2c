"""What other servers would bring for pages over HTTP: processor time and rate of a page, and of a constant of the same
size, by each server in turn.

    pip install --target build/servers granian robyn
    PYTHONPATH=build/servers python -m bench.http_servers [--count 5000] [--repeats 5]

granian serves our application as it is (ASGI); its own interface (RSGI) and robyn are timed with the constant alone, as
the application would have to be written for them. None of the pages is logged. Servers that are not installed are
left out.
"""

import argparse
import importlib.util
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import structlog

from bench import ours
from bench.children import free_port
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.measurements.http import CONNECTIONS, LIMIT, START_S, Server, get, home_of, load, serving
from bench.results import interleaved, ratios
from deploy.local.signals import unwinding
from feedstore.app import http as http_wiring
from feedstore.app.config import load as load_config
from feedstore.app.services import services_on
from feedstore.http.app import App
from workers.app.metrics import ALL
from workers.app.queue_status import OpenQueues

PATH: Final = "/v1/users/{user}/feed"
FEEDS: Final = 200


def constant(length: int) -> bytes:
    return b'"' + b"x" * (length - 2) + b'"'


def pages(home: str) -> App:
    """Our application, in the process that owns the files."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    config = load_config(Path(home), {})
    stack = ExitStack()
    ports = stack.enter_context(ours.ports(config))
    on = (config, ports.follows, ports.replicas.values(), ports.clock)
    services = stack.enter_context(services_on(*on))
    app = http_wiring.open_app(config, os.environ, services, OpenQueues(ports), owns_clusters=True, definitions=ALL)
    app.opened = stack  # type: ignore[attr-defined]  # it lives as long as the application
    return app


def pages_here() -> App:
    """For a server that makes the application in a process of its own."""
    return pages(os.environ["BENCH_HOME"])


def constant_here() -> Any:
    """The constant for granian's own interface."""
    content = constant(int(os.environ["BENCH_BYTES"]))
    headers = [("content-type", "application/json")]

    async def answer(scope: Any, protocol: Any) -> None:  # noqa: ARG001 - a constant
        protocol.response_bytes(200, headers, content)

    return answer


def serve(server: str, what: str) -> None:
    """Serves until SIGTERM, and prints the address. what: a home, or the bytes of a constant."""
    os.environ["BENCH_HOME"] = os.environ["BENCH_BYTES"] = what
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if server == "uvicorn":
        config = load_config(Path(what), {})
        ours_ = http_wiring.server(config, pages(what), http_wiring.listen(config, "127.0.0.1", 0))
        ours_.start()
        print(ours_.address, flush=True)
        signal.pause()
    port = free_port()
    print(f"http://127.0.0.1:{port}", flush=True)
    if server == "robyn":
        robyn(int(what), port)
    else:
        granian(server, port)


def granian(interface: str, port: int) -> None:
    from granian import Granian  # noqa: PLC0415 - if it is installed
    from granian.constants import HTTPModes, Interfaces, Loops  # noqa: PLC0415 - the same

    Granian(
        "bench.http_servers:" + ("pages_here" if interface == "asgi" else "constant_here"),
        factory=True,
        port=port,
        interface=Interfaces.ASGINL if interface == "asgi" else Interfaces.RSGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
    ).serve()


def robyn(length: int, port: int) -> None:
    from robyn import Response, Robyn  # noqa: PLC0415 - if it is installed

    content = constant(length).decode()
    app = Robyn(__file__)

    @app.get("/v1/users/:user/feed")  # type: ignore[untyped-decorator]
    async def answer() -> Any:
        return Response(200, {"content-type": "application/json"}, content)

    app.start("127.0.0.1", port, _check_port=False)


def measure(count: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-http-") as folder, ExitStack() as stack:
        feeds = made_feeds(FEEDS, CAP, seed=1)
        paths = [f"{PATH.format(user=feed.user)}?limit={LIMIT}" for feed in feeds]

        def started(*words: str) -> Server:
            log = Path(folder) / f"{len(list(Path(folder).iterdir()))}.log"
            return stack.enter_context(serving([sys.executable, "-m", *words], log))

        def page_server(name: str) -> Server:
            home = home_of(Path(folder) / f"home-{name}", feeds)
            return started("bench.http_servers", "--serve", name, str(home))

        servers = {"page, uvicorn": page_server("uvicorn")}
        page = answered(servers["page, uvicorn"], paths[0])
        length = str(len(page))
        servers["constant, uvicorn"] = started("bench.http_constant", length)
        servers["constant, uvicorn on our connections"] = started("bench.http_constant", length, "as-served")
        if importlib.util.find_spec("granian"):
            servers["page, granian"] = page_server("asgi")
            same = answered(servers["page, granian"], paths[0])
            assert json.loads(same)["entries"] == json.loads(page)["entries"]
            servers["constant, granian"] = started("bench.http_servers", "--serve", "rsgi", length)
        if importlib.util.find_spec("robyn"):
            servers["constant, robyn"] = started("bench.http_servers", "--serve", "robyn", length)
        for server in servers.values():
            assert len(answered(server, paths[0])) == len(page)

        def loaded(server: Server) -> Callable[[], dict[str, float]]:
            return lambda: load(server, CONNECTIONS, count, paths)

        sides = {name: loaded(server) for name, server in servers.items()}
        interleaved(sides, 1)
        taken = interleaved(sides, repeats)
    for unit, field, base in (("us", "server_us", "page, uvicorn"), ("requests/s", "rate", "page, uvicorn")):
        values = {name: [each[field] for each in some] for name, some in taken.items()}
        for name, some in values.items():
            shares = sorted(ratios(some, values[base]))
            print(
                f"{name}: {statistics.median(some):,.1f} {unit} ({min(some):,.1f} .. {max(some):,.1f}),"
                f" {statistics.median(shares):.3f} x our page ({shares[0]:.3f} .. {shares[-1]:.3f})"
            )


def answered(server: Server, path: str) -> bytes:
    """An answer, once the server listens."""
    until_s = time.monotonic() + START_S
    while True:
        try:
            return get(server.address + path)
        except urllib.error.URLError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.http_servers", description=__doc__)
    parser.add_argument("--count", type=int, default=5_000, help="requests a sample (default 5000)")
    parser.add_argument("--repeats", type=int, default=5, help="samples (default 5)")
    parser.add_argument("--serve", nargs=2, metavar=("SERVER", "WHAT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        sys.argv[1:] = []  # robyn reads them
        serve(*chosen.serve)
    else:
        measure(chosen.count, chosen.repeats)


if __name__ == "__main__":
    with unwinding():
        main()
