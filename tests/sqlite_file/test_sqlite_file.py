"""A SQLite file that several processes use, as the follow store and as the embedded queue: turns, crashes, errors."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedstore import durable, sqlite_file
from feedstore.follows import sqlite
from feedstore.follows import sqlite as follow_files
from feedstore.sqlite_file import FairLock, SqliteFile, Turn, Use
from tests.disks import fill
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue import sqlite_file as queue_files
from workers.queue.embedded import EmbeddedQueue

USES = {"follow store": follow_files.USE, "queue": queue_files.USE}


@pytest.fixture(params=USES, ids=list(USES))
def use(request: pytest.FixtureRequest) -> Use:
    return USES[request.param]


@pytest.fixture
def path(tmp_path: Path, use: Use) -> Path:
    path = tmp_path / "a directory?" / "file.db"
    SqliteFile.make(path, use, prepare)
    return path


@pytest.fixture
def file(path: Path, use: Use) -> Iterator[SqliteFile]:
    with closing(SqliteFile(path, use)) as file:
        yield file


def prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY, pair INTEGER)")


def write(file: SqliteFile, number: int) -> None:
    with file.write() as writer:
        writer.execute("INSERT INTO lines VALUES (?, ?)", (number, number))


def lines(file: SqliteFile) -> list[int]:
    with file.read() as reader:
        return [number for (number,) in reader.execute("SELECT number FROM lines ORDER BY number")]


# What is on disk
# --------------------------------------------------------------------------------------------------------------------


def test_lock_files_have_the_names_that_earlier_programs_wait_for(tmp_path: Path) -> None:
    """A program of either age may use a home while the other one does: they must take turns."""
    sqlite.create([tmp_path / "follows.db"])
    EmbeddedQueue.create(tmp_path / "queue.db", {ACTIONS: 1, DELIVERIES: 1, RETRIES: 1})

    assert {each.name for each in tmp_path.glob("*.db.*")} == {
        "follows.db.turn",
        "follows.db.lock",
        "queue.db.next",
        "queue.db.lock",
    }


def test_a_file_and_what_is_beside_it_are_for_their_user_alone(file: SqliteFile, path: Path) -> None:
    write(file, 1)
    assert {each.stat().st_mode & 0o077 for each in path.parent.iterdir()} == {0}
    assert len(list(path.parent.iterdir())) == 5, "the file, its log and its index, two lock files"


def test_making_a_file_again_keeps_what_it_holds(file: SqliteFile, path: Path, use: Use) -> None:
    write(file, 1)
    SqliteFile.make(path, use, prepare)
    assert lines(file) == [1]


def test_rule_11_a_write_is_synced_unless_its_caller_says_otherwise(file: SqliteFile) -> None:
    for synced, level in ((True, 2), (False, 1), (True, 2), (True, 2)):
        with file.write(synced=synced) as writer:
            assert writer.execute("PRAGMA synchronous").fetchone() == (level,)


def test_a_sync_reaches_the_log_with_what_was_written_before_it(
    file: SqliteFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file.write(synced=False) as writer:
        writer.execute("INSERT INTO lines VALUES (7, 7)")
    synced: list[tuple[Path, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    file.sync()
    log = _log_of(path)
    assert synced == [(log, log.stat().st_size)]
    assert log.stat().st_size > 0


@contextmanager
def always_read(file: SqliteFile) -> Iterator[None]:
    """A block during which there is no moment without a reader: each read ends after the next one has begun."""
    begun, end = threading.Event(), threading.Event()

    def begin() -> ExitStack:
        reads = ExitStack()
        reads.enter_context(file.read()).execute("SELECT count(*) FROM lines").fetchone()
        begun.set()
        return reads

    def read() -> None:
        reads = begin()
        while not end.is_set():
            before, reads = reads, begin()
            before.close()
        reads.close()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            assert begun.wait(60)
            yield
        finally:
            end.set()
        reading.result(60)


def _log_of(path: Path) -> Path:
    return path.resolve().with_name(path.name + "-wal")


def test_the_log_does_not_grow_without_end_although_somebody_always_reads(
    path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LOG_TRIES", 1_000)
    log_bytes = 100_000
    with closing(SqliteFile(path, replace(use, log_bytes=log_bytes))) as file, always_read(file):
        longest = 0
        for number in range(500):
            write(file, number)
            longest = max(longest, _log_of(path).stat().st_size)
    assert longest < 3 * log_bytes


def test_a_read_that_does_not_end_fails_no_write_and_the_log_is_emptied_after_it(
    path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LOG_WAIT_MS", 0)
    log_bytes = 100_000
    with closing(SqliteFile(path, replace(use, log_bytes=log_bytes))) as file:
        with file.read() as reader:
            reader.execute("SELECT count(*) FROM lines").fetchone()
            for number in range(500):
                write(file, number)
            assert _log_of(path).stat().st_size > 5 * log_bytes
        write(file, 500)  # copies all of the log, and the next one begins it again
        write(file, 501)
        assert _log_of(path).stat().st_size <= 4 * log_bytes
        assert lines(file) == list(range(502))


def test_a_copy_that_was_made_without_a_log_has_one_from_its_first_write_on(
    path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("VACUUM INTO ?", (str(copy),))
    monkeypatch.setattr(sqlite_file, "TURN_WAIT_S", 0.02)
    with closing(SqliteFile(copy, use)) as file:
        write(file, 1)
        with file.read() as reader:
            reader.execute("SELECT count(*) FROM lines").fetchone()
            write(file, 2)
        assert lines(file) == [1, 2]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_rule_11_nothing_is_acknowledged_that_would_go_into_a_file_which_was_moved_away(
    file: SqliteFile, path: Path, use: Use, *, is_replaced: bool
) -> None:
    write(file, 1)
    moved = path.rename(path.with_name("moved.db"))
    if is_replaced:
        shutil.copy(moved, path)
    with pytest.raises(type(use.unavailable("")), match=r"file\.db"):
        write(file, 2)
    with pytest.raises(type(use.unavailable("")), match=r"file\.db"):
        file.write_grouped(insert(3))
    moved.replace(path)
    write(file, 4)
    assert lines(file) == [1, 4]


# Turns
# --------------------------------------------------------------------------------------------------------------------


def test_a_lock_goes_to_the_thread_that_has_waited_longest() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    came: list[int] = []
    threads = []
    for number in range(5):
        threads.append(
            threading.Thread(target=lambda number=number: (lock.acquire(10), came.append(number), lock.release()))
        )
        threads[-1].start()
        while len(lock._waiting) <= number:
            pass
    lock.release()
    # Handed over already: who has just released it comes last.
    assert lock.acquire(10)
    for thread in threads:
        thread.join()
    assert came == [0, 1, 2, 3, 4]
    assert not lock.acquire(0)
    lock.release()
    assert lock.acquire(0)


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_thread_that_is_interrupted_while_it_waits_keeps_no_lock(
    monkeypatch: pytest.MonkeyPatch, *, is_handed_over: bool
) -> None:
    lock = FairLock()
    assert lock.acquire(0)

    class Interrupted:
        """The lock that the interrupted thread sleeps on."""

        def acquire(self, timeout: float | None = None) -> bool:
            if timeout is None:
                return True
            if is_handed_over:
                lock.release()
            raise KeyboardInterrupt

        def release(self) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file.threading, "Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(10)
    if not is_handed_over:
        assert not lock.acquire(0)
        lock.release()
    assert lock.acquire(0)


def test_a_process_that_comes_back_waits_behind_the_one_that_was_waiting(path: Path, use: Use) -> None:
    first, second = Turn(path, use.next_suffix), Turn(path, use.next_suffix)  # as two processes have them
    order: list[str] = []

    def take(turn: Turn, who: str) -> None:
        with turn.held():
            order.append(who)

    with ThreadPoolExecutor(1) as pool, path.with_name(path.name + use.next_suffix).open() as next_in_turn:
        with first.held():
            waiting = pool.submit(take, second, "waiting")
            while _is_free(next_in_turn.fileno()):
                pass
        take(first, "comes back")
        waiting.result(30)
    first.close()
    second.close()
    assert order == ["waiting", "comes back"]


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


@pytest.mark.parametrize("is_next", [False, True])
def test_a_process_stopped_in_a_write_delays_writers_and_no_reader(
    file: SqliteFile, path: Path, use: Use, monkeypatch: pytest.MonkeyPatch, *, is_next: bool
) -> None:
    write(file, 1)
    monkeypatch.setattr(sqlite_file, "TURN_WAIT_S", 0.02)
    with path.with_name(path.name + (use.next_suffix if is_next else ".lock")).open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(type(use.unavailable("")), match=r"file\.db: no turn to write .* another process holds"):
            write(file, 2)
        assert lines(file) == [1]
    write(file, 2)
    assert lines(file) == [1, 2]


def test_a_thread_that_does_not_end_its_write_delays_writers_and_no_reader(
    file: SqliteFile, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "TURN_WAIT_S", 0.02)
    with file.write() as writer:
        writer.execute("INSERT INTO lines VALUES (1, 1)")
        with pytest.raises(type(use.unavailable("")), match="another thread is writing"):
            write(file, 2)
        assert lines(file) == []
    assert lines(file) == [1]


# Crashes
# --------------------------------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from feedstore.sqlite_file import SqliteFile
from tests.sqlite_file.test_sqlite_file import USES

file = SqliteFile(Path(sys.argv[1]), USES[sys.argv[2]])
for number in range(int(sys.argv[3]), int(sys.argv[3]) + 1_000_000):
    with file.write() as writer:
        writer.execute("INSERT INTO lines VALUES (?, 0)", (number,))
        writer.execute("UPDATE lines SET pair = number WHERE number = ?", (number,))
    print(number, flush=True)
"""


