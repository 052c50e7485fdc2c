"""The following feed's part of the configuration: [feed] and its part of [limits]. The numbers that the rules
depend on are checked against each other where they are made.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from feedstore.settings import Ms, Section, duration_text

MAX_CHUNK = 1_000
"""The most cells of a delivery: one pin for this many followers, or this many pins for one."""


@dataclass(frozen=True)
class Limits:
    """cap: how many entries a reader can reach. slack: how many live entries a trim keeps beyond the cap.

    action_age_ms: how long after its commit an action may still be done. delivery_age_ms: how long after its handler's
    first read a delivery may still be done. purge_window_ms: how long markers live. chunk: the most rows, and the most
    pins, of one delivery.
    """

    cap: int
    slack: int
    action_age_ms: int
    delivery_age_ms: int
    purge_window_ms: int
    chunk: int = MAX_CHUNK

    def __post_init__(self) -> None:
        for name in ("cap", "action_age_ms", "delivery_age_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.slack < 0:
            raise ValueError(f"slack: expected at least 0, got {self.slack}")
        if not 1 <= self.chunk <= MAX_CHUNK:
            raise ValueError(f"chunk: expected 1 to {MAX_CHUNK}, got {self.chunk}")
        least = self.action_age_ms + 2 * self.delivery_age_ms
        if self.purge_window_ms <= least:
            raise ValueError(
                f"purge_window: expected more than action_age + 2 x delivery_age, {duration_text(least)}, got "
                f"{duration_text(self.purge_window_ms)}: a marker could be purged while a put that it must mask is "
                "still in flight"
            )

    @property
    def window_ms(self) -> int:
        """W: the longest that anything is in flight (rule 8)."""
        return self.action_age_ms + self.delivery_age_ms


class FeedSettings(Section, frozen=True):
    cap: Annotated[int, Meta(ge=1, le=100_000)]
    slack: Annotated[int, Meta(ge=0, le=100_000)]


class LimitsSettings(Section, frozen=True):
    action_age_ms: Ms
    delivery_age_ms: Ms
    purge_window_ms: Ms

    def of(self, feed: FeedSettings) -> Limits:
        """The limits of both sections. Raises ValueError if they do not fit together."""
        return Limits(feed.cap, feed.slack, self.action_age_ms, self.delivery_age_ms, self.purge_window_ms)
