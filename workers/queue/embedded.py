"""The embedded queue and its dead letters: durable, in one SQLite file, with nothing to install.

A publish call stores one batch for each partition that it touches, as Kafka does, so that a message costs little more
than its bytes. Publishers and committers take turns, in one process and across processes; readers never wait for them.
A kill -9 loses nothing that was acknowledged.

Tasks are synced to the disk before a publish returns, because the relay then forgets them. So are parked deliveries,
because a cluster has noted them. Deliveries and positions are not synced each time. If the machine dies, the file loses
the latest of both together, because it has one log, and what is lost is made again from the tasks before it. To sync
them took most of an expander's time. Only what a cluster notes as applied is synced before the note: otherwise the
cluster could have applied more than there is.
"""

import contextlib
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from feedstore.errors import MisconfiguredError
from feedstore.lazy import closed_on_error
from feedstore.portions import portions
from feedstore.sqlite_file import SqliteFile
from workers.queue.port import (
    MAX_POLL_BYTES,
    DamagedQueueError,
    DeadLetter,
    GroupBusyError,
    Message,
    PollBudget,
    PositionLostError,
    QueueError,
    QueueUnavailableError,
    Topic,
    check_limit,
    check_partition,
    check_partitions,
    check_position,
    in_turns,
    refuse_oversized,
)
from workers.queue.sqlite_file import THEN, WrongQueueError, make_file, open_file

MAX_BATCH_BYTES = 1_000_000
"""The most bytes of messages in one batch."""

RECHECK_S: Final = 0.05
"""How soon a waiting poll sees what another process published. A publish of its own process wakes it at once."""

EXPIRE_BATCHES: Final = 64
"""The most batches that one transaction of `expire` drops: publishers get their turn in between."""

_QUEUE_TABLES = (
    """CREATE TABLE partitions (
        id INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        earliest_offset INTEGER NOT NULL,
        next_offset INTEGER NOT NULL,
        UNIQUE (topic, partition)
    ) STRICT""",
    # body: msgpack, an array of `count` messages.
    """CREATE TABLE batches (
        partition_id INTEGER NOT NULL REFERENCES partitions,
        base_offset INTEGER NOT NULL,
        count INTEGER NOT NULL,
        published_ms INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (partition_id, base_offset)
    ) STRICT""",
    """CREATE TABLE positions (
        consumer_group TEXT NOT NULL,
        partition_id INTEGER NOT NULL REFERENCES partitions,
        next_offset INTEGER NOT NULL,
        PRIMARY KEY (consumer_group, partition_id)
    ) STRICT, WITHOUT ROWID""",
)

_NEW_PARTITION = """
    INSERT INTO partitions (topic, partition, earliest_offset, next_offset) VALUES (?1, ?2, ?3, ?3)
    ON CONFLICT DO NOTHING"""

_LETTERS_TABLE = """CREATE TABLE IF NOT EXISTS dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic TEXT NOT NULL,
        consumer_group TEXT NOT NULL,
        reason TEXT NOT NULL,
        detail TEXT NOT NULL,
        died_ms INTEGER NOT NULL,
        value_sha256 BLOB NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (topic, consumer_group, value_sha256)
    ) STRICT"""

_APPEND = "INSERT INTO batches (partition_id, base_offset, count, published_ms, body) VALUES (?, ?, ?, ?, ?)"

# The batches from the one that holds an offset. Rows are stepped through one by one: one body is in memory at a time.
_BATCHES_FROM = """
    SELECT base_offset, body FROM batches
    WHERE partition_id = ?1
      AND base_offset >= (SELECT max(base_offset) FROM batches WHERE partition_id = ?1 AND base_offset <= ?2)
    ORDER BY base_offset"""

_COMMIT = """
    INSERT INTO positions (consumer_group, partition_id, next_offset) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset WHERE excluded.next_offset > next_offset"""

_REGISTER = """
    INSERT INTO positions (consumer_group, partition_id, next_offset)
    SELECT ?, id, earliest_offset FROM partitions WHERE topic = ?
    ON CONFLICT DO NOTHING"""

_POSITIONS_IN = "SELECT consumer_group, next_offset FROM positions WHERE partition_id = ?"

# If the clock went back between two batches, the earlier one counts.
_SINCE = """
    SELECT partition, (SELECT min(base_offset) FROM batches WHERE partition_id = p.id AND published_ms >= ?)
    FROM partitions AS p WHERE topic = ?"""

