"""schema: the tables of the follow store and of the HBase clusters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import gateways
from feedstore.app.config import ClusterConfig
from feedstore.errors import ConfigError
from feedstore.widecolumn import UnavailableError
from workers.app import wiring
from workers.cli.output import note, plural, say
from workers.cli.session import CommandRefusedError, Session, pass_session

if TYPE_CHECKING:
    from feedstore.app.hbase import HBasePlace


@click.group()
def schema() -> None:
    """Create and check the tables of the follow store and of HBase.

    \b
    Examples:
      feedctl schema apply
      feedctl schema check
    """


@schema.command("apply", short_help="Bring the tables of the follow store and of HBase up to date.")
@click.option("--empty", is_flag=True, help="Create what is missing of the follow store, even if a cluster has feeds.")
@pass_session
def schema_apply(session: Session, *, empty: bool) -> None:
    """Bring the tables of the follow store up to date. In HBase, create the missing tables, and attach the trim, with
    the cap and the slack of feed.toml.

    If the tables of the follow store are of an earlier version, stop all processes of the home before this command
    (docs/operating.md, The program was updated): a relay that still runs could read a row of many actions as one
    action, and bury it. The command refuses while a worker, an expander or a writer runs; on servers it cannot see a
    relay. Programs of the earlier version cannot be started afterwards.

    In existing HBase tables, the command changes the trim if it differs, and sets attributes that are not set at all.
    If an attribute is set to another value, the command does not change it: schema check names it. HBase reopens the
    regions of a changed table, a few at a time.

    If a shard of the follow store is missing or has no tables, and a cluster has feeds, the command creates nothing:
    measured by an empty store, every feed would be wrong, and feedctl repair would remove all entries. Bring the shard
    back from a copy, or give --empty.

    \b
    Examples:
      feedctl schema apply
      feedctl schema apply --empty
    """
    missing = feedstore_wiring.missing_follows(session.config)
    if missing and not empty:
        _refuse_feeds(session, missing)
    with _alone(session):
        feedstore_wiring.create_follows(session.config)
    note("follow store: its tables are up to date")
    if not _hbase_clusters(session):
        return
    tables = feedstore_wiring.tables(session.config)
    for name, where in _in_hbase(session):
        applied = where.apply(tables)
        if applied.created:
            note(f"{name}: created {', '.join(applied.created)}")
        for each in applied.changed:
            note(f"{name}: corrected this difference: {each}")
        if not applied.created and not applied.changed:
            note(f"{name}: nothing was missing")


@schema.command("check", short_help="Check the tables in HBase and the follow store on servers.")
@pass_session
def schema_check(session: Session) -> None:
    """Name every difference between the tables in HBase and their definition. The exit status is 1 if there is any.

    If the follow store is on servers, the command also looks whether each database answers, has the tables of this
    version, and has no setting that could lose actions. If not, the exit status is that of any command that opens the
    follow store.

    \b
    Examples:
      feedctl schema check
    """
    tables = feedstore_wiring.tables(session.config)
    found = [(name, each) for name, where in _in_hbase(session) for each in where.differences(tables)]
    for name, each in found:
        say(f"{name}: {each}")
    if session.config.shards_scheme == "mysql":
        with session.follows():
            pass  # it opens only if all of that is so
    refuse_differences(len(found))


@contextmanager
def _alone(session: Session) -> Iterator[None]:
    """To the end of the block, tables of an earlier version may be migrated: no worker runs. Raises HomeBusyError,
    GroupBusyError, QueueUnavailableError.
    """
    if not feedstore_wiring.outdated_follows(session.config):
        yield
    elif wiring.is_embedded(session.config):
        with session.lock():
            yield
    else:
        wiring.refuse_running(session.config)
        yield


def _refuse_feeds(session: Session, missing: Sequence[str]) -> None:
    """Refuses to make an empty shard while there are feeds. Raises CommandRefusedError if a cluster has some, and
    UnavailableError if one cannot be asked.
    """
    what = f"{', '.join(missing)}: missing from the follow store"
    otherwise = "only if you want an empty follow store, without follows and pins: feedctl schema apply --empty"
    try:
        names = [each.name for each in session.config.clusters]
        fed = [name for name in names if feedstore_wiring.has_feeds(session.config, name)]
    except UnavailableError as error:
        raise UnavailableError(
            f"{what}, and there may be feeds of it in a cluster that does not answer ({error}): try again once it does;"
            f" {otherwise}"
        ) from error
    if fed:
        raise CommandRefusedError(
            f"{what}, and there are feeds of it in {' and '.join(fed)}: bring it back from a copy; {otherwise}"
        )


def _in_hbase(session: Session) -> list[tuple[str, "HBasePlace"]]:
    clusters = _hbase_clusters(session)
    if not clusters:
        raise ConfigError("no cluster of this home is HBase: there are no tables to check")
    return [(each.name, gateways(each)) for each in clusters]


def _hbase_clusters(session: Session) -> list[ClusterConfig]:
    return [each for each in session.config.clusters if each.scheme == "hbase"]


def refuse_differences(differences: int, mends: str = "") -> None:
    if differences:
        raise CommandRefusedError(plural(differences, "difference") + mends)
    note("no difference")
