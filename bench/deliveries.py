"""Which deliveries a sequence of actions causes: a model of the fanout that knows nothing of the system's code.

A follow delivers the newest CAP pins of the followee, a saved pin goes to everyone who follows its owner or its board.
Removals are not deliveries: what is compared gets only the writes.
"""

import random
from array import array
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.actions import Action, DeletePin, Follow, SavePin, Unfollow

CAP = 1_000
"""The entries of a feed that a reader can reach."""

Followee = tuple[str, int]


@dataclass(frozen=True)
class Deliveries:
    """Every delivery in order, as columns of 64-bit numbers: some tens of bytes each.

    `starts` are the places where a group begins: the deliveries of one action.
    """

    users: "array[int]" = field(default_factory=lambda: array("q"))
    pins: "array[int]" = field(default_factory=lambda: array("q"))
    created_ms: "array[int]" = field(default_factory=lambda: array("q"))
    starts: "array[int]" = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.users)

    def groups(self) -> Iterator[range]:
        for index, start in enumerate(self.starts):
            stop = self.starts[index + 1] if index + 1 < len(self.starts) else len(self)
            yield range(start, stop)

    def sample(self, size: int, seed: int = 1) -> list[range]:
        """Groups that hold about `size` deliveries together, each as likely as any other: the mix of large and small
        fanouts and of backfills is that of the whole.
        """
        rng = random.Random(seed)
        share = size / max(1, len(self))
        return [group for group in self.groups() if rng.random() < share]


def derive(actions: Iterable[Action], cap: int = CAP) -> Deliveries:
    made = Deliveries()
    followers: dict[Followee, dict[int, None]] = defaultdict(dict)
    pins_of: dict[Followee, list[tuple[int, int]]] = defaultdict(list)
    saved: dict[int, SavePin] = {}

    def deliver(group: list[tuple[int, int, int]]) -> None:
        if group:
            made.starts.append(len(made))
            for user, pin, created_ms in group:
                made.users.append(user)
                made.pins.append(pin)
                made.created_ms.append(created_ms)

    for action in actions:
        match action:
            case Follow():
                followee = _followee(action)
                followers[followee][action.follower] = None
                deliver([(action.follower, pin, -age) for age, pin in pins_of[followee][:cap]])
            case Unfollow():
                followers[_followee(action)].pop(action.follower, None)
            case SavePin():
                if action.pin in saved:
                    continue
                saved[action.pin] = action
                reached: dict[int, None] = {}
                for followee in (("user", action.owner), ("board", action.board)):
                    insort(pins_of[followee], (-action.ts, action.pin))
                    reached |= followers.get(followee, {})
                deliver([(user, action.pin, action.ts) for user in reached])
            case DeletePin():
                gone = saved.get(action.pin)
                if gone:
                    for followee in (("user", gone.owner), ("board", gone.board)):
                        if (-gone.ts, gone.pin) in pins_of[followee]:
                            pins_of[followee].remove((-gone.ts, gone.pin))
    return made


def _followee(action: Follow | Unfollow) -> Followee:
    return ("user", action.user) if action.user is not None else ("board", action.board or 0)