_ENDS = "SELECT earliest_offset, next_offset FROM partitions WHERE topic = ? ORDER BY partition"

_POSITIONS = """
    SELECT p.partition, g.next_offset FROM positions AS g JOIN partitions AS p ON p.id = g.partition_id
    WHERE g.consumer_group = ? AND p.topic = ? ORDER BY p.partition"""

_MOVE = "UPDATE positions SET next_offset = ? WHERE consumer_group = ? AND partition_id = ?"

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode


class NoQueueError(QueueUnavailableError, MisconfiguredError):
    """There is no file, or no queue in it: it was lost, or half made. The message says how to make a new one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: if queue.url is right, the queue is lost: make a new one from the follow store with:"
            " feedctl reindex"
        )


class _Shared:
    """The state that a queue and its consumers share: the file, the live consumers, and news of each publish call."""

    def __init__(self, file: SqliteFile, *, alone: bool) -> None:
        self.file = file
        self.publishes = 0
        self._alone = alone
        self._changed = threading.Condition()
        self._live: set[tuple[str, str]] = set()

    def join(self, topic: str, group: str) -> None:
        with self._changed:
            self.refuse_live(topic, group)
            self._live.add((topic, group))

    def leave(self, topic: str, group: str) -> None:
        with self._changed:
            self._live.discard((topic, group))

    def refuse_live(self, topic: str, group: str) -> None:
        with self._changed:
            if (topic, group) in self._live:
                raise GroupBusyError(f"{self.file.path}: {topic} has a live consumer of {group}; close it first")

    def announce(self) -> None:
        """Wakes the consumers that wait: something was published, or the queue was closed."""
        with self._changed:
            self.publishes += 1
            self._changed.notify_all()

    def wait(self, publishes: int, timeout_s: float) -> bool:
        """Waits for news since `publishes` was read, or until it is time to look again; returns whether to look."""
        with self._changed:
            longest_s = timeout_s if self._alone else min(timeout_s, RECHECK_S)
            return self._changed.wait_for(lambda: self.publishes != publishes, longest_s) or not self._alone


class EmbeddedQueue:
    """All topics in one file. It is made once by `create`, and opened any number of times, by any number of processes.

    One open queue has one live consumer of a group on a topic. Nothing keeps the consumers of two processes apart: both
    read everything, which is wasteful and harmless.
    """

    def __init__(
        self, file: SqliteFile, ids: Mapping[str, Sequence[int]], clock: Callable[[], int], *, alone: bool
    ) -> None:
        """For `open`. ids: the ids of each topic's partitions, in their order, by the topic's name."""
        self._file = file
        self._ids = ids
        self._clock = clock
        self._turns = itertools.count()
        self._shared = _Shared(file, alone=alone)

    @classmethod
    def create(cls, path: Path, partitions: Mapping[Topic[object], int], first_offset: int = 0) -> None:
        """Makes a queue at a path; an existing one stays as it is. first_offset: the offset of the first message of
        each partition; above 0 if another queue was there before.

        Raises:
            QueueError: there is already a queue with other numbers of partitions.
            QueueUnavailableError: the file cannot be written, or is something else.
        """
        check_partitions(partitions)
        with contextlib.closing(make_file(path)) as file, file.write(synced=True) as writer:
            wanted = {topic.name: count for topic, count in partitions.items()}
            _add_new_topics(writer, wanted)
            there = {topic: len(ids) for topic, ids in _stored_partitions(writer).items()}
            if not there:
                for statement in _QUEUE_TABLES:
                    writer.execute(statement)
                _add_partitions(writer, wanted, first_offset)
            elif {topic: there[topic] for topic in wanted} != wanted:
                raise QueueError(f"{path}: there is a queue of {there} partitions already, not {wanted}")

    @classmethod
    def open(
        cls, path: Path, topics: Iterable[Topic[object]], clock: Callable[[], int], *, alone: bool = False
    ) -> "EmbeddedQueue":
        """Opens the queue at a path and adds topics that it lacks. clock: ms since 1970. alone: whether everything
        urgent is published in this process. A waiting poll then hears at once of what this process publishes, and sees
        what others publish only when it begins.

        Raises:
            NoQueueError: there is no file, or no queue in it.
            QueueUnavailableError: it is something else, or a queue of another format.
        """
        file = _opened(path)
        with closed_on_error(file):
            ids = _queue_in(file)
            names = [topic.name for topic in topics]
            if not ids.keys() >= set(names):
                with file.write(synced=True) as writer:
                    _add_new_topics(writer, names)
                    ids = _stored_partitions(writer)
        return cls(file, {name: ids[name] for name in names}, clock, alone=alone)

    def partitions(self, topic: Topic[object]) -> int:
        return len(self._ids[topic.name])

    def topic_id(self, topic: Topic[object]) -> None:
        """The port's: a queue in a file has no such ids. One that takes its place begins with later offsets."""

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        """The port's. All messages of a call go to one partition, or none is stored."""
        if values and partition is None:
            partition = next(self._turns) % len(self._ids[topic.name])
        self.publish_each(topic, {} if partition is None else {partition: values})

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        """The port's. All messages of a call are stored, or none."""
        ids = self._ids[topic.name]
        bodies: dict[int, list[tuple[int, bytes]]] = {}
        for partition, some in values.items():
            check_partition(topic.name, partition, len(ids))
            refuse_oversized(topic.name, some)
            fit = sum(map(len, some)) <= MAX_BATCH_BYTES  # the usual case, in a fraction of the time
            batches = [some] if fit else portions(some, len, MAX_BATCH_BYTES)
            bodies[ids[partition]] = [(len(batch), _pack(batch)) for batch in batches if batch]
        if not any(bodies.values()):
            return
        with self._file.write(synced=topic.durable) as writer:
            now_ms = self._clock()
            for identity, packed in bodies.items():
                (base,) = writer.execute("SELECT next_offset FROM partitions WHERE id = ?", (identity,)).fetchone()
                for count, body in packed:
                    writer.execute(_APPEND, (identity, base, count, now_ms, body))
                    base += count
                writer.execute("UPDATE partitions SET next_offset = ? WHERE id = ?", (base, identity))
        self._shared.announce()

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        self.publish_each(topic, in_turns(values, len(self._ids[topic.name]), next(self._turns)))

    def sync(self, topic: Topic[object]) -> None:
        if not topic.durable:
            self._file.sync()

    def consumer(self, topic: Topic[object], group: str) -> "EmbeddedConsumer":
        name = topic.name
        ids = self._ids[name]
        self._shared.join(name, group)
        try:
            positions = self.positions(topic, group)
            if len(positions) < len(ids):
                with self._file.write(synced=True) as writer:
                    writer.execute(_REGISTER, (group, name))
                positions = self.positions(topic, group)
            with self._file.unavailable():
                connection = self._file.connect()
        except BaseException:
            self._shared.leave(name, group)
            raise
        return EmbeddedConsumer(self._shared, name, group, ids, list(positions.values()), connection)

    def tail(self, topic: Topic[object]) -> "EmbeddedTail":
        name = topic.name
        positions = list(self.ends(topic).values())
        with self._file.unavailable():
            connection = self._file.connect()
        return EmbeddedTail(self._shared, name, "a tail", self._ids[name], positions, connection)

    def members(self, topic: Topic[object], group: str) -> int | None:  # noqa: ARG002 - the port's
        return None  # the home has one worker, and its lock says whether it runs

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        return dict(self._file.rows(_POSITIONS, (group, topic.name)))

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        return {partition: earliest for partition, (earliest, _) in enumerate(self._file.rows(_ENDS, (topic.name,)))}

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        return {partition: end for partition, (_, end) in enumerate(self._file.rows(_ENDS, (topic.name,)))}

    def since(self, topic: Topic[object], from_ms: int) -> dict[int, int]:
        found = self._file.rows(_SINCE, (from_ms, topic.name))
        return {partition: first for partition, first in found if first is not None}

    def move(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        ids = self._ids[topic.name]
        for partition in positions:
            check_partition(topic.name, partition, len(ids))
        self._shared.refuse_live(topic.name, group)
        with self._file.write(synced=True) as writer:
            writer.executemany(_MOVE, [(to, group, ids[partition]) for partition, to in positions.items()])

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:
        dropped = 0
        groups = {topic.name: each for topic, each in readers.items()}
        for name, ids in self._ids.items():
            for identity in ids:
                while some := self._expire_some(identity, kept_ms, groups.get(name, ())):
                    dropped += some
        return dropped

    def close(self) -> None:
        """Wakes waiting consumers, which then raise QueueError; each still closes itself."""
        self._file.close()
        self._shared.announce()

    def _expire_some(self, identity: int, kept_ms: int, readers: Collection[str]) -> int:
        """Drops up to EXPIRE_BATCHES batches from the front of a partition; returns how many messages."""
        with self._file.write(synced=True) as writer:
            now_ms = self._clock()
            positions = writer.execute(_POSITIONS_IN, (identity,)).fetchall()
            unread = min((position for group, position in positions if group in readers), default=None)
            front = writer.execute(
                "SELECT base_offset + count, count, published_ms FROM batches WHERE partition_id = ?"
                " ORDER BY base_offset LIMIT ?",
                (identity, EXPIRE_BATCHES),
            ).fetchall()
            old = [
                *itertools.takewhile(
                    lambda batch: (unread is None or batch[0] <= unread) and not 0 <= now_ms - batch[2] <= kept_ms,
                    front,
                )
            ]
            if not old:
                return 0
            earliest = old[-1][0]
            writer.execute("DELETE FROM batches WHERE partition_id = ? AND base_offset < ?", (identity, earliest))
            writer.execute("UPDATE partitions SET earliest_offset = ? WHERE id = ?", (earliest, identity))
        return sum(count for _, count, _ in old)


class _Window(NamedTuple):
    """A batch in memory; `values[0]` is at offset `base`."""

    base: int
    values: list[bytes]


def _window(place: str, position: int, row: tuple[int, bytes] | None) -> _Window:
    """The batch in a row, which must hold a position. place: names the file and the partition. Raises
    DamagedQueueError.
    """
    missing = f"{place} at {position} is missing: the file is damaged: {THEN}"
    if row is None:
        raise DamagedQueueError(missing)
    base, body = row
    try:
        values = _unpack(body)
    except msgspec.DecodeError as error:
        raise DamagedQueueError(f"{place} at {position} is corrupt: {error}: {THEN}") from error
    if not base <= position < base + len(values):
        raise DamagedQueueError(missing)
    return _Window(base, values)


class EmbeddedTail:
    """Reads a topic from given positions. It holds at most one batch of each partition between polls. who: the name of
    the reader in error messages.
    """

    def __init__(
        self,
        shared: _Shared,
        topic: str,
        who: str,
        ids: Sequence[int],
        positions: list[int],
        connection: sqlite3.Connection,
    ) -> None:
        """For EmbeddedQueue. `ids` and `positions` are by partition."""
        self._shared = shared
        self._path = shared.file.path
        self._topic = topic
        self._who = who
        self._ids = ids
        self._positions = positions
        self._connection = connection
        self._windows: list[_Window | None] = [None] * len(ids)
        self._first = 0
        self._closed = False

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The port's. One poll loads little more than two batches, so it may return less than there is."""
        check_limit(limit)
        deadline = time.monotonic() + timeout_s
        while True:
            self._refuse_closed()
            publishes = self._shared.publishes
            taken = self._take(limit)
            left_s = deadline - time.monotonic()
            if taken or left_s <= 0 or not self._shared.wait(publishes, left_s):
                return taken

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise QueueError(f"{self._path}: {self._who} was used after it was closed")
        self._shared.file.refuse_closed()

    def _ends(self) -> list[tuple[int, int]]:
        """The earliest and the next offset of each partition."""
        return self._connection.execute(_ENDS, (self._topic,)).fetchall()

    def _take(self, limit: int) -> list[Message]:
        """The messages that there are now. If it raises, none is taken."""
        positions = list(self._positions)
        try:
            with self._shared.file.unavailable():
                # Usually there is nothing in an idle home; fewer statements then, because each gives the interpreter to
                # other threads.
                if [end for _, end in self._ends()] == self._positions:
                    return []
                self._connection.execute("BEGIN")  # nothing expires between two reads
                try:
                    return self._take_all(limit)
                finally:
                    self._connection.execute("ROLLBACK")
        except BaseException as error:
            self._positions = positions
            self._windows = [None] * len(self._ids)
            if isinstance(error, WrongQueueError):  # its pages of messages: the file was a queue when it was opened
                raise DamagedQueueError(str(error)) from error
            raise

    def _take_all(self, limit: int) -> list[Message]:
        ends = self._ends()
        for partition, (earliest, _) in enumerate(ends):
            if self._positions[partition] < earliest:
                raise PositionLostError(
                    f"{self._topic}/{partition}: {self._who} wants offset {self._positions[partition]},"
                    f" the earliest that is kept is {earliest}"
                )
        taken: list[Message] = []
        room = PollBudget(limit)
        count = len(self._ids)
        for step in range(count):
            partition = (self._first + step) % count
            self._take_window(partition, room, taken)
            self._load(partition, ends[partition][1], room, taken)
        # The next poll begins with another partition, so that none waits behind a busy one.
        self._first = (self._first + 1) % count
        return taken

    def _take_window(self, partition: int, room: PollBudget, taken: list[Message]) -> None:
        window = self._windows[partition]
        if window is None:
            return
        start = self._positions[partition]
        values = window.values[start - window.base :]
        values = values[: room.let_in(values)]
        taken.extend(map(Message, repeat(partition), itertools.count(start), values))
        self._positions[partition] = start + len(values)
        if self._positions[partition] == window.base + len(window.values):
            self._windows[partition] = None

    def _load(self, partition: int, end: int, room: PollBudget, taken: list[Message]) -> None:
        """Loads batch after batch until the end, or until the poll is full."""
        if self._positions[partition] >= end or room.is_full:
            return
        with contextlib.closing(
            self._connection.execute(_BATCHES_FROM, (self._ids[partition], self._positions[partition]))
        ) as rows:
            while self._positions[partition] < end and not room.is_full:
                place = f"{self._path}: {self._topic}/{partition}"
                self._windows[partition] = _window(place, self._positions[partition], rows.fetchone())
                self._take_window(partition, room, taken)


class EmbeddedConsumer(EmbeddedTail):
    """The one live consumer of a group on a topic: reads as a tail does, and commits."""

    def __init__(
        self,
        shared: _Shared,
        topic: str,
        group: str,
        ids: Sequence[int],
        positions: list[int],
        connection: sqlite3.Connection,
    ) -> None:
        """For EmbeddedQueue. `ids` and `positions` are by partition."""
        super().__init__(shared, topic, f"a consumer of {group}", ids, positions, connection)
        self._group = group
        self._committed = list(positions)

    def commit(self, positions: Mapping[int, int]) -> None:
        self._refuse_closed()
        for partition, position in positions.items():
            check_partition(self._topic, partition, len(self._ids))
            if position > self._positions[partition] or position < 0:
                with self._shared.file.unavailable():
                    end = self._ends()[partition][1]
                check_position(self._topic, partition, position, end)
        news = {
            partition: position for partition, position in positions.items() if position > self._committed[partition]
        }
        if not news:
            return
        with self._shared.file.write(synced=False) as writer:
            writer.executemany(
                _COMMIT, [(self._group, self._ids[partition], position) for partition, position in news.items()]
            )
        for partition, position in news.items():
            self._committed[partition] = position

    def held(self) -> frozenset[int]:
        return frozenset(range(len(self._ids)))

    def keep_alive(self) -> None:
        """Does nothing: there is only one member."""

    def close(self) -> None:
        if not self._closed:
            super().close()
            self._shared.leave(self._topic, self._group)


class EmbeddedDeadLetters:
    """Dead letters in an SQLite file of their own, or in the queue's."""

    def __init__(self, file: SqliteFile) -> None:
        """For `open_dead_letters`."""
        self._file = file

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        with self._file.write(synced=True) as writer:
            writer.execute(
                "INSERT INTO dead_letters (topic, consumer_group, reason, detail, died_ms, value_sha256, value)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (topic.name, group, reason, detail, died_ms, sha256(value).digest(), value),
            )

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        check_limit(limit)
        return self._select("WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    def letter(self, letter_id: int) -> DeadLetter | None:
        return next(iter(self._select("WHERE id = ?", (letter_id,))), None)

    def count(self) -> int:
        ((count,),) = self._file.rows("SELECT count(*) FROM dead_letters")
        return cast("int", count)

    def drop(self, letter_id: int) -> bool:
        with self._file.write(synced=True) as writer:
            return writer.execute("DELETE FROM dead_letters WHERE id = ?", (letter_id,)).rowcount > 0

    def close(self) -> None:
        self._file.close()

    def _select(self, where: str, parameters: tuple[int, ...]) -> list[DeadLetter]:
        columns = "id, topic, consumer_group, reason, detail, died_ms, value"
        rows = self._file.rows(f"SELECT {columns} FROM dead_letters {where}", parameters)  # noqa: S608 - constants
        return [DeadLetter._make(row) for row in rows]


def open_dead_letters(path: Path) -> EmbeddedDeadLetters:
    """Opens the dead letters at a path, and makes them if they are missing. The file is their own or a queue's.

    Raises QueueUnavailableError: the file cannot be written, or is something else.
    """
    try:
        file = open_file(path)
    except QueueUnavailableError:  # missing, or made half: `make` refuses anything else
        file = make_file(path)
    with closed_on_error(file):
        with file.read() as reader:
            there = _has_table(reader, "dead_letters")
        if not there:  # a caller that only reads waits for no writer
            with file.write(synced=True) as writer:
                writer.execute(_LETTERS_TABLE)
    return EmbeddedDeadLetters(file)


def _opened(path: Path) -> SqliteFile:
    if not path.exists():
        raise NoQueueError(f"{path}: no such file")
    return open_file(path)


def _queue_in(file: SqliteFile) -> dict[str, list[int]]:
    """The ids of each topic's partitions, in their order. Raises NoQueueError."""
    with file.read() as reader:
        ids = _stored_partitions(reader)
    if not ids:
        raise NoQueueError(f"{file.path}: holds no queue")
    return ids


def stored_partitions(path: Path) -> dict[str, int]:
    """How many partitions each topic of the queue at a path has, by its name; writes nothing.

    Raises:
        NoQueueError: there is no file, or no queue in it.
        QueueUnavailableError: it is something else, or a queue of another format.
    """
    with contextlib.closing(_opened(path)) as file:
        return {topic: len(ids) for topic, ids in _queue_in(file).items()}


def refuse_damaged(path: Path, groups: Iterable[tuple[Topic[object], str]]) -> None:
    """Reads for each group as far as a poll of its consumer does. Nothing else shows that messages are damaged: SQLite
    has no checksums. Writes nothing, and passes over positions whose messages have expired.

    Raises:
        DamagedQueueError, WrongQueueError: a group can read no further.
        QueueUnavailableError: the file does not answer.
    """
    with contextlib.closing(open_file(path)) as file, file.read() as reader:
        ids = _stored_partitions(reader)
        for topic, group in groups:
            ends = reader.execute(_ENDS, (topic.name,)).fetchall()
            for partition, position in reader.execute(_POSITIONS, (group, topic.name)).fetchall():
                earliest, end = ends[partition]
                if earliest <= position < end:
                    rows = reader.execute(_BATCHES_FROM, (ids[topic.name][partition], position))
                    _read_ahead(f"{path}: {topic}/{partition}", position, end, rows)


def _read_ahead(place: str, position: int, end: int, rows: sqlite3.Cursor) -> None:
    left = MAX_POLL_BYTES
    with contextlib.closing(rows):
        while position < end and left >= 0:
            window = _window(place, position, rows.fetchone())
            left -= sum(map(len, window.values[position - window.base :]))
            position = window.base + len(window.values)


def has_dead_letters(path: Path) -> bool:
    """Whether the file at a path has the table of the dead letters. Raises QueueUnavailableError."""
    with contextlib.closing(open_file(path)) as file, file.read() as reader:
        return _has_table(reader, "dead_letters")


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchone() is not None


def _stored_partitions(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """The ids of each topic's partitions, in their order; empty if a file holds no queue."""
    if not _has_table(connection, "partitions"):
        return {}
    ids: dict[str, list[int]] = {}
    for topic, identity in connection.execute("SELECT topic, id FROM partitions ORDER BY partition"):
        ids.setdefault(topic, []).append(identity)
    return ids


def _add_partitions(connection: sqlite3.Connection, partitions: Mapping[str, int], first_offset: int = 0) -> None:
    rows = [(topic, partition, first_offset) for topic, count in partitions.items() for partition in range(count)]
    connection.executemany(_NEW_PARTITION, rows)


def _add_new_topics(connection: sqlite3.Connection, topics: Iterable[str]) -> None:
    """Adds topics to a queue that was made before they existed, with as many partitions as its largest topic."""
    ids = _stored_partitions(connection)
    if ids and (new := [topic for topic in topics if topic not in ids]):
        _add_partitions(connection, dict.fromkeys(new, max(map(len, ids.values()))))
