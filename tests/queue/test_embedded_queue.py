"""What the embedded queue promises beyond the port: one file, several processes, kill -9, and errors by name."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from queue_benches import START_MS, Clock, drain, values

from feedstore import sqlite_file
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES, TOPICS
from workers.queue import embedded
from workers.queue.embedded import MAX_BATCH_BYTES, EmbeddedQueue, open_dead_letters
from workers.queue.port import DamagedQueueError, Message, QueueError, QueueUnavailableError, lag_of
from workers.queue.sqlite_file import PAGE_BYTES

PARTITIONS = {ACTIONS: 1, DELIVERIES: 2, RETRIES: 2}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a directory?" / "queue.db"
    EmbeddedQueue.create(path, PARTITIONS)
    return path


@pytest.fixture
def queue(path: Path) -> Iterator[EmbeddedQueue]:
    queue = EmbeddedQueue.open(path, TOPICS, Clock())
    yield queue
    queue.close()


def sql(path: Path, statement: str, *bound: object) -> list[Any]:
    """The rows of a statement that another program runs."""
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        return other.execute(statement, bound).fetchall()


def run(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process, whose lines the test reads and writes."""
    header = """
import sys
from pathlib import Path
from workers.queue.embedded import EmbeddedQueue, open_dead_letters
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.queue.port import lag_of
"""
    command = [sys.executable, "-c", header + program, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# Making and opening.


def test_making_a_queue_twice_changes_nothing(queue: EmbeddedQueue, path: Path) -> None:
    queue.publish(ACTIONS, [b"x"])
    EmbeddedQueue.create(path, PARTITIONS)
    assert lag_of(queue, ACTIONS, "a") == 1


@pytest.mark.parametrize("again", [False, True], ids=["opened", "made again"])
def test_a_queue_that_was_made_before_a_topic_was_there_gets_it(path: Path, queue: EmbeddedQueue, again: bool) -> None:
    queue.publish(DELIVERIES, [b"x"], 1)
    queue.close()
    sql(path, "DELETE FROM partitions WHERE topic = ?", RETRIES.name)
    if again:
        EmbeddedQueue.create(path, PARTITIONS)
    with contextlib.closing(EmbeddedQueue.open(path, TOPICS, Clock())) as opened:
        assert [opened.partitions(topic) for topic in TOPICS] == [1, 2, 2]
        opened.publish(RETRIES, [b"y"], 1)
        assert (lag_of(opened, DELIVERIES, "a"), lag_of(opened, RETRIES, "a")) == (1, 1)


def test_making_a_queue_with_other_partitions_is_refused(path: Path) -> None:
    with pytest.raises(QueueError, match="already"):
        EmbeddedQueue.create(path, PARTITIONS | {DELIVERIES: 3})


@pytest.mark.parametrize("partitions", [{}, PARTITIONS | {ACTIONS: 0}, PARTITIONS | {DELIVERIES: 9999}])
def test_wrong_numbers_of_partitions_are_a_mistake(tmp_path: Path, partitions: dict) -> None:
    with pytest.raises(ValueError, match="partitions"):
        EmbeddedQueue.create(tmp_path / "queue.db", partitions)
    assert list(tmp_path.iterdir()) == []


def _no_database(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)


def _directory(path: Path) -> None:
    path.mkdir()


def _of_somebody_else(path: Path) -> None:
    sql(path, "CREATE TABLE theirs (x)")


def _of_another_format(path: Path) -> None:
    EmbeddedQueue.create(path, PARTITIONS)
    sql(path, "PRAGMA user_version = 99")


@pytest.mark.parametrize("make", [_no_database, _directory, _of_somebody_else, _of_another_format])
def test_a_file_that_is_something_else_is_named_and_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "queue.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for use in (
        lambda: EmbeddedQueue.open(path, TOPICS, Clock()),
        lambda: EmbeddedQueue.create(path, PARTITIONS),
        lambda: open_dead_letters(path),
    ):
        with pytest.raises(QueueUnavailableError, match=r"queue\.db"):
            use()
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_missing_queue_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(QueueUnavailableError, match="no such file"):
        EmbeddedQueue.open(tmp_path / "queue.db", TOPICS, Clock())
    assert list(tmp_path.iterdir()) == []


