"""table: flushes, compactions and moves of the tables in HBase, which no gateway offers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from feedstore.feeds import FEEDS, PROGRESS
from feedstore.serving.clusters import place
from feedstore.serving.config import Cluster, ConfigError
from workers.cli.output import Progress, emit_json
from workers.cli.session import Session, json_option, pass_session
from workers.table_tool import TableTool

_NAME = click.Choice([FEEDS, PROGRESS])


@click.group()
def table() -> None:
    """The files and regions of the tables in HBase.

    It runs a Java program beside HBase's own client. That needs java (on the path, or in JAVA_HOME), the class path
    with HBase's jars and ours (hbase.jars in feed.toml, or FEED_HBASE_JARS), and each cluster's ZooKeeper (zookeeper
    under [[clusters]]). `feedctl init --stack local` writes both.

    \b
    Examples:
      feedctl table regions following_feed
      feedctl table major-compact following_feed --cluster a --wait
      FEED_HBASE_JARS='/opt/hbase/lib/*:/opt/feedstore/feedstore-trim.jar' feedctl table store-files following_feed
    """


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What every command takes, the table first."""
    for decorate in (
        pass_session,
        json_option,
        click.option(
            "--timeout-s",
            type=click.IntRange(1, 86_400),
            default=600,
            show_default=True,
            help="How long the command may take in each cluster. What HBase has begun goes on.",
        ),
        click.option("--cluster", help="Only in this cluster.  [default: in all, one after the other]"),
        click.argument("name", metavar="TABLE", type=_NAME),
    ):
        function = decorate(function)
    return function


_wait = click.option("--wait", is_flag=True, help="Return when it is done, and not as soon as it is asked for.")
_region = click.option("--region", metavar="ENCODED", help="Only this region, as `table regions` names it.")


@table.command()
@_options
@_region
def flush(session: Session, name: str, region: str | None, **options: Any) -> None:
    """Writes what is in memory to files.

    \b
    Examples:
      feedctl table flush following_feed
    """
    _run(session, ["flush", *_of(region)], name, **options)


@table.command()
@_options
@_region
@_wait
def compact(session: Session, name: str, region: str | None, *, wait: bool, **options: Any) -> None:
    """Asks for a compaction of as many files as HBase finds worth it. Rows are trimmed where that is all of a region.

    \b
    Examples:
      feedctl table compact following_feed --wait
    """
    _run(session, ["compact", *_of(region), *_waits(wait)], name, **options)


@table.command("major-compact")
@_options
@_region
@_wait
def major_compact(session: Session, name: str, region: str | None, *, wait: bool, **options: Any) -> None:
    """Asks for a compaction of all files, which trims every row to cap + slack columns.

    It reads and writes the whole table, and slows readers: one cluster at a time, when least is read.

    \b
    Examples:
      feedctl table major-compact following_feed --cluster a --wait --timeout-s 7200
      feedctl table major-compact following_feed --cluster a --region 1588230740c1c5f1ab7d6d1a60b51c1f --wait
    """
    _run(session, ["major-compact", *_of(region), *_waits(wait)], name, **options)


@table.command()
@_options
def regions(session: Session, name: str, **options: Any) -> None:
    """Shows the regions: where each is, and what it holds.

    \b
    Examples:
      feedctl table regions following_feed --cluster a
      feedctl table regions following_feed --json | jq -r .region
    """
    _run(session, ["regions"], name, **options)


@table.command("store-files")
@_options
@_region
def store_files(session: Session, name: str, region: str | None, **options: Any) -> None:
    """Shows the files of each region.

    \b
    Examples:
      feedctl table store-files following_feed --cluster a
    """
    _run(session, ["store-files", *_of(region)], name, **options)


@table.command()
@_options
@click.argument("encoded")
@click.argument("server", required=False)
def move(session: Session, name: str, encoded: str, server: str | None, cluster: str | None, **options: Any) -> None:
    """Moves the region ENCODED to SERVER, or to one that HBase chooses.

    \b
    Examples:
      feedctl table move following_feed 1588230740c1c5f1ab7d6d1a60b51c1f --cluster a
    """
    if cluster is None:
        raise click.UsageError("a region is one cluster's: give --cluster")
    _run(session, ["move", encoded, *([server] if server else [])], name, cluster=cluster, **options)


def _of(region: str | None) -> list[str]:
    return [] if region is None else ["--region", region]


def _waits(wait: bool) -> list[str]:
    return ["--wait"] if wait else []


def _run(
    session: Session, words: Sequence[str], name: str, *, cluster: str | None, timeout_s: int, as_json: bool
) -> None:
    for each, tool, table_name in _tools(session, cluster, name):
        progress = Progress(f"{each}: {words[0]}")

        def show(line: dict[str, Any], each: str = each, progress: Progress = progress) -> None:
            progress.clear()
            if as_json:
                emit_json({"cluster": each} | line)
            else:
                click.echo("  ".join([each, *(f"{key} {value}" for key, value in line.items())]))

        def waiting(progress: Progress = progress) -> None:
            if progress.due():
                progress.show(f"{progress.elapsed_s():.0f} s of at most {timeout_s}")

        # The command comes first and its table second; what else it takes follows.
        tool.run([words[0], table_name, *words[1:]], timeout_s, show, waiting)
        progress.clear()


def _tools(session: Session, cluster: str | None, name: str) -> Iterator[tuple[str, TableTool, str]]:
    """The clusters that are meant, each with its tool and the full name of the table. Looks at all before the first."""
    config = session.config
    if cluster is not None:
        session.refuse_unknown(cluster)
    found = [each for each in config.clusters if cluster in (None, each.name)]
    in_hbase = [each for each in found if each.url.startswith("hbase:")]
    if not in_hbase or (cluster and len(in_hbase) < len(found)):
        raise ConfigError("no cluster that is meant is HBase: there are no tables to look after")
    if not config.hbase_jars:
        raise ConfigError(f"{config.home}: hbase.jars in feed.toml, or FEED_HBASE_JARS, must be the Java class path")
    made = [
        (each.name, TableTool(config.hbase_jars, _zookeeper(each)), _full(session, each, name)) for each in in_hbase
    ]
    yield from made


def _zookeeper(cluster: Cluster) -> str:
    if cluster.zookeeper is None:
        raise ConfigError(f'cluster {cluster.name}: add zookeeper = "HOST:PORT" under its [[clusters]] in feed.toml')
    return cluster.zookeeper


def _full(session: Session, cluster: Cluster, name: str) -> str:
    where = place(session.config, cluster.name)
    from feedstore.serving.hbase import Gateways  # noqa: PLC0415 - its libraries are an extra, and are there by now

    assert isinstance(where, Gateways)
    return where.table(name)


COMMANDS = (table,)
