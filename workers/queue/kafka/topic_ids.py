"""The ids of topics: one that is removed and made again under its name has another id."""

import uuid
from collections.abc import Mapping
from typing import Any

from kafka.cluster import ClusterMetadata


def described(topic: Mapping[str, Any]) -> uuid.UUID | None:
    """The id in a description of a topic; None if the brokers give topics none (before Kafka 2.8)."""
    return _known(uuid.UUID(topic["topic_id"]))


def of(cluster: ClusterMetadata, name: str) -> uuid.UUID | None:
    """The id of a topic by a client's metadata; None also if they know no such topic."""
    return _known(cluster.topic_id(name))


def differ(before: uuid.UUID | None, now: uuid.UUID | None) -> bool:
    """Whether these are two topics. False if it is not known."""
    return before is not None and now is not None and before != now


def _known(found: uuid.UUID | None) -> uuid.UUID | None:
    return found if found is not None and found.int else None
