"""Where the regions of the feeds are, as hbase:meta has it."""

from contextlib import closing
from dataclasses import dataclass

from feedstore.following import FEEDS
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase import Addresses
from feedstore.widecolumn.hbase.addresses import Address

_PATIENCE_MS = 3_000


@dataclass(frozen=True)
class Region:
    """start, end: row keys, empty at the ends of the table. server: the host, empty while it is nowhere."""

    start: bytes
    end: bytes
    server: str

    def holds(self, row: bytes) -> bool:
        return self.start <= row and (not self.end or row < self.end)


def regions(url: str) -> list[Region]:
    """The regions of the feeds, in the order of their rows. Raises UnavailableError."""
    addresses = Addresses.parse(url)
    return sorted(_of(addresses, f"{addresses.namespace}:{FEEDS}"), key=lambda region: region.start)


def server_of_meta(url: str) -> str:
    """The host that holds hbase:meta. Raises UnavailableError."""
    (region,) = _of(Addresses.parse(url), "hbase:meta")
    return region.server


def _of(addresses: Addresses, table: str) -> list[Region]:
    """Asks one gateway after the other: a drill may have taken any of them away."""
    failures = []
    for gateway in addresses.thrift1:
        try:
            return _asked(gateway, table)
        except UnavailableError as error:
            failures.append(str(error))
    raise UnavailableError("; ".join(failures))


def _asked(gateway: Address, table: str) -> list[Region]:
    import happybase  # noqa: PLC0415 - an extra
    from thriftpy2.thrift import TException  # noqa: PLC0415

    try:
        with closing(happybase.Connection(gateway.host, gateway.port, timeout=_PATIENCE_MS)) as connection:
            found = connection.table(table).regions()
    except (OSError, TException) as error:
        raise UnavailableError(f"{gateway}: where the regions of {table} are: {error}") from error
    return [
        Region(each["start_key"], each["end_key"], (each["server_name"] or b"").decode().partition(".")[0])
        for each in found
    ]
