"""A queue that misbehaves as much as its port allows: any order, any number of times."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from workers.following.messages import Hold, Parked, RangeTask
from workers.following.packs import Pack
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.pipeline.ticks import Tick
from workers.queue.port import Topic


class Taken(NamedTuple):
    """A message and its place in the topic."""

    partition: int
    offset: int
    body: Any


class Group:
    """A consumer group: what it has not done, by partition and offset, and what may be delivered once more."""

    def __init__(self, partitions: int) -> None:
        self.undone: list[dict[int, Any]] = [{} for _ in range(partitions)]
        self.done: list[Taken] = []
        self.in_hand: dict[tuple[int, int], int] = {}
        self.stuck: set[tuple[int, int]] = set()

    def __bool__(self) -> bool:
        return any(self.undone)

    def waiting(self) -> list[Taken]:
        """Everything but ticks, and what is stuck somewhere."""
        return [
            Taken(partition, offset, body)
            for partition, messages in enumerate(self.undone)
            for offset, body in messages.items()
            if type(body) is not Tick and (partition, offset) not in self.stuck
        ]

    def ticks(self) -> Iterator[Taken]:
        """The ticks that have nothing undone before them in their partition."""
        for partition, messages in enumerate(self.undone):
            for offset, body in messages.items():
                if type(body) is Tick:
                    yield Taken(partition, offset, body)
                break

    def take(self, rng: Random, most: int, again: float, latest_first: float) -> list[Taken]:
        """A random batch in a random order: undone messages, some of them in another's hands as well, and with
        probability `again` some that were done before.
        """
        waiting = self.waiting()
        idle = [each for each in waiting if (each.partition, each.offset) not in self.in_hand]
        if idle and rng.random() < 0.9:
            waiting = idle
        count = min(len(waiting), 1 + int(rng.random() * most))
        if rng.random() < latest_first:
            waiting = waiting[-count:]
        taken = rng.sample(waiting, count)
        if self.done and rng.random() < again:
            old = self.done[int(rng.random() * len(self.done))]
            if type(old.body) is not Tick:
                # Its position went back: if its handler dies, it comes once more.
                self.done.remove(old)
                self.undone[old.partition][old.offset] = old.body
                if old not in taken:
                    taken.insert(int(rng.random() * (count + 1)), old)
        return taken

    def hold(self, taken: Sequence[Taken]) -> None:
        for partition, offset, _ in taken:
            self.in_hand[partition, offset] = self.in_hand.get((partition, offset), 0) + 1

    def release(self, taken: Sequence[Taken]) -> None:
        for partition, offset, _ in taken:
            left = self.in_hand.pop((partition, offset), 1) - 1
            if left:
                self.in_hand[partition, offset] = left

    def pass_over(self) -> None:
        """Whatever is there is done, unread."""
        for messages in self.undone:
            messages.clear()
        self.done.clear()
        self.stuck.clear()

    def finish(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            if self.undone[each.partition].pop(each.offset, None) is not None:
                self.done.append(each)


class Bag:
    """All topics, as `workers.queue.port.Queue` for handlers and as groups for the world."""

    def __init__(self, rng: Random, actions: int, deliveries: int, clusters: Sequence[str]) -> None:
        self._rng = rng
        self._counts = {ACTIONS: actions, DELIVERIES: deliveries, RETRIES: deliveries}
        self._ends = {topic: [0] * count for topic, count in self._counts.items()}
        self.latest_first = 0.0
        self.sticky = 0.0
        self.expander = Group(actions)
        self.writers = {cluster: Group(deliveries) for cluster in clusters}
        self.retries = {cluster: Group(deliveries) for cluster in clusters}
        self._groups: dict[Topic[object], Sequence[Group]] = {
            ACTIONS: [self.expander],
            DELIVERIES: list(self.writers.values()),
            RETRIES: list(self.retries.values()),
        }

    def all(self) -> list[Group]:
        return [group for groups in self._groups.values() for group in groups]

    def partitions(self, topic: Topic[object]) -> int:
        return self._counts[topic]

    def grow(self, topic: Topic[object]) -> None:
        """Adds a partition."""
        self._counts[topic] += 1
        self._ends[topic].append(0)
        for group in self._groups[topic]:
            group.undone.append({})

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        groups = self._groups[topic]
        ends = self._ends[topic]
        for value in values:
            chosen = int(self._rng.random() * len(ends)) if partition is None else partition
            # A stage does each body of a message by itself: here they have a place each.
            for body in topic.decode(value):
                for part in self._parts(body):
                    for group in groups:
                        group.undone[chosen][ends[chosen]] = part
                        if self.sticky and self._rng.random() < self.sticky:
                            group.stuck.add((chosen, ends[chosen]))
                    ends[chosen] += 1

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, some in values.items():
            self.publish(topic, some, partition)

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        for value in values:
            self.publish(topic, [value])

    def _parts(self, body: Any) -> list[Any]:
        """A pack in the parts that a stage may make of it: halves, and parts by the buckets of rows."""
        if not isinstance(body, Pack) or self._rng.random() < 0.3:
            return [body]
        if len(body.buckets) > 1 and self._rng.random() < 0.5:
            parts: Sequence[Any] | None = body.divided(frozenset([self._rng.choice(sorted(body.buckets))]))
        else:
            parts = body.halves()
        return [body] if parts is None else [each for part in parts for each in self._parts(part)]

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        """Of the retries of a cluster: no one asks for those of other groups."""
        assert topic == RETRIES
        return self.retried(group.removeprefix("retries-"))

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        return dict(enumerate(self._ends[topic]))

    def retried(self, cluster: str, taken: Sequence[Taken] = ()) -> dict[int, int]:
        """How far the retries of a cluster are in each partition, once they have done what they took."""
        ends, group = self.ends(RETRIES), self.retries[cluster]
        done = {(each.partition, each.offset) for each in taken}
        left = (((number, offset) for offset in each) for number, each in enumerate(group.undone))
        return {
            number: min((offset for number, offset in each if (number, offset) not in done), default=ends[number])
            for number, each in enumerate(left)
        }

    def loosen(self) -> None:
        """One message that is stuck is handled."""
        stuck = [group for group in self.all() if group.stuck]
        if stuck:
            group = stuck[int(self._rng.random() * len(stuck))]
            group.stuck.remove(self._rng.choice(sorted(group.stuck)))

    def forget_before(self, now_ms: int, age_ms: int) -> int:
        """Never again delivers what was done and whose action is older than an age. Returns the time of the oldest
        action that waits.
        """
        oldest_ms = now_ms
        for group in self.all():
            group.done = [each for each in group.done if now_ms - _action_ms(each.body) < age_ms]
            for messages in group.undone:
                oldest_ms = min(oldest_ms, *(_action_ms(body) for body in messages.values()), oldest_ms)
        return oldest_ms


def _action_ms(body: Any) -> int:
    if isinstance(body, Hold | Tick):
        return 2**63
    if isinstance(body, Parked):
        body = body.delivery
    if isinstance(body, RangeTask):
        return min(action.committed_ms for action in body.actions)
    actions = body.recorded() if isinstance(body, Pack) else [body.action]
    return min(action.committed_ms for action in actions)