def test_dead_letters_alone_are_no_queue(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    open_dead_letters(path).close()
    with pytest.raises(QueueUnavailableError, match="no queue"):
        EmbeddedQueue.open(path, TOPICS, Clock())
    EmbeddedQueue.create(path, PARTITIONS)
    EmbeddedQueue.open(path, TOPICS, Clock()).close()


def test_a_file_that_was_made_half_is_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.touch()
    open_dead_letters(path).close()
    path.unlink()
    sql(path, "PRAGMA journal_mode = WAL")
    EmbeddedQueue.create(path, PARTITIONS)
    EmbeddedQueue.open(path, TOPICS, Clock()).close()


# Errors.


def test_a_full_disk_is_unavailable_and_nothing_of_the_call_is_stored(queue: EmbeddedQueue, path: Path) -> None:
    queue.publish(ACTIONS, [b"before"])
    writer = queue._file._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages + 150}")
    with pytest.raises(QueueUnavailableError, match=r"queue\.db.*full") as refused:
        queue.publish(ACTIONS, [bytes(900_000)] * 10)  # several batches: the first one still fits
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
    assert lag_of(queue, ACTIONS, "a") == 1
    writer.execute("PRAGMA max_page_count = 1000000")
    queue.publish(ACTIONS, [b"after"])
    assert values(drain(queue.consumer(ACTIONS, "a"))) == [b"before", b"after"]


def test_a_read_only_file_is_unavailable(queue: EmbeddedQueue) -> None:
    queue.publish(ACTIONS, [b"x"])
    consumer = queue.consumer(ACTIONS, "a")
    assert len(drain(consumer)) == 1
    queue._file._writer.execute("PRAGMA query_only = 1")
    for use in (lambda: queue.publish(ACTIONS, [b"x"]), lambda: consumer.commit({0: 1})):
        with pytest.raises(QueueUnavailableError, match="readonly"):
            use()
    queue._file._writer.execute("PRAGMA query_only = 0")
    consumer.commit({0: 1})
    assert lag_of(queue, ACTIONS, "a") == 0


@pytest.mark.parametrize("body", [b"\xc1", b"", b"\x90", b"\x91\x01"])
def test_a_corrupt_batch_is_named_and_nothing_is_skipped(queue: EmbeddedQueue, path: Path, body: bytes) -> None:
    queue.publish(DELIVERIES, [b"whole"], 1)
    queue.publish(DELIVERIES, [b"corrupt"], 1)
    [(kept,)] = sql(path, "SELECT body FROM batches WHERE base_offset = 1")
    sql(path, "UPDATE batches SET body = ? WHERE base_offset = 1", body)
    consumer = queue.consumer(DELIVERIES, "a")
    for _ in range(2):
        with pytest.raises(DamagedQueueError, match=r"queue\.db.*feed\.deliveries/1.*move the file away.*reindex"):
            consumer.poll(10, 0)
    sql(path, "UPDATE batches SET body = ? WHERE base_offset = 1", kept)
    assert values(drain(consumer)) == [b"whole", b"corrupt"]


@pytest.mark.parametrize("missing", range(3))
def test_a_batch_that_is_missing_is_named_and_not_passed_over(queue: EmbeddedQueue, path: Path, missing: int) -> None:
    for value in (b"x", b"y", b"z"):
        queue.publish(ACTIONS, [value])
    sql(path, "DELETE FROM batches WHERE base_offset = ?", missing)
    consumer = queue.consumer(ACTIONS, "a")
    for _ in range(2):
        with pytest.raises(DamagedQueueError, match=rf"feed\.actions/0 at {missing} .*move the file away.*reindex"):
            consumer.poll(10, 0)


def test_a_group_whose_consumer_could_not_be_made_gets_one_later(queue: EmbeddedQueue) -> None:
    queue.publish(ACTIONS, [b"x"])
    queue._file._writer.execute("PRAGMA query_only = 1")
    with pytest.raises(QueueUnavailableError, match="readonly"):
        queue.consumer(ACTIONS, "a")
    queue._file._writer.execute("PRAGMA query_only = 0")
    queue.consumer(ACTIONS, "a").close()


def test_a_page_of_the_messages_that_is_damaged_is_named(queue: EmbeddedQueue, path: Path) -> None:
    """The ends and positions have pages of their own: nothing else of the queue shows the damage."""
    queue.publish(ACTIONS, [b"x"])
    queue.consumer(ACTIONS, "a").close()
    queue.close()
    [(page,)] = sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'batches'")
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * 64)
    with contextlib.closing(EmbeddedQueue.open(path, TOPICS, Clock())) as opened:
        assert lag_of(opened, ACTIONS, "a") == 1
        with pytest.raises(DamagedQueueError, match=r"queue\.db: .*malformed.*move the file away.*reindex"):
            opened.consumer(ACTIONS, "a").poll(10, 0)


