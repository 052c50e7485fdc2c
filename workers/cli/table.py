"""table: operations on HBase tables that no gateway offers: flush, compact, move, show cells."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from feedstore.app.clusters import gateways
from feedstore.app.config import FILE_NAME
from feedstore.errors import ConfigError
from feedstore.following import FEEDS
from feedstore.widecolumn.progress import PROGRESS
from workers.app.table_tool import TableTool, TableToolAwayError, TableToolError
from workers.cli.output import ProgressLine, answer
from workers.cli.session import ID, CommandRefusedError, Session, TryLaterError, json_option, pass_session

if TYPE_CHECKING:
    from feedstore.app.hbase import HBasePlace

_NAME = click.Choice([FEEDS, PROGRESS])


@click.group()
def table() -> None:
    """Show, flush and compact the tables in HBase.

    These commands run a Java program. They need java (on the path, or in JAVA_HOME), the class path with the jars of
    HBase and of feedstore (hbase.jars in feed.toml, or FEED_HBASE_JARS), and the ZooKeeper of each cluster (zookeeper
    under [[clusters]]). `feedctl init --stack local` writes the last two into feed.toml.

    \b
    Examples:
      feedctl table regions following_feed
      feedctl table major-compact following_feed --cluster a --wait
      FEED_HBASE_JARS='/opt/hbase/lib/*:/opt/feedstore/feedstore-trim.jar' feedctl table store-files following_feed
    """


_timeout = click.option(
    "--timeout-s",
    type=click.IntRange(1, 86_400),
    default=600,
    show_default=True,
    help="How long the command may take in each cluster. After that, HBase still finishes what it has begun.",
)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of every command, the table first."""
    for decorate in (
        pass_session,
        json_option,
        _timeout,
        click.option("--cluster", metavar="NAME", help="Only in this cluster.  [default: in all, one after the other]"),
        click.argument("name", metavar="TABLE", type=_NAME),
    ):
        function = decorate(function)
    return function


_wait = click.option("--wait", is_flag=True, help="Wait until the compaction is done.")
_region = click.option("--region", metavar="ENCODED", help="Only this region, as `table regions` names it.")


@table.command()
@_options
@_region
def flush(session: Session, **options: Any) -> None:
    """Flush what is in memory to files.

    \b
    Examples:
      feedctl table flush following_feed
    """
    _run(session, "flush", **options)


@table.command()
@_options
@_region
@_wait
def compact(session: Session, **options: Any) -> None:
    """Request a compaction of the files that HBase chooses. If HBase chooses all files of a region, the rows of the
    region are trimmed.

    \b
    Examples:
      feedctl table compact following_feed --wait
    """
    _run(session, "compact", **options)


@table.command("major-compact", short_help="Request a compaction of all files, which trims rows.")
@_options
@_region
@_wait
def major_compact(session: Session, **options: Any) -> None:
    """Request a compaction of all files, which trims every row to cap + slack columns.

    A compaction of all files reads and writes the whole table, and slows readers down: do one cluster at a time, when
    the load is low. With --wait, what is in memory is flushed first: the trim does not see delete markers in memory,
    and would count the entries that they hide.

    \b
    Examples:
      feedctl table major-compact following_feed --cluster a --wait --timeout-s 7200
      feedctl table major-compact following_feed --cluster a --region 1588230740c1c5f1ab7d6d1a60b51c1f --wait
    """
    _run(session, "major-compact", **options)


@table.command()
@_options
def regions(session: Session, **options: Any) -> None:
    """Show the regions: where each is, and what it holds.

    \b
    Examples:
      feedctl table regions following_feed --cluster a
      feedctl table regions following_feed --json | jq -r .region
    """
    _run(session, "regions", **options)


@table.command("store-files")
@_options
@_region
def store_files(session: Session, **options: Any) -> None:
    """Show the files of each region.

    \b
    Examples:
      feedctl table store-files following_feed --cluster a
    """
    _run(session, "store-files", **options)


