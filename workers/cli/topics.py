"""topics: the topics of the queue, if it is Kafka."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from feedstore.errors import ConfigError
from workers.app import wiring
from workers.cli.output import note, say
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
    address, definitions = _of(session)
    from workers.queue.kafka import topics as of_kafka  # noqa: PLC0415 - its library is an extra

    _refuse(of_kafka.apply(address, definitions, lambda each: note(f"corrected this difference: {each}")))


@topics.command("check")
@pass_session
def topics_check(session: Session) -> None:
    """Name every difference between the topics and what the rules need. The exit status is 1 if there is any.

    \b
    Examples:
      feedctl topics check
    """
    address, definitions = _of(session)
    from workers.queue.kafka import topics as of_kafka  # noqa: PLC0415 - its library is an extra

    _refuse(of_kafka.differences(address, definitions))


def _of(session: Session) -> "tuple[KafkaAddress, list[TopicDefinition]]":
    """Where the topics of the home are, and what they must be. Raises ConfigError."""
    if session.config.queue_scheme != "kafka":
        raise ConfigError("the queue of this home is embedded: it has no topics to manage")
    return wiring.kafka_address(session.config), wiring.topic_definitions(session.config)


def _refuse(differences: "Sequence[TopicDifference]") -> None:
    """Shows differences. Raises CommandRefusedError if there are any; the message says what corrects them."""
    for each in differences:
        say(str(each))
    for mend in dict.fromkeys(each.mend for each in differences if not each.fixable):
        note(mend)
    fixable = sum(each.fixable for each in differences)
    mends = f"feedctl topics apply corrects {'all' if fixable == len(differences) else fixable} of them"
    refuse_differences(len(differences), f": {mends}" if fixable else "")
