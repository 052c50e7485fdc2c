"""The `feed.toml` of a home that works on the local stack: its servers' ports and the file of its password, as the
stack's own directory says them (docs/local-stack.md).
"""

from pathlib import Path
from typing import Final

import msgspec

from feedstore.serving.config import ConfigError

STATE: Final = "stack.json"
SHARDS: Final = ("follows_0", "follows_1")
PARTITIONS: Final = 4


class _State(msgspec.Struct, frozen=True):
    ports: dict[str, dict[str, int]]


def replacements(directory: Path) -> dict[str, str]:
    """What stands in the default `feed.toml`, and what stands there for a home on the stack: the urls of the clusters,
    the follow store and the queue.

    Raises:
        ConfigError: there is no stack in this directory.
    """
    path = directory.absolute() / STATE
    try:
        ports = msgspec.json.decode(path.read_bytes(), type=_State).ports
    except FileNotFoundError:
        raise ConfigError(f"{path}: not found; start the local stack first: make stack-up STACK={directory}") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: {error}") from error

    def at(server: str, purpose: str = "client") -> str:
        try:
            return f"127.0.0.1:{ports[server][purpose]}"
        except KeyError:
            raise ConfigError(f"{path}: no port of {server}; start all of the stack: make stack-up") from None

    secret = path.with_name("mariadb.password")
    shards = ", ".join(f'"mysql://feed@{at("mariadb")}/{name}?password_file={secret}"' for name in SHARDS)

    def cluster(name: str) -> str:
        zookeeper = at(f"hbase-{name}", "zookeeper")
        return f'url = "hbase://{at(f"thrift2-{name}")}/?thrift1={at(f"thrift1-{name}")}"\nzookeeper = "{zookeeper}"'

    jars = ":".join(f"{path.with_name('jars')}/{each}/*" for each in ("hbase", "trim"))
    return {
        'url = "rocksdb:data/a"': cluster("a"),
        'url = "rocksdb:data/b"': cluster("b"),
        'shards = ["sqlite:data/follows.db"]': f"shards = [{shards}]",
        'url = "embedded:data/queue.db"': f'url = "kafka://{at("kafka")}"\nreplication = 1',
        "partitions = 1 ": f"partitions = {PARTITIONS} ",
        "[worker]\n": f'[hbase]\njars = "{jars}" # the Java class path of feedctl table\n\n[worker]\n',
    }
