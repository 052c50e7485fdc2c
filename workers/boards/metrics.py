"""The metrics of re-spacing."""

from typing import Final

from feedstore.metering import Counted

_RESPACING: Final = Counted("workers/boards/respacing.py", ("work", "expand"))

ROWS: Final = _RESPACING.counter("feed_board_respaced_rows_total", "Rows of placed pins that re-spacing has written")
WINDOW: Final = _RESPACING.histogram(
    "feed_board_respace_window",
    "Pins of the window of each request for room; requests with nothing left to do are not counted",
    buckets=(4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536, 131_072),
)
