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

    def __init__(self, doors: Mapping[str, list[Door]], instead: Mapping[str, str]) -> None:
        self._doors = doors
        self.instead = instead

    def begin(self, name: str, how: str) -> None:
        for door in self._doors[name]:
            door.becomes(cast("Manner", how))

    def end(self, name: str, how: str) -> None:
        del how
        self.begin(name, "open")


@contextmanager
def gates(stack: Stack) -> Iterator[Gates]:
    """All of them are open at first."""
    with ExitStack() as opened:

        def door(server: str) -> Door:
            made = Door(LOOPBACK, stack.port(server))
            opened.callback(made.end)
            return made

        doors = {DATABASE: {mariadb.NAME: door(mariadb.NAME)}}
        for name, cluster in zip(GATEWAYS, homes.CLUSTERS, strict=True):
            doors[name] = {hbase.gateway_name(cluster): door(hbase.gateway_name(cluster))}
        instead = {}
        for name, named in doors.items():
            for server, leads in named.items():
                own, behind = f"{LOOPBACK}:{stack.port(server)}", f"{LOOPBACK}:{leads.port}"
                instead[own] = behind if name == DATABASE else f"{own},{behind}"
        yield Gates({name: [*named.values()] for name, named in doors.items()}, instead)
