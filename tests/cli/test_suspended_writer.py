"""A writer that was suspended for so long that it counted as ended: its cluster may be another one by then."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from feedstore.app import config as configuration
from feedstore.widecolumn.progress import Progress
from tests.cli.command import Cli
from workers.app import wiring
from workers.following.groups import EXPANDER
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.pipeline.runtime import Loop
from workers.queue.port import lag_of

SUSPENDED_S = 60.0


@dataclass
class Suspended:
    """The parts of a worker of a home, of which the writer of cluster a has written something. now_s: of its clock."""

    cli: Cli
    ports: Ports
    config: configuration.Config
    expander: Loop
    writer: Loop
    now_s: list[float]

    @property
    def progress(self) -> Progress:
        """As another process sees the cluster."""
        return Progress(self.ports.replicas["a"].progress)

    def expand(self) -> None:
        for relay in wiring.relays(self.ports, self.config):
            relay.step()
        while lag_of(self.ports.queue, ACTIONS, EXPANDER):
            self.expander.step()

    def write(self) -> None:
        while lag_of(self.ports.queue, DELIVERIES, "writer-a"):
            self.now_s[0] += 1.0
            self.writer.step()

    def feed(self) -> list[int]:
        return [pin for pin, _ in self.cli.export("a")[1]]


@pytest.fixture
def home(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suspended]:
    now_s = [0.0]
    monkeypatch.setattr(wiring, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    config = configuration.load(cli.home, {})
    cli("follow", 1, "--user", 2)
    cli("save-pin", 101, "--owner", 2, "--board", 9)
    with (
        cli.ports(access="write") as ports,
        closing(wiring.expander(ports, config)) as expander,
        closing(wiring.writer(ports, config, "a")) as writer,
    ):
        home = Suspended(cli, ports, config, expander, writer, now_s)
        home.expand()
        home.write()
        wiring.ticker(ports, config).tick()
        home.expand()
        home.write()
        assert home.progress.watermark() is not None
        yield home


def test_rule_8_a_writer_that_was_suspended_knows_that_its_cluster_was_created_again(home: Suspended) -> None:
    """It would apply what was read before, and what must mask that may have gone with the earlier cluster."""
    home.cli("save-pin", 102, "--owner", 2, "--board", 9)
    home.expand()

    home.progress.made(home.ports.follows.now() + 10_000)
    home.now_s[0] += SUSPENDED_S
    home.write()

    assert home.feed() == [101]
    home.expand()
    home.write()
    assert home.feed() == [102, 101]


def test_rule_10_a_writer_that_was_suspended_knows_that_the_times_of_its_cluster_were_brought_back(
    home: Suspended,
) -> None:
    """It would note ticks and holds where no look reads them: the watermark would be unknown until its restart."""
    watermark_ms = home.progress.watermark()
    assert watermark_ms is not None

    assert home.progress.bring_back(watermark_ms - 1)
    assert home.progress.watermark() is None
    home.now_s[0] += SUSPENDED_S
    wiring.ticker(home.ports, home.config).tick()
    home.expand()
    home.write()

    assert (home.progress.watermark() or 0) > watermark_ms
