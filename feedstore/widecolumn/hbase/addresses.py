"""Where a cluster's gateways are: the url.

    hbase://HOST:PORT[,HOST:PORT...][/NAMESPACE][?OPTION=VALUE[&OPTION=VALUE...]]

The hosts are Thrift2 gateways. All of them lead to the same cluster: any of them may answer. NAMESPACE is HBase's;
`default` if none is given.

    hbase://10.0.0.1:9091,10.0.0.2:9091/?read_ms=800

Options, with their defaults:
- `connections` (16): the most to the gateways together, and to each region server.
- `connect_ms` (1000): how long opening a connection may take.
- `read_ms` (5000), `write_ms` (30000): how long one call may take in all, on however many gateways it is tried.
- `sync` (`disk`): what a write waits for. `disk`: every server that gets the log has it on its disk. `memory`: they
  have it in memory, and a zone that loses its power loses what it acknowledged last.
- `reads` (`direct`): what readers ask for rows. `direct`: the region servers that have them, as long as they can be
  reached from here, else the gateways. `gateways`: only the gateways.
- `thrift1`: may be in the urls of older homes, with gateways of another kind, which served scans. It is not used.
"""

import re
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, get_args
from urllib.parse import parse_qsl, urlsplit

Sync = Literal["disk", "memory"]
"""Where a write is, on every server that gets the log, when it is acknowledged."""

Reads = Literal["direct", "gateways"]

_NAMESPACE = re.compile(r"[A-Za-z0-9_]{1,64}")


class Address(NamedTuple):
    """Where one gateway listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Addresses:
    """The parts of a url. connections: the most that are open to the gateways together, and to each region server."""

    thrift2: tuple[Address, ...]
    namespace: str = "default"
    connections: int = 16
    connect_ms: int = 1_000
    read_ms: int = 5_000
    write_ms: int = 30_000
    sync: Sync = "disk"
    reads: Reads = "direct"

    def __post_init__(self) -> None:
        if not self.thrift2:
            raise ValueError("gateways: expected at least one HOST:PORT")
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(f"namespace: expected letters, digits and underscores, got {self.namespace!r}")
        if self.sync not in get_args(Sync):
            raise ValueError(f"sync: expected disk or memory, got {self.sync!r}")
        if self.reads not in get_args(Reads):
            raise ValueError(f"reads: expected direct or gateways, got {self.reads!r}")
        for name in _NUMBERS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises ValueError, which names what is wrong with the url."""
        try:
            return cls(**_parse(url))
        except ValueError as error:
            raise ValueError(f"url {url!r}: {error}") from error


_NUMBERS = {field.name for field in fields(Addresses) if field.type is int}


def _parse(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme != "hbase":
        raise ValueError("expected hbase://HOST:PORT/")
    pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ValueError("an option is in it twice; commas separate the gateways of a list")
    options.pop("thrift1", None)
    words: dict[str, Any] = {name: options.pop(name) for name in ("sync", "reads") if name in options}
    if unknown := options.keys() - _NUMBERS:
        raise ValueError(f"unknown option {', '.join(sorted(unknown))}")
    numbers = {name: _number(name, text) for name, text in options.items()}
    namespace = parts.path.strip("/") or "default"
    return {"thrift2": _addresses(parts.netloc), "namespace": namespace, **words, **numbers}


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(_address(each) for each in text.split(",") if each)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        if colon and host.encode("idna") and port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535:
            return Address(host, int(port))
    except UnicodeError:  # no name of a host, such as one with two dots in a row
        pass
    raise ValueError(f"expected HOST:PORT, got {text!r}")


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ValueError(f"{name}: expected a whole number from 1, got {text!r}")
    return int(text)