def test_a_look_reads_as_far_as_a_poll_does(queue: EmbeddedQueue, path: Path) -> None:
    """What is damaged behind the next batch keeps a group at its position, too."""
    for value in (b"done", b"whole", b"corrupt"):
        queue.publish(ACTIONS, [value])
    behind, ahead = queue.consumer(ACTIONS, "behind"), queue.consumer(ACTIONS, "ahead")
    behind.poll(1, 0)
    behind.commit({0: 1})
    drain(ahead)
    ahead.commit({0: 3})
    embedded.refuse_damaged(path, [(ACTIONS, "behind"), (ACTIONS, "ahead"), (DELIVERIES, "behind")])
    sql(path, "UPDATE batches SET body = x'90' WHERE base_offset = 2")
    embedded.refuse_damaged(path, [(ACTIONS, "ahead")])
    with pytest.raises(DamagedQueueError, match=r"feed\.actions/0 at 2.*move the file away.*reindex"):
        embedded.refuse_damaged(path, [(ACTIONS, "ahead"), (ACTIONS, "behind")])


def test_a_writer_that_another_program_keeps_out_gives_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "TURN_WAIT_S", 0.02)
    queue = EmbeddedQueue.open(path, TOPICS, Clock())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueUnavailableError, match=r"queue\.db.*locked"):
        queue.publish(ACTIONS, [b"x"])
    other.execute("ROLLBACK")
    other.close()
    queue.publish(ACTIONS, [b"x"])
    queue.close()


def until_it_waits(polled: "Future[list[Message]]", queue: EmbeddedQueue) -> None:
    """Until a poll waits. On a busy machine it may have done so, and be over, before this looks."""
    while not queue._shared._changed._waiters and not polled.done():
        pass


def test_a_queue_that_is_alone_hears_of_others_when_a_poll_begins(path: Path, queue: EmbeddedQueue) -> None:
    with contextlib.closing(EmbeddedQueue.open(path, TOPICS, Clock(), alone=True)) as alone:
        consumer = alone.consumer(ACTIONS, "a")
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(consumer.poll, 10, 0.5)
            until_it_waits(polled, alone)
            queue.publish(ACTIONS, [b"x"])
            assert polled.result(30) == [], "an idle home is read half as often"
        assert values(consumer.poll(10, 0)) == [b"x"]


def test_a_queue_that_is_alone_hears_of_itself_at_once(path: Path) -> None:
    with contextlib.closing(EmbeddedQueue.open(path, TOPICS, Clock(), alone=True)) as alone:
        consumer = alone.consumer(ACTIONS, "a")
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(consumer.poll, 10, 60.0)
            until_it_waits(polled, alone)
            alone.publish(ACTIONS, [b"x"])
            assert values(polled.result(30)) == [b"x"]


def test_a_publish_wakes_a_waiting_poll_of_its_process_at_once(
    queue: EmbeddedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "RECHECK_S", 120.0)
    consumer = queue.consumer(ACTIONS, "a")
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(consumer.poll, 10, 60.0)
        until_it_waits(polled, queue)
        queue.publish(ACTIONS, [b"x"])
        assert values(polled.result(30)) == [b"x"]


def test_a_consumer_left_behind_does_not_move_its_group_back(queue: EmbeddedQueue, path: Path) -> None:
    queue.publish(ACTIONS, [b"x"] * 5)
    other = EmbeddedQueue.open(path, TOPICS, Clock())
    behind, ahead = queue.consumer(ACTIONS, "a"), other.consumer(ACTIONS, "a")
    ahead.commit({0: 4})
    behind.commit({0: 2})
    assert lag_of(queue, ACTIONS, "a") == 1
    ahead.close()
    other.close()


# Several processes.


@pytest.mark.processes
def test_a_status_process_looks_beside_a_writer_in_the_middle_of_a_write(queue: EmbeddedQueue, path: Path) -> None:
    program = """
path = Path(sys.argv[1])
print(lag_of(EmbeddedQueue.open(path, TOPICS, int), ACTIONS, 'a'), open_dead_letters(path).count())
"""
    queue.publish(ACTIONS, [b"x"])
    open_dead_letters(path).close()
    with queue._file.write(synced=True) as writer:
        writer.execute("UPDATE partitions SET next_offset = 99")
        status = run(program, path)
        assert status.communicate(timeout=30)[0] == "1 0\n"


