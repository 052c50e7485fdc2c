"""Compares `feed_action_visible_seconds` with a client outside that polls, over the same actions.

    python -m tests.monitoring.visible                       a home with files, made for this
    python -m tests.monitoring.visible --stack DIRECTORY     a local stack, with a process for each stage

The client saves a pin, and asks for the feed of its one follower until the pin is there. It takes the time from its
request to the arrival of the first page with the pin, less half of the time between two polls: so long a pin that can
be read waits for the next poll.

It also knows bounds that hold on any machine: the commit came between the request and its answer, and the pin could be
read between the last page without it and the first one with it. Status 1: the metric's mean is more than 5 % away from
what the client took, or outside of these bounds.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from deploy.local import Stack
from deploy.local.signals import unwinding
from feedstore.metering.plots import quantile
from tests.cli.command import Cli, eventually
from tests.http.http_servers import feedctl_serve
from tests.monitoring.faults import System

AGREES: Final = 0.05
METRIC: Final = "feed_action_visible_seconds"
USER, OWNER = 1, 2
_REST_S: Final = 0.001
_DEADLINE_S: Final = 60.0


class Took(NamedTuple):
    """How long an action took by the client's clock, in seconds. least, most: no less and no more is possible."""

    about: float
    least: float
    most: float


@dataclass(frozen=True)
class Counted:
    """What a histogram holds. below: for each bound, how many values are at most that."""

    count: float
    sum: float
    below: dict[float, float]

    def since(self, before: "Counted") -> "Counted":
        below = {bound: count - before.below.get(bound, 0) for bound, count in self.below.items()}
        return Counted(self.count - before.count, self.sum - before.sum, below)


@dataclass(frozen=True)
class Compared:
    """The same actions as the client and the metric have them, in seconds."""

    client: Sequence[Took]
    metric: Counted

    @property
    def mean(self) -> float:
        return self.metric.sum / self.metric.count

    @property
    def about(self) -> float:
        return statistics.mean(each.about for each in self.client)

    @property
    def least(self) -> float:
        return statistics.mean(each.least for each in self.client)

    @property
    def most(self) -> float:
        return statistics.mean(each.most for each in self.client)

    @property
    def is_possible(self) -> bool:
        """Whether the metric is within 5 % of something that the client may have seen: so on any machine."""
        return self.least * (1 - AGREES) <= self.mean <= self.most * (1 + AGREES)

    def lines(self) -> Sequence[str]:
        p50, client_p50 = quantile(0.5, self.metric.below) or 0.0, statistics.median(each.about for each in self.client)
        bounds = f"(it took between {self.least:.4f} and {self.most:.4f})"
        return (
            f"{len(self.client)} actions; seconds from an action to where it can be read",
            f"mean   metric {self.mean:.4f}   client {self.about:.4f}   {self.mean / self.about - 1:+.1%}   {bounds}",
            f"p50    metric {p50:.4f}   client {client_p50:.4f}   {p50 / client_p50 - 1:+.1%}",
        )


def compare(address: str, cluster: str, scraped: Callable[[], str], actions: int) -> Compared:
    """Saves so many pins, one after the other. address: of a server that serves pages from the cluster. scraped: the
    metrics of the cluster's writer. Nothing else may be recorded meanwhile.
    """
    took = []
    with closing(Client(address, cluster)) as client:
        client.ask("POST", "/v1/follows", {"follower": str(USER), "user": str(OWNER)})
        client.save_and_see(1)
        before = _settled(scraped, cluster, 0)
        for number in range(actions):
            # The rounds of relay and client must not keep step.
            time.sleep(number * 37 % 50 / 1_000)
            took.append(client.save_and_see(number + 2))
    return Compared(took, _settled(scraped, cluster, before.count + actions).since(before))


class Client:
    """One connection. All times are of this machine's monotonic clock."""

    def __init__(self, address: str, cluster: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_DEADLINE_S)
        self._cluster = cluster

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        headers = {} if body is None else {"content-type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = self._connection.getresponse()
        found = answer.read()
        assert answer.status == 200, found
        return dict(json.loads(found))

    def save_and_see(self, pin: int) -> Took:
        asked_s = time.monotonic()
        self.ask("POST", "/v1/pins", {"pin": str(pin), "owner": str(OWNER), "board": str(OWNER)})
        answered_s = without_s = time.monotonic()
        while True:
            began_s = time.monotonic()
            page = self.ask("GET", f"/v1/users/{USER}/feed?limit=5")
            ended_s = time.monotonic()
            # A page of another cluster says nothing of this one.
            if page["served_by"] == self._cluster:
                if any(entry["pin"] == str(pin) for entry in page["entries"]):  # type: ignore[attr-defined]
                    took_s = ended_s - asked_s
                    return Took(took_s - (began_s - without_s) / 2, max(0.0, without_s - answered_s), took_s)
                without_s = began_s
            assert ended_s - asked_s < _DEADLINE_S, f"pin {pin} was never seen"
            time.sleep(_REST_S)


def _settled(scraped: Callable[[], str], cluster: str, count: float) -> Counted:
    """The histogram, once it counts as many or more, and the same for a while: writers tell it once a second."""
    found = [Counted(-1, 0.0, {})]

    def still() -> bool:
        found.append(_counted(scraped(), cluster))
        time.sleep(1.5)
        return found[-1].count >= count and found[-1].count == found[-2].count

    eventually(still, f"{count:.0f} actions are counted", _DEADLINE_S)
    return found[-1]


def _counted(text: str, cluster: str) -> Counted:
    count, total, below = 0.0, 0.0, {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == METRIC else ():
            if sample.labels["cluster"] == cluster:
                match sample.name.removeprefix(METRIC):
                    case "_count":
                        count = sample.value
                    case "_sum":
                        total = sample.value
                    case "_bucket":
                        below[float(sample.labels["le"])] = sample.value
    return Counted(count, total, below)


def text_of(address: str) -> str:
    """What a server counts. One that says that it is busy is asked again."""

    def answered() -> str | None:
        try:
            with urllib.request.urlopen(f"{address}/metrics", timeout=_DEADLINE_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return None

    return str(eventually(answered, f"{address} says what it counts", _DEADLINE_S))


def embedded(directory: Path, actions: int) -> Compared:
    cli = Cli(directory / "home")
    cli("init")
    with feedctl_serve(cli) as (_, address):
        return compare(address, "a", lambda: text_of(address), actions)


def on_a_stack(stack: Stack, directory: Path, actions: int) -> Compared:
    stack.up()
    system = System(stack, directory, rate=0.0)
    try:
        system.begin(canaries=False)
        return compare(system.address, "a", lambda: system.metrics("write-a"), actions)
    finally:
        system.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.monitoring.visible", description=__doc__.splitlines()[0])
    parser.add_argument("--stack", type=Path, help="the home of a local stack, which is started; without it, files")
    parser.add_argument("--actions", type=int, default=300)
    options = parser.parse_args(arguments)
    with unwinding(), tempfile.TemporaryDirectory(prefix="feedstore-visible-") as name:
        if options.stack is None:
            found = embedded(Path(name), options.actions)
        else:
            found = on_a_stack(Stack(options.stack, lambda _: None), Path(name), options.actions)
    print("\n".join(found.lines()))
    return int(not found.is_possible or abs(found.mean / found.about - 1) > AGREES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
