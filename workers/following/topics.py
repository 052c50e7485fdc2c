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
from workers.following.packs import Pack, decode_bodies
from workers.pipeline.ticks import Tick
from workers.queue.port import Malformed, Topic, single

ACTIONS: Final[Topic[Task | RangeTask | Tick | Malformed]] = Topic("feed.actions", durable=True, decode=decode_actions)
"""Tasks, which are recorded actions for the expander, many in a message."""
DELIVERIES: Final[Topic[Delivery | Hold | Pack | Tick]] = Topic("feed.deliveries", durable=False, decode=decode_bodies)
"""Cells for the writers, one consumer group for each cluster. If a message is lost, its actions are expanded again: see
`Topic.durable`."""
RETRIES: Final[Topic[Parked]] = Topic("feed.retries", durable=True, decode=single(decode_parked))
"""Deliveries that writers have parked, each for one cluster; one consumer group for each cluster."""

TOPICS: Final[tuple[Topic[object], ...]] = (ACTIONS, DELIVERIES, RETRIES)
