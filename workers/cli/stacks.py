"""The `feed.toml` of a home that works on real servers which `make` starts: the local stack (docs/local-stack.md), or
the Docker clusters (docs/docker.md). A file of the stack's own directory says where their servers are.
"""

from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from feedstore.errors import ConfigError

Kind = Literal["local", "docker"]

PLACES: Final = "places.json"
SHARDS: Final = ("follows_0", "follows_1")
PARTITIONS: Final = 4


class _Gateways(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The gateways of one cluster, each as HOST:PORT. zookeeper: empty if ZooKeeper and the region servers cannot be
    reached from here.
    """

    thrift2: list[str]
    zookeeper: str = ""


class _Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the servers of a stack are. database, kafka: HOST:PORT. jars: the Java class path of `feedctl table`.

    options: those of the databases' urls, without the password's file. has_tokens: whether the HTTP API asks for
    tokens. prometheus: HOST:PORT of a Prometheus that scrapes the processes of the home; empty if there is none.
    targets: the directory of files in which processes name their addresses for it; empty if it knows them.
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
    """The default directory of a stack of this kind."""
    return Path(".stack") if kind == "local" else Path(".cluster")


def replacements(kind: Kind, directory: Path | None) -> dict[str, str]:
    """Texts of the default `feed.toml`, and what replaces them in a home on this stack: the urls of the clusters, the
    follow store and the queue. directory: where the stack is; None for where it usually is.

    Raises ConfigError: there is no stack in this directory.
    """
    path = (directory or home(kind)).absolute() / PLACES
    try:
        return _replacements(msgspec.json.decode(path.read_bytes(), type=_Places))
    except FileNotFoundError:
        first = {
            "local": f"the local stack first: make stack-up STACK={path.parent}",
            "docker": "the Docker clusters first: make cluster-up",
        }
        raise ConfigError(f"{path}: not found; start {first[kind]}") from None
    except msgspec.ValidationError as error:
        again = {"local": f"make stack-up STACK={path.parent}", "docker": "make cluster-up"}
        raise ConfigError(f"{path}: {error}; if an earlier version wrote it: {again[kind]} writes it again") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _replacements(places: _Places) -> dict[str, str]:
    options = f"password_file={quote(places.password_file)}{places.options}"
    shards = ", ".join(f'"mysql://feed@{places.database}/{name}?{options}"' for name in SHARDS)

    def cluster(name: str) -> str:
        gateways = places.clusters[name]
        address = f"hbase://{','.join(gateways.thrift2)}/"
        if not gateways.zookeeper:
            return f'url = "{address}?reads=gateways"'
        return f'url = "{address}"\nzookeeper = "{gateways.zookeeper}"'

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
        # Several commands of one home run on this machine, so each takes a port of its own.
        made['# listen = "127.0.0.1:9464"'] = 'listen = "127.0.0.1:0"'
    return made
