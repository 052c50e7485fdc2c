"""Decides which connections a server keeps if more clients come than it has places for. Pure: it closes nothing."""

import ipaddress
from collections import defaultdict
from collections.abc import Hashable
from functools import lru_cache
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

SPARE_PLACES: Final = 32
"""How many spare places a server has."""
_IPV6_NETWORK_BITS: Final = 64
"""The prefix of a client's network with IPv6: a client has all of it, and may connect from every address in it."""


class Client(Hashable, Protocol):
    def rank(self) -> int | None:
        """How readily the client gives up its place, the lowest first; None if it does not: it is being answered."""


C = TypeVar("C", bound=Client)


class Admission(NamedTuple, Generic[C]):
    """The place of a new client. spare: whether it is one of the spare places. leaves: who lost it, if any."""

    spare: bool
    leaves: C | None


class Places(Generic[C]):
    """At most `places` clients, and `spare` more.

    If all places are taken, a new client may replace a client of the network with the most places, if its own network
    has fewer. So one network may have all places as long as no other one asks, and an equal share if others do. A
    client that gets no place gets a spare one, if needed that of the oldest client there: the spare places are for
    health checks, which are short.
    """

    def __init__(self, places: int, spare: int) -> None:
        self._places = places
        self._spare_places = spare
        self._taken = 0
        # Both in the order of arrival.
        self._by_network: defaultdict[str, dict[C, None]] = defaultdict(dict)
        self._spare: dict[C, None] = {}

    def full(self) -> bool:
        return self._taken >= self._places

    def enter(self, client: C, network: str) -> Admission[C]:
        """Finds a place for a client. If another client loses its place, it is forgotten here; the caller closes it."""
        leaves: C | None = None
        if self.full():
            leaves = self._displaced(len(self._by_network.get(network, ())))
            if leaves is None:
                if len(self._spare) >= self._spare_places:
                    leaves = next(iter(self._spare))
                    del self._spare[leaves]
                self._spare[client] = None
                return Admission(spare=True, leaves=leaves)
        self._by_network[network][client] = None
        self._taken += 1
        return Admission(spare=False, leaves=leaves)

    def leave(self, client: C, network: str) -> None:
        """Gives up a client's place, if it has one."""
        if client in self._spare:
            del self._spare[client]
        elif client in self._by_network.get(network, ()):
            self._remove(client, network)

    def _displaced(self, own: int) -> C | None:
        """Removes and returns the client that gives way to one of a network with `own` places; None if none does."""
        most = max(self._by_network, key=lambda network: len(self._by_network[network]))
        # With a difference of one, two networks would take the last place from each other for ever.
        if len(self._by_network[most]) <= own + 1:
            return None
        ranked = ((rank, client) for client in self._by_network[most] if (rank := client.rank()) is not None)
        found = min(ranked, key=lambda each: each[0], default=None)
        if found is None:
            return None
        self._remove(found[1], most)
        return found[1]

    def _remove(self, client: C, network: str) -> None:
        held = self._by_network[network]
        del held[client]
        if not held:
            del self._by_network[network]
        self._taken -= 1


@lru_cache(maxsize=1_024)
def network(host: str) -> str:
    """The name of a client: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))
