"""Parts of the way of an action, on a home that no worker holds."""

from contextlib import closing

from feedstore.app import config as configuration
from tests.cli.command import Cli
from workers.app import wiring
from workers.following.groups import EXPANDER, writer_group
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of


def relay_all(cli: Cli) -> None:
    """Relays all that was recorded, and expands nothing."""
    with cli.ports(access="write") as ports:
        relays = wiring.relays(ports, configuration.load(cli.home, {}))[: ports.follows.shards()]
        while ports.follows.unrelayed(1):
            for relay in relays:
                relay.step()


def expand_all(cli: Cli) -> None:
    """Expands all that was recorded, and writes nothing."""
    relay_all(cli)
    with (
        cli.ports(access="write") as ports,
        closing(wiring.expander(ports, configuration.load(cli.home, {}))) as expander,
    ):
        while lag_of(ports.queue, ACTIONS, EXPANDER):
            expander.step()


def land(cli: Cli, ports: Ports, cluster: str) -> None:
    """Expands and writes all that is in the queue, and relays nothing."""
    config = configuration.load(cli.home, {})
    groups = [(ACTIONS, EXPANDER), (DELIVERIES, writer_group(cluster))]
    with (
        closing(wiring.expander(ports, config)) as expander,
        closing(wiring.writer(ports, config, cluster)) as writer,
    ):
        while any(lag_of(ports.queue, *each) for each in groups):
            expander.step()
            writer.step()