@table.command(short_help="Show the cells of the row of USER's feed.")
@_options
@click.argument("user", type=ID)
@click.option(
    "--limit", type=click.IntRange(1), default=10_000, show_default=True, help="How many cells to show at most."
)
def cells(session: Session, user: int, *, limit: int, **options: Any) -> None:
    """Show the cells of the row of USER's feed, in memory and files, with delete markers and masked versions.

    \b
    Examples:
      feedctl table cells following_feed 12 --cluster a
    """
    _run(session, "cells", str(user), "--limit", str(limit), **options)


@table.command(short_help="Move the region ENCODED to another server.")
@click.argument("region", metavar="ENCODED")
@click.argument("server", required=False)
@click.option("--cluster", metavar="NAME", required=True, help="The cluster whose region it is.")
@_timeout
@json_option
@pass_session
def move(session: Session, region: str, server: str | None, *, cluster: str, timeout_s: int, as_json: bool) -> None:
    """Move the region ENCODED to SERVER (host,port,startcode), or to a server that HBase chooses.

    \b
    Examples:
      feedctl table move 1588230740c1c5f1ab7d6d1a60b51c1f --cluster a
    """
    words = [region, *([server] if server else [])]
    _run(session, "move", *words, cluster=cluster, timeout_s=timeout_s, as_json=as_json)


def _run(
    session: Session,
    command: str,
    *words: str,
    name: str | None = None,
    region: str | None = None,
    wait: bool = False,
    cluster: str | None,
    timeout_s: int,
    as_json: bool,
) -> None:
    """Runs a command of the tool. words: what follows its table. name: the table; None: it takes none."""
    words += (() if region is None else ("--region", region)) + (("--wait",) if wait else ())
    for each, tool, where in _tools(session, cluster):
        progress = ProgressLine(f"{each}: {command}")

        def show(line: dict[str, Any], each: str = each) -> None:
            answer({"cluster": each} | line, f"{each}  {_shown(line)}", as_json=as_json)

        def waiting(progress: ProgressLine = progress) -> None:
            if progress.due():
                progress.show(f"{progress.elapsed_s():.0f} s of at most {timeout_s}")

        named = [] if name is None else [where.table(name)]
        try:
            tool.run([command, *named, *words], timeout_s, show, waiting)
        except TableToolAwayError as error:
            raise TryLaterError(f"{each}: {error}") from error
        except TableToolError as error:
            raise CommandRefusedError(f"{each}: {error}") from error


def _shown(line: dict[str, Any]) -> str:
    """A line of the tool for people, without a region's name, which repeats its keys, and without empty fields."""
    return "  ".join(f"{key} {value}" for key, value in line.items() if key != "name" and value not in (None, ""))


def _tools(session: Session, cluster: str | None) -> "list[tuple[str, TableTool, HBasePlace]]":
    """Resolve `--cluster` to (name, tool, gateways). Raises ConfigError before any cluster is contacted."""
    config = session.config
    meant = [each for each in map(config.cluster, session.clusters(cluster)) if each.scheme == "hbase"]
    if not meant:
        which = "no cluster of this home is" if cluster is None else f"cluster {cluster} is not"
        raise ConfigError(f"{which} HBase: there are no tables to manage")
    if not config.hbase_jars:
        raise ConfigError(
            f"{config.sources.blamed('hbase.jars')}: hbase.jars: expected the Java class path with HBase's jars and"
            " ours (or FEED_HBASE_JARS)"
        )
    found: list[tuple[str, TableTool, HBasePlace]] = []
    for each in meant:
        where = gateways(each)
        if each.zookeeper is None:
            raise ConfigError(f'{config.home / FILE_NAME}: cluster {each.name}: expected zookeeper = "HOST:PORT"')
        found.append((each.name, TableTool(config.hbase_jars, each.zookeeper), where))
    return found
