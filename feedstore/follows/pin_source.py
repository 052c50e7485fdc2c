"""Where the pins of a page come from: the follow store, or whatever answers in its place."""

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from feedstore.domain import Pin
from feedstore.follows.store import FollowStore


class Hydrated(NamedTuple):
    """The answer about some pins.

    pins: the pins that were asked for, in their order, up to the first that cannot be looked up now. None for a pin
        that was deleted, or that does not exist.
    behind_ms: the answer has everything that was saved or deleted longer ago than this; None if that is unknown.
    """

    pins: Sequence[Pin | None]
    behind_ms: int | None


class PinSource(Protocol):
    """Thread-safe."""

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Hydrated:
        """The records of up to MAX_PAGE pins.

        pins: their ids, 8 bytes each, big-endian. The columns of a feed end with these bytes and a catalog has them as
            keys, so a page need not turn them into numbers.
        deadline_s: a time of the service's clock.

        Raises NotNowError: not even the first can be looked up now.
        """


class FollowStorePins:
    """Straight from the follow store, in one query a shard: never behind."""

    def __init__(self, follows: FollowStore) -> None:
        self._follows = follows

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Hydrated:  # noqa: ARG002 - the url of the store has its bounds
        """Raises FollowStoreUnavailableError."""
        ids = struct.unpack(f">{len(pins)}Q", b"".join(pins))
        states = self._follows.pins(ids)
        live = {pin: state.pin for pin, state in states.items() if state.deleted_ms is None}
        return Hydrated([live.get(pin) for pin in ids], 0)
