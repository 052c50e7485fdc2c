"""The metrics of boards."""

from typing import Final, get_args

from feedstore.boards.port import Reason
from feedstore.metering import Counted, Label

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
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
ROOM: Final = _SERVICE.histogram(
    "feed_board_room_bits",
    "Room of the smaller new gap after a reorder, in bits. Below 10 a task to make room was asked for",
    buckets=(0, 2, 5, 10, 20, 40, 60, 83),
)