@pytest.mark.processes
def test_a_waiting_poll_sees_what_another_process_publishes(queue: EmbeddedQueue, path: Path) -> None:
    consumer = queue.consumer(ACTIONS, "a")
    publisher = run("EmbeddedQueue.open(Path(sys.argv[1]), TOPICS, int).publish(ACTIONS, [b'x', b'y'])", path)
    assert values(consumer.poll(10, 30.0)) == [b"x", b"y"]
    assert publisher.wait(30) == 0
    publisher.communicate()


@pytest.mark.processes
def test_processes_publish_at_once_and_lose_nothing(queue: EmbeddedQueue, path: Path) -> None:
    program = """
queue = EmbeddedQueue.open(Path(sys.argv[1]), TOPICS, int)
for number in range(100):
    queue.publish(DELIVERIES, [b"%s %d" % (sys.argv[2].encode(), number)], 0)
"""
    processes = [run(program, path, name) for name in "ab"]
    for number in range(100):
        queue.publish(DELIVERIES, [b"own %d" % number], 0)
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    messages = drain(queue.consumer(DELIVERIES, "a"))
    assert [message.offset for message in messages] == list(range(300))
    for name in ("a", "b", "own"):
        own = [value for value in values(messages) if value.startswith(name.encode() + b" ")]
        assert own == [f"{name} {number}".encode() for number in range(100)]


@pytest.mark.processes
@pytest.mark.parametrize("acknowledged", [1, 7, 60])
def test_a_kill_loses_nothing_that_was_acknowledged(path: Path, acknowledged: int) -> None:
    program = """
queue = EmbeddedQueue.open(Path(sys.argv[1]), TOPICS, int)
letters = open_dead_letters(Path(sys.argv[1]))
consumer = queue.consumer(ACTIONS, "a")
number = 0
while True:
    queue.publish(ACTIONS, [b"%d %d" % (number, part) for part in range(50)])
    letters.bury(ACTIONS, "a", "r", "", 1, b"%d" % number)
    number += 1
    consumer.commit({0: 50 * number - 1})
    print(number, flush=True)
"""
    victim = run(program, path)
    for _ in range(acknowledged):
        last = int(victim.stdout.readline())
    victim.kill()
    last = max([last, *map(int, victim.stdout.read().split())])
    assert victim.wait(30) == -signal.SIGKILL
    victim.stdin.close()
    victim.stdout.close()

    queue = EmbeddedQueue.open(path, TOPICS, Clock())
    messages = drain(queue.consumer(ACTIONS, "fresh"))
    assert len(messages) >= 50 * last
    assert len(messages) % 50 == 0, "a call is stored whole or not at all"
    assert values(messages) == [b"%d %d" % divmod(number, 50) for number in range(len(messages))]
    assert messages[-1].offset == len(messages) - 1
    assert 0 <= len(messages) - lag_of(queue, ACTIONS, "a") - (50 * last - 1) <= 50
    letters = open_dead_letters(path)
    assert letters.count() >= last
    queue.publish(ACTIONS, [b"and more follows"])
    letters.close()
    queue.close()


# Bounds.


def test_a_publish_call_is_one_batch_until_it_is_too_large_for_one(queue: EmbeddedQueue, path: Path) -> None:
    queue.publish(ACTIONS, [b"x"] * 1_000)
    queue.publish(ACTIONS, [bytes(225_000)] * 9)
    rows = sql(path, "SELECT base_offset, count, published_ms, length(body) FROM batches")
    assert [row[:3] for row in rows] == [
        (0, 1_000, START_MS),
        (1_000, 4, START_MS),
        (1_004, 4, START_MS),
        (1_008, 1, START_MS),
    ]
    assert all(size < MAX_BATCH_BYTES + 10_000 for *_, size in rows)


def test_the_room_of_what_has_expired_is_used_again_and_never_given_back(queue: EmbeddedQueue) -> None:
    """As docs/runbooks/alerts/disk-low.md has it."""

    def pages() -> int:
        [(count,)] = queue._file.rows("PRAGMA page_count")
        return int(count)

    def publish() -> int:
        for _ in range(20):
            queue.publish(ACTIONS, [bytes(100_000)])
        return pages()

    empty, full = pages(), publish()
    assert full > empty + 200
    assert queue.expire(-1, {}) == 20
    assert pages() == full
    assert publish() == full
