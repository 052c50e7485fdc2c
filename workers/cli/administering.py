"""schema, topics: what the real servers hold, made and held against what it must be."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from feedstore.serving import wiring as serving_wiring
from feedstore.serving.clusters import place
from feedstore.serving.config import Cluster, ConfigError
from workers import wiring
from workers.cli.output import note, plural, say
from workers.cli.session import RefusedError, Session, pass_session

if TYPE_CHECKING:
    from feedstore.serving.hbase import Gateways


@click.group()
def schema() -> None:
    """The tables of the follow store and of the HBase clusters.

    \b
    Examples:
      feedctl schema apply
      feedctl schema check
    """


@schema.command("apply")
@pass_session
def schema_apply(session: Session) -> None:
    """Brings the follow store's tables up to date. In HBase, makes the tables that are missing, and attaches the trim
    with the cap and the slack of feed.toml.

    Processes of the version before keep running on a follow store that is up to date, and can no longer be started.

    On HBase tables that are there it changes the trim where it differs, and sets what is not set at all. What somebody
    has set otherwise stays as it is: schema check names it. HBase opens the regions of a changed table again, a few at
    a time.

    \b
    Examples:
      feedctl schema apply
    """
    serving_wiring.create_follows(session.config)
    note("follow store: its tables are up to date")
    if not _hbase_clusters(session):
        return
    tables = serving_wiring.tables(session.config)
    for name, gateways in _in_hbase(session):
        applied = gateways.apply(tables)
        if applied.created:
            note(f"{name}: made {', '.join(applied.created)}")
        for each in applied.changed:
            note(f"{name}: changed what schema check calls: {each}")
        if not applied.created and not applied.changed:
            note(f"{name}: nothing was missing")


@schema.command("check")
@pass_session
def schema_check(session: Session) -> None:
    """Names every difference between the tables in HBase and their definition. The exit status is 1 where there is any.

    \b
    Examples:
      feedctl schema check
    """
    tables = serving_wiring.tables(session.config)
    found = [(name, each) for name, gateways in _in_hbase(session) for each in gateways.differences(tables)]
    for name, each in found:
        say(f"{name}: {each}")
    _end(len(found))


@click.group()
def topics() -> None:
    """The topics of the queue, where that is Kafka.

    \b
    Examples:
      feedctl topics apply
      feedctl topics check
    """


@topics.command("apply")
@pass_session
def topics_apply(session: Session) -> None:
    """Makes the topics that are missing, adds partitions and changes settings. Takes nothing away.

    \b
    Examples:
      feedctl topics apply
    """
    _refuse_embedded_queue(session)
    address, definitions = wiring.kafka_address(session.config), wiring.topic_definitions(session.config)
    from workers.queue.kafka import topics as kafka_topics  # noqa: PLC0415 - its library is an extra

    left = kafka_topics.apply(address, definitions)
    for each in left:
        say(str(each))
    _end(len(left))


@topics.command("check")
@pass_session
def topics_check(session: Session) -> None:
    """Names every difference between the topics and what the rules ask of them. The exit status is 1 where there is
    any.

    \b
    Examples:
      feedctl topics check
    """
    _refuse_embedded_queue(session)
    address, definitions = wiring.kafka_address(session.config), wiring.topic_definitions(session.config)
    from workers.queue.kafka import topics as kafka_topics  # noqa: PLC0415 - its library is an extra

    found = kafka_topics.differences(address, definitions)
    for each in found:
        say(str(each))
    _end(len(found))


def _in_hbase(session: Session) -> Iterator[tuple[str, "Gateways"]]:
    clusters = _hbase_clusters(session)
    if not clusters:
        raise ConfigError("no cluster of this home is HBase: there are no tables to look after")
    places = [(each.name, place(session.config, each.name)) for each in clusters]
    from feedstore.serving.hbase import Gateways  # noqa: PLC0415 - its libraries are an extra, and are there by now

    for name, where in places:
        assert isinstance(where, Gateways)
        yield name, where


def _hbase_clusters(session: Session) -> list[Cluster]:
    return [each for each in session.config.clusters if each.url.startswith("hbase:")]


def _refuse_embedded_queue(session: Session) -> None:
    if not session.config.queue.startswith("kafka:"):
        raise ConfigError("the queue of this home is embedded: there are no topics to look after")


def _end(differences: int) -> None:
    if differences:
        raise RefusedError(plural(differences, "difference"))
    note("no difference")


COMMANDS = (schema, topics)
