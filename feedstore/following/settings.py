"""What the following feed reads of the configuration: [feed], and its part of [limits]."""

from typing import Annotated

import msgspec
from msgspec import Meta

from feedstore.following.limits import Limits
from feedstore.settings import Ms


class FeedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cap: Annotated[int, Meta(ge=1, le=100_000)]
    slack: Annotated[int, Meta(ge=0, le=100_000)]


class LimitsSettings(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"action_age_ms": "action_age", "delivery_age_ms": "delivery_age", "purge_window_ms": "purge_window"},
):
    action_age_ms: Ms
    delivery_age_ms: Ms
    purge_window_ms: Ms

    def of(self, feed: FeedSettings) -> Limits:
        """Raises ValueError if they do not fit together."""
        return Limits(feed.cap, feed.slack, self.action_age_ms, self.delivery_age_ms, self.purge_window_ms)
