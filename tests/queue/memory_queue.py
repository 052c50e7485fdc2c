"""The queue in memory: for simulations, which make thousands of them, and the model that adapters are held to.

It keeps the port's contract but for durability. It does not misbehave: a simulation wraps it.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat

from workers.queue.port import (
    DeadLetter,
    GroupBusyError,
    Message,
    PollBudget,
    PositionLostError,
    QueueError,
    Topic,
    check_limit,
    check_partition,
    check_partitions,
    check_position,
    in_turns,
    refuse_oversized,
)


class _Log:
    """One partition. `values[0]` and `published_ms[0]` are at offset `earliest`."""

    __slots__ = ("earliest", "published_ms", "values")

    def __init__(self) -> None:
        self.earliest = 0
        self.values: list[bytes] = []
        self.published_ms: list[int] = []

    @property
    def end(self) -> int:
        return self.earliest + len(self.values)


class _State:
    """The state that a queue and its consumers share, under `changed`."""

    __slots__ = ("changed", "closed", "committed", "live", "logs")

    def __init__(self, partitions: Mapping[Topic[object], int]) -> None:
        self.logs: dict[Topic[object], list[_Log]] = {
            topic: [_Log() for _ in range(count)] for topic, count in partitions.items()
        }
        self.committed: dict[tuple[Topic[object], str], list[int]] = {}
        self.live: set[tuple[Topic[object], str]] = set()
        self.changed = threading.Condition(threading.Lock())
        self.closed = False

    def refuse_closed(self) -> None:
        if self.closed:
            raise QueueError("a queue in memory was used after it was closed")

    def refuse_live(self, topic: Topic[object], group: str) -> None:
        if (topic, group) in self.live:
            raise GroupBusyError(f"{topic} has a live consumer of {group}; close it first")


class MemoryQueue:
    """All topics in memory; `clock` gives ms since 1970. A group has one live consumer on a topic. ids: those of the
    topics, if the queue has any.
    """

    def __init__(self, partitions: Mapping[Topic[object], int], clock: Callable[[], int]) -> None:
        check_partitions(partitions)
        self._clock = clock
        self._turns = itertools.count()
        self._state = _State(partitions)
        self.ids: dict[Topic[object], bytes] = {}

    def partitions(self, topic: Topic[object]) -> int:
        return len(self._state.logs[topic])

    def topic_id(self, topic: Topic[object]) -> bytes | None:
        return self.ids.get(topic)

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        if values and partition is None:
            partition = next(self._turns) % self.partitions(topic)
        self.publish_each(topic, {} if partition is None else {partition: values})

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        self.publish_each(topic, in_turns(values, self.partitions(topic), next(self._turns)))

    def sync(self, topic: Topic[object]) -> None:
        """Nothing survives this process."""

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        logs = self._state.logs[topic]
        for partition, some in values.items():
            check_partition(topic.name, partition, len(logs))
            refuse_oversized(topic.name, some)
        if not any(values.values()):
            return
        with self._open() as state:
            for partition, some in values.items():
                logs[partition].values.extend(some)
                logs[partition].published_ms.extend(repeat(self._clock(), len(some)))
            state.changed.notify_all()

    def consumer(self, topic: Topic[object], group: str) -> "MemoryConsumer":
        with self._open() as state:
            state.refuse_live(topic, group)
            state.live.add((topic, group))
            if (topic, group) not in state.committed:
                state.committed[topic, group] = [log.earliest for log in state.logs[topic]]
            return MemoryConsumer(state, topic, group)

    def tail(self, topic: Topic[object]) -> "MemoryTail":
        with self._open() as state:
            return MemoryTail(state, topic, "a tail", [log.end for log in state.logs[topic]])

    def members(self, topic: Topic[object], group: str) -> int | None:
        with self._open() as state:
            return int((topic, group) in state.live)

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        with self._open() as state:
            return dict(enumerate(state.committed.get((topic, group), ())))

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        with self._open() as state:
            return {partition: log.earliest for partition, log in enumerate(state.logs[topic])}

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        with self._open() as state:
            return {partition: log.end for partition, log in enumerate(state.logs[topic])}

    def since(self, topic: Topic[object], from_ms: int) -> dict[int, int]:
        with self._open() as state:
            found = {}
            for partition, log in enumerate(state.logs[topic]):
                older = sum(1 for _ in itertools.takewhile(lambda ms: ms < from_ms, log.published_ms))
                if older < len(log.values):
                    found[partition] = log.earliest + older
            return found

    def move(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        with self._open() as state:
            for partition in positions:
                check_partition(topic.name, partition, len(state.logs[topic]))
            state.refuse_live(topic, group)
            for partition, position in positions.items():
                state.committed[topic, group][partition] = position

    def forget(self, topic: Topic[object], group: str) -> None:
        """Deletes the positions of a group, as operators of brokers can."""
        with self._open() as state:
            del state.committed[topic, group]

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:
        with self._open() as state:
            dropped = 0
            now_ms = self._clock()
            for topic, logs in state.logs.items():
                groups = [
                    state.committed[topic, each] for each in readers.get(topic, ()) if (topic, each) in state.committed
                ]
                for partition, log in enumerate(logs):
                    unread = min((committed[partition] for committed in groups), default=log.end)
                    published_ms = log.published_ms[: max(0, unread - log.earliest)]
                    count = sum(
                        1 for _ in itertools.takewhile(lambda ms: not 0 <= now_ms - ms <= kept_ms, published_ms)
                    )
                    del log.values[:count], log.published_ms[:count]
                    log.earliest += count
                    dropped += count
            return dropped

    def close(self) -> None:
        with self._state.changed:
            self._state.closed = True
            self._state.changed.notify_all()

    @contextlib.contextmanager
    def _open(self) -> Iterator[_State]:
        with self._state.changed:
            self._state.refuse_closed()
            yield self._state


class MemoryTail:
    """Reads a topic from given positions. who: reads it, for messages."""

    def __init__(self, state: _State, topic: Topic[object], who: str, positions: list[int]) -> None:
        """For MemoryQueue, which holds the lock. positions: by partition."""
        self._state = state
        self._topic = topic
        self._who = who
        self._logs = state.logs[topic]
        self._positions = positions
        self._first = 0
        self._closed = False

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        check_limit(limit)
        deadline = time.monotonic() + timeout_s
        with self._state.changed:
            while True:
                self._refuse_closed()
                taken = self._take(limit)
                left_s = deadline - time.monotonic()
                if taken or left_s <= 0:
                    return taken
                self._state.changed.wait(left_s)

    def close(self) -> None:
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise QueueError(f"{self._who} was used after it was closed")
        self._state.refuse_closed()

    def _take(self, limit: int) -> list[Message]:
        """The messages that there are now; none is taken if it raises."""
        for partition, (log, position) in enumerate(zip(self._logs, self._positions, strict=True)):
            if position < log.earliest:
                raise PositionLostError(
                    f"{self._topic}/{partition}: {self._who} wants offset {position},"
                    f" the earliest that is kept is {log.earliest}"
                )
        taken: list[Message] = []
        room = PollBudget(limit)
        count = len(self._logs)
        for step in range(count):
            partition = (self._first + step) % count
            log, start = self._logs[partition], self._positions[partition]
            if start == log.end:
                continue
            values = log.values[start - log.earliest : start - log.earliest + limit]
            values = values[: room.let_in(values)]
            taken.extend(map(Message, repeat(partition), itertools.count(start), values))
            self._positions[partition] = start + len(values)
        # Another one is first the next time, so that none waits behind a busy one.
        self._first = (self._first + 1) % count
        return taken


class MemoryConsumer(MemoryTail):
    """The one live consumer of a group on a topic: reads as a tail does, and commits."""

    def __init__(self, state: _State, topic: Topic[object], group: str) -> None:
        """For MemoryQueue, which holds the lock."""
        self._group = group
        self._committed = state.committed[topic, group]
        super().__init__(state, topic, f"a consumer of {group}", list(self._committed))

    def commit(self, positions: Mapping[int, int]) -> None:
        with self._state.changed:
            self._refuse_closed()
            for partition, position in positions.items():
                check_partition(self._topic.name, partition, len(self._logs))
                check_position(self._topic.name, partition, position, self._logs[partition].end)
            for partition, position in positions.items():
                self._committed[partition] = max(position, self._committed[partition])

    def held(self) -> frozenset[int]:
        return frozenset(range(len(self._logs)))

    def keep_alive(self) -> None:
        """Does nothing: there is only one member."""

    def close(self) -> None:
        with self._state.changed:
            if not self._closed:
                super().close()
                self._state.live.discard((self._topic, self._group))


class MemoryDeadLetters:
    """Dead letters in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._letters: dict[int, DeadLetter] = {}
        self._known: set[tuple[str, str, bytes]] = set()

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        with self._lock:
            if (topic.name, group, value) not in self._known:
                self._known.add((topic.name, group, value))
                letter = DeadLetter(next(self._ids), topic.name, group, reason, detail, died_ms, value)
                self._letters[letter.id] = letter

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        check_limit(limit)
        with self._lock:
            return list(itertools.islice((letter for letter in self._letters.values() if letter.id > after), limit))

    def letter(self, letter_id: int) -> DeadLetter | None:
        with self._lock:
            return self._letters.get(letter_id)

    def count(self) -> int:
        with self._lock:
            return len(self._letters)

    def drop(self, letter_id: int) -> bool:
        with self._lock:
            letter = self._letters.pop(letter_id, None)
            if letter is not None:
                self._known.discard((letter.topic, letter.group, letter.value))
            return letter is not None
