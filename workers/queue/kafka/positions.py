"""The partitions that a member of a group holds, the positions that it still has to store, and how they are stored. It
uses no network.

A position is stored with the id of the topic that its messages were read from. For METADATA_MS, a member may not know
that a topic was made again. What it commits in this time would count as read in the new topic.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from kafka.structs import OffsetAndMetadata

_TOPIC: Final = "topic="


def stored(position: int, topic: uuid.UUID | None) -> OffsetAndMetadata:
    """A position, as brokers keep it. topic: the id of its topic; None: it is not known."""
    return OffsetAndMetadata(position, "" if topic is None else f"{_TOPIC}{topic.hex}")


def is_of(found: OffsetAndMetadata, topic: uuid.UUID | None) -> bool:
    """Whether a stored position may be one of this topic. Those of other programs say nothing of their topic."""
    text: str = found.metadata or ""
    return topic is None or not text.startswith(_TOPIC) or text == f"{_TOPIC}{topic.hex}"


class Positions:
    """The positions that a caller has promised, until the group has them.

    Only positions of partitions that this member holds are stored: if another member holds a partition now, it may have
    begun at an earlier position, and repeats what this one did. No stored position ever goes back: if a partition is
    new here, its stored position must be learned before anything is stored.
    """

    def __init__(self) -> None:
        self._stored: dict[int, int | None] = {}  # by partition that is held; None until it is learned
        self._owed: dict[int, int] = {}

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._stored)

    def gained(self, partitions: Iterable[int]) -> None:
        """Notes that this member holds partitions from now on. What was known of one that came back is forgotten."""
        for partition in partitions:
            self._stored[partition] = None
            self._owed.pop(partition, None)

    def gave_up(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._stored.pop(partition, None)
            self._owed.pop(partition, None)

    def owe(self, positions: Mapping[int, int]) -> None:
        """Notes that everything before these positions is done. Those of partitions that are not held are dropped."""
        for partition, position in positions.items():
            if partition in self._stored:
                self._owed[partition] = max(position, self._owed.get(partition, 0))

    def unknown(self) -> list[int]:
        """The partitions whose stored position must be learned before `due` is stored."""
        return [partition for partition in self._owed if self._stored[partition] is None]

    def learned(self, partition: int, stored: int | None) -> None:
        """Notes the position that the group has stored for a partition; None if there is none yet."""
        if partition in self._stored:
            self._stored[partition] = -1 if stored is None else stored

    def due(self) -> dict[int, int]:
        """The positions to store now."""
        due = {}
        for partition, position in self._owed.items():
            stored = self._stored[partition]
            if stored is not None and position > stored:
                due[partition] = position
        return due

    def stored(self, positions: Mapping[int, int]) -> None:
        """Notes that these positions are stored. Partitions that were given up meanwhile are passed over."""
        for partition, position in positions.items():
            if partition in self._stored:
                self._stored[partition] = position
        for partition, owed in list(self._owed.items()):
            known = self._stored[partition]
            if known is not None and owed <= known:
                del self._owed[partition]
