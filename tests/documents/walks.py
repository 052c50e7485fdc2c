"""How many files of this project an action and a page pass through, as docs/architecture.md says.

`python -m tests.documents.walks` prints what it counts: the files, and the functions, that are called on an embedded
home after a first round has loaded and opened everything. Nothing is left out but what a walk meets by chance
(`ONCE_A_SECOND`). The files that only count, trace or log what the others do are counted once more by themselves
(`OBSERVES`).
"""

import http.client
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from feedstore.app import http as http_wiring
from feedstore.app.config import Config
from feedstore.app.services import services_on
from feedstore.http import listening
from tests.cli.command import Cli
from workers.app import home, wiring
from workers.app.metrics import ALL
from workers.app.queue_status import OpenQueues
from workers.following.ports import Ports
from workers.pipeline.runtime import Loop

ROOT: Final = Path(__file__).parents[2]
_OURS: Final = (f"{ROOT}/feedstore/", f"{ROOT}/workers/")
_OPTIMIZED: Final = 1
"""The flag of functions: the bodies of modules and classes, which run when they are loaded, have it not."""
READER, FOLLOWED = 1, 9

OBSERVES: Final = frozenset(
    {
        "feedstore/http/metrics.py",
        "feedstore/metering/meter.py",
        "feedstore/tracing/port.py",
        "feedstore/widecolumn/metered.py",
        "workers/app/logs.py",
        "workers/pipeline/tally.py",
        "workers/queue/metered.py",
    }
)
"""What only counts, traces or logs: without these files an action and a page travel the same way."""


ONCE_A_SECOND: Final = frozenset({"feedstore/following/witnesses.py"})
"""What a writer looks at once a second: a walk meets it if it takes longer, and it is not counted."""


class Walk(NamedTuple):
    """The files, and the functions by their files, that were called."""

    files: frozenset[str]
    functions: frozenset[tuple[str, str]]


class _Watch:
    """Notes calls on all threads that begin after it."""

    def __init__(self) -> None:
        self._called: set[tuple[str, str]] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        called = self._called
        if called is not None and event == "call" and code.co_flags & _OPTIMIZED and code.co_filename.startswith(_OURS):
            called.add((code.co_filename.removeprefix(f"{ROOT}/"), f"{code.co_name}:{code.co_firstlineno}"))

    @contextmanager
    def walk(self) -> Iterator[list[Walk]]:
        """Gives the walk at the end of the block."""
        walks: list[Walk] = []
        called: set[tuple[str, str]] = set()
        self._called = called
        try:
            yield walks
        finally:
            self._called = None
            found = frozenset(each for each in called if each[0] not in ONCE_A_SECOND)
            walks.append(Walk(frozenset(file for file, _ in found), found))


@contextmanager
def _watching() -> Iterator[_Watch]:
    before = sys.getprofile()
    watch = _Watch()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def walks(directory: Path) -> dict[str, Walk]:
    """The walks on a new home at a path, by their legs. A follow is the union of its legs."""
    config = home.create(directory, {})
    cli = Cli(directory)
    found: dict[str, Walk] = {}
    with _watching() as watch, closing(wiring.open_ports(config, "write")) as ports:
        for pin in (6, 7):
            cli("save-pin", pin, "--owner", FOLLOWED, "--board", 8)
        loops = {
            "relay": wiring.relays(ports, config)[0],
            "expander": wiring.expander(ports, config),
            "writer": wiring.writer(ports, config, "a"),
        }
        cli("follow", READER, "--user", FOLLOWED)
        _run(loops)
        with watch.walk() as each:
            cli("follow", READER + 1, "--user", FOLLOWED)
        found["record"] = each[0]
        for name, loop in loops.items():
            with watch.walk() as each:
                while loop.step():
                    pass
            found[name] = each[0]
        found["page"] = _page(watch, config, ports)
        for loop in loops.values():
            loop.close()
    legs = [found[name] for name in ("record", *loops)]
    found["follow"] = Walk(
        frozenset().union(*(leg.files for leg in legs)), frozenset().union(*(leg.functions for leg in legs))
    )
    return found


def _run(loops: dict[str, Loop]) -> None:
    for loop in loops.values():
        while loop.step():
            pass


def _page(watch: _Watch, config: Config, ports: Ports) -> Walk:
    # The feed has more than the page: the last page of a feed would ask for a refill.
    with services_on(config, ports.follows, ports.replicas.values(), ports.clock) as services:
        app = http_wiring.open_app(config, {}, services, OpenQueues(ports), owns_clusters=True, definitions=ALL)
        with closing(http_wiring.server(config, app, listening.listen("127.0.0.1", 0))) as server:
            server.start()
            host, _, port = server.address.removeprefix("http://").rpartition(":")
            client = http.client.HTTPConnection(host, int(port), timeout=60)
            try:
                for _ in range(2):  # the first one opens what the others use
                    with watch.walk() as each:
                        client.request("GET", f"/v1/users/{READER}/feed?limit=1")
                        answer = client.getresponse()
                        page = answer.read()
                    assert answer.status == 200, page
            finally:
                client.close()
    (walk,) = each
    return walk


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for name, walk in walks(Path(made) / "home").items():
            carry = len(walk.files - OBSERVES)
            print(f"{name}: {len(walk.files)} files, {carry} of them to do it, {len(walk.functions)} functions")
            if "-v" in sys.argv:
                print(*sorted(walk.files), sep="\n")
