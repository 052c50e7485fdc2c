"""A home on the local stack that shares nothing with anybody: tables, topics and databases of its own names."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest

from deploy.local import NAMES, Stack, kafka
from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.follows import mysql
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds
from feedstore.widecolumn import RefusedError
from feedstore.widecolumn.hbase import HBaseCluster
from tests.cli.command import Cli
from tests.stack.own_brokers import Brokers
from workers.app import wiring
from workers.cli import stacks
from workers.queue.kafka.queue import connect
from workers.queue.port import Topic

_TRIES = 5


@contextmanager
def own_home(
    stack: Stack, directory: Path, brokers: str = "", instead: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Cli]:
    """`feedctl --home DIRECTORY init --stack local`, with every name its own; all of it goes at the end.

    brokers: the url of several, with parameters, in place of the stack's; the topics have three copies then. instead:
    what the urls say in place of the addresses of servers.
    """
    needed = [name for name in NAMES if not brokers or name != kafka.NAME]
    stack.up(*needed)
    name = uuid.uuid4().hex[:12]
    made = stacks.replacements
    queue = {'url = "embedded:data/queue.db"': f'url = "{brokers}"\nreplication = 3'} if brokers else {}
    separator = "&" if brokers else "?"

    def own(kind: stacks.Kind, stack_home: Path | None) -> dict[str, str]:
        return {there: renamed(text) for there, text in (made(kind, stack_home) | queue).items()}

    def renamed(text: str) -> str:
        for address, other in instead.items():
            text = text.replace(address, other)
        return (
            re.sub(r"(hbase://[^/]+/)", rf"\1feedtest_{name}", text)
            .replace("/follows_", f"/follows_test_{name}_")
            .replace('"\nreplication', f'{separator}prefix=test-{name}."\nreplication')
        )

    cli = Cli(directory)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(stacks, "replacements", own)
            cli("init", "--stack", "local", "--stack-home", stack.home)
        yield cli
    finally:
        stack.up(*needed)
        if (directory / configuration.FILE_NAME).exists():
            remove(configuration.load(directory, {}))


def home_on_broker(directory: Path, broker: Brokers) -> Cli:
    """A home of which everything but its queue is in files. Its topics are not made yet."""
    cli = Cli(directory)
    cli("init")
    file = cli.home / configuration.FILE_NAME
    url = f'url = "kafka://{broker.servers}?prefix=test-{uuid.uuid4().hex[:12]}."\nreplication = 1'
    file.write_text(re.sub(r'^url = "embedded:data/queue.db"', url, file.read_text(), flags=re.MULTILINE))
    return cli


def remove_topic(cli: Cli, topic: Topic[object]) -> None:
    """Removes a topic under the processes of a home."""
    address = wiring.kafka_address(configuration.load(cli.home, {}))
    with closing(connect(address)) as admin:
        admin.delete_topics([address.named(topic.name)])


def remove(config: Config) -> None:
    """Removes all that a home on the stack consists of."""
    for cluster in config.clusters:
        remove_tables(cluster.url)
    address = wiring.kafka_address(config)
    assert address.prefix.startswith("test-"), address
    with closing(connect(address)) as admin:
        admin.delete_topics([topic.name for topic in wiring.topic_definitions(config)])
    for url in config.shards:
        where = mysql.server(url, config.home, {})
        assert where.database.startswith("follows_test_"), where
        with closing(MySQLConnection(where.without_database(), PoolBounds(), None)) as connection:
            connection.run([f"DROP DATABASE IF EXISTS `{where.database}`"])


def remove_tables(url: str) -> None:
    """Removes the tables of a namespace, and the namespace. The build of a catalog outlives its worker, if that was
    killed, and may make another table meanwhile.
    """
    assert urlsplit(url).path.startswith("/feedtest_"), url
    with closing(HBaseCluster.open(url, [], check=False)) as cluster:
        for tries in range(_TRIES):
            for table in cluster.administration.names():
                cluster.administration.drop(table)
            try:
                cluster.administration.drop_namespace()
            except RefusedError:
                if tries == _TRIES - 1:
                    raise
            else:
                return
