"""What spans say about messages, by OpenTelemetry's conventions for messaging; and dead letters that are traced."""

from collections.abc import Mapping
from typing import Final

from feedstore.tracing import Tracer, Value
from workers.queue.port import DeadLetter, DeadLetters, Topic

_OF_GROUP: Final = "messaging.consumer.group.name"


def sending(topic: Topic[object]) -> Mapping[str, Value]:
    """Attributes of a span in which messages are published."""
    return _of("send", topic)


def processing(topic: Topic[object], group: str) -> Mapping[str, Value]:
    """Attributes of a span in which messages are worked on."""
    return {**_of("process", topic), _OF_GROUP: group}


def _of(operation: str, topic: Topic[object], kind: str | None = None) -> dict[str, Value]:
    return {
        "messaging.operation.name": operation,
        "messaging.operation.type": kind or operation,
        "messaging.destination.name": topic.name,
    }


class TracedDeadLetters:
    """Dead letters that are traced: burying a message is a step in each trace that it carries."""

    def __init__(self, letters: DeadLetters, tracer: Tracer) -> None:
        self._letters = letters
        self._tracer = tracer

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        about = _of("bury", topic, "settle") | {_OF_GROUP: group, "feedstore.reason": reason}
        with self._tracer.lot(f"bury {topic}", self._tracer.carried([value]), 1, about):
            self._letters.bury(topic, group, reason, detail, died_ms, value)

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        return self._letters.letters(after, limit)

    def letter(self, letter_id: int) -> DeadLetter | None:
        return self._letters.letter(letter_id)

    def count(self) -> int:
        return self._letters.count()

    def drop(self, letter_id: int) -> bool:
        return self._letters.drop(letter_id)
