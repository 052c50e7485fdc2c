"""The metrics of re-spacing."""

from typing import Final

from feedstore.metering import Definition

_RESPACING: Final = "workers/boards/respacing.py"

ROWS: Final = Definition(
    "feed_board_respaced_rows_total",
    "counter",
    "Rows of placed pins that re-spacing has written",
    _RESPACING,
    ("work", "expand"),
)
WINDOW: Final = Definition(
    "feed_board_respace_window",
    "histogram",
    "Pins of the window of each request for room; requests with nothing left to do are not counted",
    _RESPACING,
    ("work", "expand"),
    buckets=(4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536, 131_072),
)

DEFINITIONS: Final = (ROWS, WINDOW)
