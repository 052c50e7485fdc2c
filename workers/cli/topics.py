"""topics: the topics of the queue, if it is Kafka."""

import click

from feedstore.errors import ConfigError
from workers.app import wiring
from workers.cli.output import say
from workers.cli.schema import refuse_differences
from workers.cli.session import Session, pass_session


@click.group()
def topics() -> None:
    """Create and check the topics of a queue in Kafka.

    \b
    Examples:
      feedctl topics apply
      feedctl topics check
    """


@topics.command("apply")
@pass_session
def topics_apply(session: Session) -> None:
    """Create missing topics, add partitions and change settings. Removes nothing.

    \b
    Examples:
      feedctl topics apply
    """
    _show(session, apply=True)


@topics.command("check")
@pass_session
def topics_check(session: Session) -> None:
    """Name every difference between the topics and what the rules need. The exit status is 1 if there is any.

    \b
    Examples:
      feedctl topics check
    """
    _show(session, apply=False)


def _show(session: Session, *, apply: bool) -> None:
    """Shows the differences of the topics from their definitions. apply: whether to mend them. Raises ConfigError."""
    if session.config.queue_scheme != "kafka":
        raise ConfigError("the queue of this home is embedded: it has no topics to manage")
    address, definitions = wiring.kafka_address(session.config), wiring.topic_definitions(session.config)
    from workers.queue.kafka import topics as of_kafka  # noqa: PLC0415 - its library is an extra

    differences = (of_kafka.apply if apply else of_kafka.differences)(address, definitions)
    for each in differences:
        say(str(each))
    refuse_differences(len(differences))