@pytest.mark.processes
def test_rule_11_a_killed_process_leaves_whole_writes_and_its_turn(
    file: SqliteFile, path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["use"]
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(path), name, str(first)], stdout=subprocess.PIPE, text=True)
        for first in (0, 1_000_000)
    ]
    acknowledged: list[int] = []
    for child in children:  # the second one continues where the first one died, whatever it held
        assert child.stdout is not None
        acknowledged += [int(child.stdout.readline()) for _ in range(20)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in child.stdout.read().split()]
        child.stdout.close()
        child.wait()

    with file.read() as reader:
        found = dict(reader.execute("SELECT number, pair FROM lines"))
    assert all(number == pair for number, pair in found.items())
    assert set(acknowledged) <= set(found)
    assert len(found) <= len(acknowledged) + len(children), "one more of each, whose acknowledgement was cut off"
    write(file, 9_000_000)


def test_a_write_that_raises_leaves_nothing(file: SqliteFile) -> None:
    def fail() -> None:
        with file.write() as writer:
            writer.execute("INSERT INTO lines VALUES (1, 1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    write(file, 2)
    assert lines(file) == [2]


def test_a_connection_that_cannot_go_back_is_given_up(file: SqliteFile, use: Use) -> None:
    def fail() -> None:
        with file.write() as writer:
            writer.execute("INSERT INTO lines VALUES (1, 1)")
            writer.close()

    with pytest.raises(type(use.unavailable("")), match="closed database"):
        fail()
    write(file, 2)
    assert lines(file) == [2]


# Groups
# --------------------------------------------------------------------------------------------------------------------


class Group:
    """Threads whose changes wait, in their order, until the write that is under way has ended."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.outcomes: dict[int, object] = {}
        self._threads: list[threading.Thread] = []

    def add(self, number: int, change: Callable[[sqlite3.Connection], object]) -> None:
        def run() -> None:
            try:
                self.outcomes[number] = self.file.write_grouped(change)
            except BaseException as error:  # noqa: BLE001 - what a thread met is looked at below
                self.outcomes[number] = error

        waiting = len(self.file._waiting)
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        while len(self.file._waiting) == waiting and number not in self.outcomes:
            pass

    def end(self) -> dict[int, object]:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        assert not self.file._waiting
        return self.outcomes


def insert(number: int) -> Callable[[sqlite3.Connection], int]:
    def change(writer: sqlite3.Connection) -> int:
        writer.execute("INSERT INTO lines VALUES (?, ?)", (number, number))
        return number

    return change


@pytest.fixture
def group(file: SqliteFile) -> Group:
    return Group(file)


def commits(file: SqliteFile) -> list[str]:
    """What is committed from now on, a statement each."""
    seen: list[str] = []
    assert file._writer is not None
    file._writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    return seen


def test_changes_that_wait_are_one_transaction(file: SqliteFile, group: Group) -> None:
    assert file.write_grouped(insert(1)) == 1
    with file.write():
        for number in range(2, 10):
            group.add(number, insert(number))
        seen = commits(file)
    assert group.end() == {number: number for number in range(2, 10)}
    assert len(seen) == 2, "that of the write that was under way, and one more"
    assert lines(file) == list(range(1, 10))


def test_rule_11_a_grouped_change_is_synced_and_shown_before_its_call_returns(file: SqliteFile, group: Group) -> None:
    write(file, 1)
    levels: list[tuple[int]] = []

    def last(writer: sqlite3.Connection) -> list[int]:
        levels.append(writer.execute("PRAGMA synchronous").fetchone())
        assert group.outcomes == {}, "no call returns before the commit"
        return lines(file)

    with file.write(synced=False):
        group.add(2, insert(2))
        group.add(3, last)
    assert group.end() == {2: 2, 3: [1]}
    assert levels == [(2,)]
    assert lines(file) == [1, 2]


def test_a_change_that_raises_is_undone_alone(file: SqliteFile, group: Group) -> None:
    def fail(writer: sqlite3.Connection) -> None:
        writer.execute("INSERT INTO lines VALUES (100, 100)")
        raise ZeroDivisionError

    write(file, 1)
    with file.write():
        group.add(2, insert(2))
        group.add(3, fail)
        group.add(4, insert(1))  # there is one
        group.add(5, insert(5))
    outcomes = group.end()
    assert (outcomes[2], outcomes[5]) == (2, 5)
    assert isinstance(outcomes[3], ZeroDivisionError)
    assert "UNIQUE" in str(outcomes[4])
    assert lines(file) == [1, 2, 5]
    with pytest.raises(ZeroDivisionError):
        file.write_grouped(fail)
    assert lines(file) == [1, 2, 5]


def test_a_transaction_that_is_lost_is_lost_for_its_whole_group_and_no_other(
    file: SqliteFile, group: Group, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(writer: sqlite3.Connection) -> None:
        writer.execute("ROLLBACK")  # as SQLite does by itself
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_file, "GROUP_MAX", 3)
    with file.write():
        group.add(1, insert(1))
        group.add(2, full)
        group.add(3, insert(3))
        group.add(4, insert(4))
    outcomes = group.end()
    for number in (1, 2, 3):
        assert isinstance(outcomes[number], type(use.unavailable("")))
        assert "file.db: database or disk is full" in str(outcomes[number])
    assert outcomes[4] == 4
    assert lines(file) == [4]


class _StopsOnce:
    """A lock whose holder, once it is told to, stops when it has given it back."""

    def __init__(self) -> None:
        self.stops = False
        self.stopped, self.continues = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        stops, self.stops = self.stops, False
        self._lock.release()
        if stops:
            self.stopped.set()
            assert self.continues.wait(60)


def test_a_change_may_get_the_lead_before_its_thread_waits_for_it(
    file: SqliteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = _StopsOnce()
    monkeypatch.setattr(file, "_gathering", gathering)
    begun = threading.Event()

    def first(writer: sqlite3.Connection) -> int:
        begun.set()
        assert gathering.stopped.wait(60)
        return insert(1)(writer)

    with ThreadPoolExecutor(2) as pool:
        leads = pool.submit(file.write_grouped, first)
        assert begun.wait(60)
        gathering.stops = True
        follows = pool.submit(file.write_grouped, insert(2))
        assert leads.result(60) == 1
        gathering.continues.set()
        assert follows.result(60) == 2
    assert lines(file) == [1, 2]


def test_a_full_disk_is_named(small_disk: Path, use: Use) -> None:
    path = small_disk / "file.db"
    SqliteFile.make(path, use, prepare)
    fill(small_disk / "ballast")
    for look in (lambda file: write(file, 1), lines):
        with closing(SqliteFile(path, use)) as file, pytest.raises(type(use.unavailable("")), match="its disk is full"):
            look(file)

    (small_disk / "ballast").unlink()
    with closing(SqliteFile(path, use)) as file:
        write(file, 1)
        assert lines(file) == [1]


def test_a_group_is_bounded_and_those_after_it_come_in_their_order(
    file: SqliteFile, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "GROUP_MAX", 2)
    came: list[int] = []
    with file.write():
        for number in range(5):
            group.add(number, lambda _, number=number: came.append(number))
        seen = commits(file)
    group.end()
    assert came == [0, 1, 2, 3, 4]
    assert len(seen) == 1 + 3


@pytest.mark.parametrize("is_another_process", [False, True])
def test_changes_whose_turn_does_not_come_are_refused_and_not_done_later(
    file: SqliteFile, path: Path, use: Use, group: Group, monkeypatch: pytest.MonkeyPatch, *, is_another_process: bool
) -> None:
    write(file, 1)
    monkeypatch.setattr(sqlite_file, "TURN_WAIT_S", 0.5)

    def add() -> None:
        for number in (2, 3, 4):
            group.add(number, insert(number))

    if is_another_process:
        with path.with_name(path.name + ".lock").open() as stopped:
            fcntl.flock(stopped, fcntl.LOCK_EX)
            add()
            outcomes = group.end()
    else:
        with file.write():
            add()
            outcomes = group.end()
    for outcome in outcomes.values():
        assert isinstance(outcome, type(use.unavailable("")))
        assert "no turn to write within" in str(outcome)
    assert file.write_grouped(insert(5)) == 5
    assert lines(file) == [1, 5]


def test_an_interrupt_of_the_thread_that_commits_is_not_now_for_the_others(
    file: SqliteFile, group: Group, use: Use
) -> None:
    def interrupt(_: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with file.write():
        group.add(1, interrupt)
        group.add(2, insert(2))
    outcomes = group.end()
    assert isinstance(outcomes[1], KeyboardInterrupt)
    assert isinstance(outcomes[2], type(use.unavailable("")))
    assert file.write_grouped(insert(3)) == 3
    assert lines(file) == [3]


def test_a_thread_that_is_interrupted_while_it_waits_leaves_no_change_and_no_gap(
    file: SqliteFile, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        """The lock that the interrupted thread sleeps on."""

        def acquire(self, timeout: float = -1) -> bool:
            raise KeyboardInterrupt

        def release(self) -> None:
            """It is told to lead while the interrupt arrives."""

    monkeypatch.setattr(sqlite_file, "GROUP_MAX", 1)
    with file.write():
        group.add(1, insert(1))
        real = sqlite_file._Member.__init__

        def made(self: sqlite_file._Member, *arguments: Any) -> None:
            real(self, *arguments)
            self.woken = Interrupted()  # type: ignore[assignment]  # what is used of a lock

        with monkeypatch.context() as patch:
            patch.setattr(sqlite_file._Member, "__init__", made)
            with pytest.raises(KeyboardInterrupt):
                file.write_grouped(insert(2))
        group.add(3, insert(3))
    assert group.end() == {1: 1, 3: 3}
    assert lines(file) == [1, 3]


def test_changes_that_wait_when_the_file_is_closed_are_refused(file: SqliteFile, group: Group, use: Use) -> None:
    write(file, 1)
    with file.write():
        group.add(2, insert(2))
        file._closed = True  # as `close` leaves it, which waits for this write
    outcomes = group.end()
    file._closed = False
    assert isinstance(outcomes[2], type(use.closed("")))
    assert lines(file) == [1]


GROUPED_CHILD = """
import os, sys, threading
from pathlib import Path
from feedstore.sqlite_file import SqliteFile
from tests.sqlite_file.test_sqlite_file import USES

file = SqliteFile(Path(sys.argv[1]), USES[sys.argv[2]])

def client(first):
    for number in range(first, first + 1_000_000):
        def change(writer):
            writer.execute("INSERT INTO lines VALUES (?, 0)", (number,))
            if number % 3 == 0:
                raise ZeroDivisionError
            writer.execute("UPDATE lines SET pair = number WHERE number = ?", (number,))
        try:
            file.write_grouped(change)
        except ZeroDivisionError:
            os.write(1, b"-%d\\n" % number)
        else:
            os.write(1, b"%d\\n" % number)

for each in range(8):
    threading.Thread(target=client, args=(1 + each * 1_000_000,)).start()
"""


@pytest.mark.processes
def test_rule_11_a_killed_process_leaves_whole_groups_and_its_turn(
    file: SqliteFile, path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["use"]
    child = subprocess.Popen([sys.executable, "-c", GROUPED_CHILD, str(path), name], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    answered = [int(child.stdout.readline()) for _ in range(400)]
    child.send_signal(signal.SIGKILL)
    answered += [int(line) for line in child.stdout.read().split()]
    child.stdout.close()
    child.wait()

    with file.read() as reader:
        found = dict(reader.execute("SELECT number, pair FROM lines"))
    assert all(number == pair for number, pair in found.items())
    assert {number for number in answered if number > 0} <= set(found)
    assert not {-number for number in answered if number < 0} & set(found)
    assert len(found) <= len(answered) + 8, "one more of each client, whose answer was cut off"
    write(file, 9_000_000)


# Reads, errors, the end
# --------------------------------------------------------------------------------------------------------------------


def test_a_read_sees_one_snapshot_beside_writes(file: SqliteFile) -> None:
    write(file, 1)
    with file.read() as reader:
        before = reader.execute("SELECT count(*) FROM lines").fetchone()
        write(file, 2)
        assert reader.execute("SELECT count(*) FROM lines").fetchone() == before
    assert lines(file) == [1, 2]


def test_what_fails_is_unavailable_and_names_the_file(tmp_path: Path, use: Use) -> None:
    path = tmp_path / "file.db"
    path.write_bytes(b"no database, but long enough to be looked at" * 100)
    with closing(SqliteFile(path, use)) as file:
        for call in (lambda: lines(file), lambda: write(file, 1), lambda: SqliteFile.make(path, use, prepare)):
            with pytest.raises(type(use.unavailable("")), match=r"file\.db: file is not a database") as caught:
                call()
            assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_closed_file_says_so_and_closes_twice(file: SqliteFile, use: Use) -> None:
    write(file, 1)
    with file.read():
        file.close()
    file.close()
    for call in (lambda: lines(file), lambda: write(file, 2)):
        with pytest.raises(type(use.closed("")), match="used after it was closed"):
            call()
    assert not file._readers, "the reader that was lent when it was closed is closed too"


def test_a_replaced_file_is_whole_and_keeps_its_rights_and_its_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    (tmp_path / "target.new").write_text("what a killed process left")
    for text, mode in (("one\n", 0o600), ("two\n", 0o640)):
        durable.replace(link, text, mode)
        assert (target.read_text(), target.stat().st_mode & 0o777) == (text, mode)
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "target"]
