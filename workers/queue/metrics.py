"""What is looked at in the queue."""

from typing import Final

from feedstore.metering import GROUP, PARTITION, Definition

PARTITION_LAG: Final = Definition(
    "feed_group_partition_lag",
    "gauge",
    "Messages of a partition that the group has not committed; absent if the queue is away",
    "workers/app/gauges.py",
    ("work", "relay"),
    (GROUP, PARTITION),
)

DEFINITIONS: Final = (PARTITION_LAG,)
