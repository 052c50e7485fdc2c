"""How far a cluster may be behind, from its watermark and a clock."""

from typing import Final

AHEAD_MS: Final = 120_000
"""How much clocks that are kept in time may differ. A watermark that lies further ahead of the clock is a time of some
clock that was wrong, and says nothing of now.
"""


def behind_ms(watermark_ms: int | None, now_ms: int) -> int | None:
    """Everything committed longer ago than this has landed; None if that is unknown."""
    if watermark_ms is None or watermark_ms > now_ms + AHEAD_MS:
        return None
    return max(0, now_ms - watermark_ms)
