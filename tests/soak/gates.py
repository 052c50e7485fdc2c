"""The network of a site: doors before the second gateways of each cluster, and before the database."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, cast

from deploy.local import Stack, hbase, mariadb
from deploy.local.ports import LOOPBACK
from tests.doors import Door, Manner
from tests.stack import homes

DATABASE: Final = "to-mariadb"
GATEWAYS: Final = tuple(f"to-gateways-{cluster}" for cluster in homes.CLUSTERS)
"""Each is before a second gateway; nothing is before the first ones."""
MANNERS: Final[Mapping[str, tuple[Manner, ...]]] = {
    **dict.fromkeys(GATEWAYS, ("refuse", "cut", "hang", "slow", "errors")),
    DATABASE: ("refuse", "cut", "hang", "slow"),
}


class Gates:
    """For `gates`. instead: what the urls of a home say in place of the servers' own addresses."""

    def __init__(self, doors: Mapping[str, Door], instead: Mapping[str, str]) -> None:
        self._doors = doors
        self.instead = instead

    def begin(self, name: str, how: str) -> None:
        self._doors[name].becomes(cast("Manner", how))

    def end(self, name: str, how: str) -> None:
        del how
        self.begin(name, "open")


@contextmanager
def gates(stack: Stack) -> Iterator[Gates]:
    """All of them are open at first."""
    before = {DATABASE: mariadb.NAME, **dict(zip(GATEWAYS, map(hbase.gateway_name, homes.CLUSTERS), strict=True))}
    doors: dict[str, Door] = {}
    instead = {}
    with ExitStack() as opened:
        for name, server in before.items():
            doors[name] = Door(LOOPBACK, stack.port(server))
            opened.callback(doors[name].end)
            own, behind = f"{LOOPBACK}:{stack.port(server)}", f"{LOOPBACK}:{doors[name].port}"
            instead[own] = behind if name == DATABASE else f"{own},{behind}"
        yield Gates(doors, instead)
