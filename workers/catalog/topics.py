"""The topic of updates that are posted to catalogs."""

from typing import Final

from workers.catalog.messages import Posted, decode_update
from workers.pipeline.ticks import Tick
from workers.queue.port import Topic, single

UPDATES: Final[Topic[Posted | Tick]] = Topic("feed.updates", durable=True, decode=single(decode_update))
"""There only in a home with another catalog than that of pins. One consumer group a catalog and cluster."""
