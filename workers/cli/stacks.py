"""The `feed.toml` of a home that works on real servers which `make` starts: the local stack (docs/local-stack.md), or
the Docker clusters (docs/docker.md). A file of the stack's own directory says where their servers are.
"""

from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from feedstore.errors import ConfigError

Kind = Literal["local", "docker"]
_T = TypeVar("_T")

STATE: Final = "stack.json"
PLACES: Final = "places.json"
SHARDS: Final = ("follows_0", "follows_1")
PARTITIONS: Final = 4


class _State(msgspec.Struct, frozen=True):
    ports: dict[str, dict[str, int]]


class _Gateways(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one cluster, each as HOST:PORT. zookeeper: empty if it cannot be reached from here."""

    thrift2: list[str]
    thrift1: list[str]
    zookeeper: str = ""


class _Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the servers of a stack are. database, kafka: HOST:PORT. jars: the Java class path of `feedctl table`.

    options: of the databases' urls, besides the password's file. has_tokens: whether the HTTP API asks for
    them. prometheus: HOST:PORT of one that scrapes the processes of the home; empty if there is none. targets: the
    directory in which they tell it where they are; empty if it knows.
    """

    clusters: dict[str, _Gateways]
    database: str
    password_file: str
    kafka: str
    jars: str = ""
    options: str = ""
    has_tokens: bool = False
    prometheus: str = ""
    targets: str = ""


def home(kind: Kind) -> Path:
    """Where a stack of this kind is, unless another place is named."""
    return Path(".stack") if kind == "local" else Path(".cluster")


def replacements(directory: Path) -> dict[str, str]:
    """Texts of the default `feed.toml`, and what replaces them in a home on the local stack: the urls of the
    clusters, the follow store and the queue.

    Raises:
        ConfigError: there is no stack in this directory.
    """
    path = directory.absolute() / STATE
    ports = _read(path, _State, f"start the local stack first: make stack-up STACK={directory}").ports

    def at(server: str, purpose: str = "client") -> str:
        try:
            return f"127.0.0.1:{ports[server][purpose]}"
        except KeyError:
            raise ConfigError(f"{path}: no port of {server}; start all of the stack: make stack-up") from None

    def gateways(name: str) -> _Gateways:
        return _Gateways([at(f"thrift2-{name}")], [at(f"thrift1-{name}")], at(f"hbase-{name}", "zookeeper"))

    jars = ":".join(f"{path.with_name('jars')}/{each}/*" for each in ("hbase", "trim"))
    password_file = str(path.with_name("mariadb.password"))
    clusters = {name: gateways(name) for name in ("a", "b")}
    places = _Places(
        clusters,
        at("mariadb"),
        password_file,
        at("kafka"),
        jars,
        # A stack that was started by an earlier version has none.
        prometheus=at("prometheus") if "prometheus" in ports else "",
        targets=str(path.with_name("targets")) if "prometheus" in ports else "",
    )
    return _replacements(places)


def docker_replacements(directory: Path) -> dict[str, str]:
    """The same for a home on the Docker clusters.

    Raises:
        ConfigError: there are none in this directory.
    """
    path = directory.absolute() / PLACES
    return _replacements(_read(path, _Places, "start the Docker clusters first: make cluster-up"))


def replacements_of(kind: Kind, directory: Path | None) -> dict[str, str]:
    """As `replacements` or `docker_replacements`. directory: where the stack is; None for where it usually is."""
    directory = directory or home(kind)
    return replacements(directory) if kind == "local" else docker_replacements(directory)


def _read(path: Path, kind: type[_T], missing: str) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise ConfigError(f"{path}: not found; {missing}") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _replacements(places: _Places) -> dict[str, str]:
    options = f"password_file={places.password_file}{places.options}"
    shards = ", ".join(f'"mysql://feed@{places.database}/{name}?{options}"' for name in SHARDS)

    def cluster(name: str) -> str:
        gateways = places.clusters[name]
        url = f'url = "hbase://{",".join(gateways.thrift2)}/?thrift1={",".join(gateways.thrift1)}"'
        return f'{url}\nzookeeper = "{gateways.zookeeper}"' if gateways.zookeeper else url

    made = {
        'url = "rocksdb:data/a"': cluster("a"),
        'url = "rocksdb:data/b"': cluster("b"),
        'shards = ["sqlite:data/follows.db"]': f"shards = [{shards}]",
        'url = "embedded:data/queue.db"': f'url = "kafka://{places.kafka}"\nreplication = 1',
        "partitions = 1 ": f"partitions = {PARTITIONS} ",
    }
    if places.jars:
        made["[worker]\n"] = f'[hbase]\njars = "{places.jars}" # the Java class path of feedctl table\n\n[worker]\n'
    if places.has_tokens:
        made['# tokens = "tokens.toml"'] = 'tokens = "tokens.toml"'
    if places.prometheus:
        made['# prometheus = "http://127.0.0.1:9090"'] = f'prometheus = "http://{places.prometheus}"'
    if places.targets:
        made['# targets = "targets" '] = f'targets = "{places.targets}" '
        # Several commands of one home run on this machine: each takes a port of its own.
        made['# listen = "127.0.0.1:9464"'] = 'listen = "127.0.0.1:0"'
    return made
