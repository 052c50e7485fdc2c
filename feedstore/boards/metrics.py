"""The metrics of boards."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, get_args

from feedstore.boards.port import Reason
from feedstore.boards.service import BITS, SECONDS, BoardTally
from feedstore.metering import Counted, Label, families

if TYPE_CHECKING:  # defining metrics needs no library
    from prometheus_client.core import Metric

_SERVICE: Final = Counted("feedstore/boards/service.py", ("serve",))

REORDERS: Final = _SERVICE.counter(
    "feed_board_reorders_total",
    "Reorders of boards by what became of them: `unavailable` without an answer of the follow store, `crowded` if room"
    " is made first, the others refused",
    Label("outcome", ("moved", "unchanged", "crowded", "unavailable", *get_args(Reason))),
)
REORDER_SECONDS: Final = _SERVICE.histogram(
    "feed_board_reorder_seconds",
    "Duration of reorders in the follow store that moved a pin, or found it at its place",
    buckets=SECONDS,
)
ROOM: Final = _SERVICE.histogram(
    "feed_board_room_bits",
    "Room of the smaller new gap after a reorder, in bits. Below 10 a task to make room was asked for",
    buckets=BITS,
)


def metrics(tally: BoardTally) -> "Iterator[Metric]":
    reorders = families.counter(REORDERS)
    for outcome, count in tally.outcomes.items():
        reorders.add_metric([outcome], count)
    yield reorders
    for definition, values in ((REORDER_SECONDS, tally.seconds), (ROOM, tally.room)):
        counted = families.histogram(definition)
        counted.add_metric([], values.cumulated(), values.sum)
        yield counted
