"""What /metrics says of boards."""

from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from feedstore.boards.service import Tally

MetricName = Literal[
    # Reorders that were asked for, by outcome: moved, unchanged, crowded, unavailable, or the reason of a refusal
    "feed_board_reorders_total",
    # How long those took that moved a pin, or found it at its place
    "feed_board_reorder_seconds",
    # Room of the smaller of the two new gaps, in bits: how many more drops it is sure to take
    "feed_board_room_bits",
]


def metrics(tally: Tally) -> Iterator[Metric]:
    reorders = CounterMetricFamily(_named("feed_board_reorders_total"), "Reorders of boards", labels=["outcome"])
    for outcome, count in tally.outcomes.items():
        reorders.add_metric([outcome], count)
    yield reorders
    yield HistogramMetricFamily(
        _named("feed_board_reorder_seconds"),
        "Duration of reorders in the follow store",
        buckets=tally.seconds.cumulated(),
        sum_value=tally.seconds.sum,
    )
    yield HistogramMetricFamily(
        _named("feed_board_room_bits"),
        "Room of the smaller new gap after a reorder, in bits",
        buckets=tally.room.cumulated(),
        sum_value=tally.room.sum,
    )


def _named(name: MetricName) -> str:
    return name
