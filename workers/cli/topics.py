"""topics: the topics of the queue, if it is Kafka."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from feedstore.errors import ConfigError
from workers.app import wiring
from workers.cli.output import say
from workers.cli.schema import refuse_differences
from workers.cli.session import Session, pass_session

if TYPE_CHECKING:
    from workers.queue.kafka import KafkaAddress
    from workers.queue.kafka.topics import TopicDefinition, TopicDifference


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
    address, definitions = _topics(session)
    from workers.queue.kafka import topics as kafka_topics  # noqa: PLC0415 - its library is an extra

    _show(kafka_topics.apply(address, definitions))


@topics.command("check")
@pass_session
def topics_check(session: Session) -> None:
    """Name every difference between the topics and what the rules need. The exit status is 1 if there is any.

    \b
    Examples:
      feedctl topics check
    """
    address, definitions = _topics(session)
    from workers.queue.kafka import topics as kafka_topics  # noqa: PLC0415 - its library is an extra

    _show(kafka_topics.differences(address, definitions))


def _topics(session: Session) -> "tuple[KafkaAddress, list[TopicDefinition]]":
    """The address of the topics, and their definitions. Raises ConfigError."""
    if session.config.queue_scheme != "kafka":
        raise ConfigError("the queue of this home is embedded: it has no topics to manage")
    return wiring.kafka_address(session.config), wiring.topic_definitions(session.config)


def _show(differences: "Sequence[TopicDifference]") -> None:
    for each in differences:
        say(str(each))
    refuse_differences(len(differences))


COMMANDS = (topics,)
