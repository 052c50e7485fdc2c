"""The topics of the following feed."""

from typing import Final

from workers.following.messages import (
    Delivery,
    Hold,
    Parked,
    RangeTask,
    Task,
    decode_actions,
    decode_parked,
)
from workers.following.packs import Pack, decode_body
from workers.pipeline.ticks import Tick
from workers.queue.port import Malformed, Topic, single

ACTIONS: Final[Topic[Task | RangeTask | Tick | Malformed]] = Topic("feed.actions", durable=True, decode=decode_actions)
"""Tasks: recorded actions, for the expander; many in a message."""
DELIVERIES: Final[Topic[Delivery | Hold | Pack | Tick]] = Topic(
    "feed.deliveries", durable=False, decode=single(decode_body)
)
"""Cells for the writers, one consumer group a cluster. A lost one is expanded again: see `Topic.durable`."""
RETRIES: Final[Topic[Parked]] = Topic("feed.retries", durable=True, decode=single(decode_parked))
"""Deliveries that a writer has parked, each for one cluster: one consumer group a cluster."""

TOPICS: Final[tuple[Topic[object], ...]] = (ACTIONS, DELIVERIES, RETRIES)
