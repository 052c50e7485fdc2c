"""The topic of updates that are posted to catalogs."""

from typing import Final

from workers.catalog.messages import Posted, decode_update
from workers.pipeline.ticks import Tick
from workers.queue.port import Topic, single

UPDATES: Final[Topic[Posted | Tick]] = Topic("feed.updates", durable=True, decode=single(decode_update))
"""Exists only in a home that has other catalogs than that of pins. Each catalog has one consumer group for each
cluster."""
