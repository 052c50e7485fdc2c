"""The sequential model of what every feed must show: the whole specification, in one place."""

from collections.abc import Iterable

from feedstore.domain import (
    Entry,
    Followed,
    Followee,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    Unfollowed,
)


class Model:
    """Told of the actions in the order in which they were recorded. The latest action on an edge wins; a feed is the
    newest `cap` pins of what is followed now that were not deleted.
    """

    def __init__(self, cap: int, actions: Iterable[RecordedAction] = ()) -> None:
        self._cap = cap
        self._active: dict[tuple[int, Followee], bool] = {}
        self._pins: dict[int, Pin] = {}
        for action in actions:
            self.record(action)

    def record(self, action: RecordedAction) -> None:
        match action:
            case Followed(follower, followee):
                self._active[follower, followee] = True
            case Unfollowed(follower, followee):
                self._active[follower, followee] = False
            case PinSaved(pin):
                self._pins[pin.pin] = pin
            case PinDeleted(pin):
                self._pins.pop(pin.pin, None)

    def follows(self, user: int, followee: Followee) -> bool:
        return self._active.get((user, followee), False)

    def feed(self, user: int) -> list[Entry]:
        return self.wanted(user)[: self._cap]

    def wanted(self, user: int) -> list[Entry]:
        followed = {followee for (follower, followee), active in self._active.items() if active and follower == user}
        wanted = [pin for pin in self._pins.values() if not followed.isdisjoint(pin.followees())]
        wanted.sort(key=lambda pin: (-pin.created_ms, pin.pin))
        return [Entry(pin.pin, pin.created_ms) for pin in wanted]
