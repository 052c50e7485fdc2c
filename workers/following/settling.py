"""How far the relays are, counted whenever a ticker asks."""

from feedstore.follows.port import FollowStore
from feedstore.metering import Meter
from workers.following import metrics


class CountedSettling:
    """The calls of a follow store that a ticker needs."""

    def __init__(self, follows: FollowStore, meter: Meter) -> None:
        self._follows = follows
        self._meter = meter

    def settled_ms(self) -> int:
        settled_ms = self._follows.settled_ms()
        ago_s = max(0, self._follows.about_now().latest_ms - settled_ms) / 1_000
        self._meter.observe(metrics.STAGE_SECONDS, [ago_s], "relayed")
        return settled_ms
