"""A SQLite file that several processes use: one of them writes at a time, each in its turn, along with any number of
readers. Writes are transactions, and are on disk when they return. Readers and writers never wait for each other (WAL).

SQLite's own lock makes writers poll for it: while a worker is busy, another writer could wait for ever.

A sync of the disk takes longer than a short write. Threads that wait for their turn with such writes share one
transaction and its sync: a group commit.
"""

import contextlib
import fcntl
import itertools
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from feedstore import durable

TURN_WAIT_S: Final = 10.0
"""How long a writer waits for its turn before it gives up: another process may be stopped in the middle of a write."""
GROUP_MAX: Final = 64
"""The most changes that are committed together: other processes wait for their turn meanwhile."""

LOG_WAIT_MS: Final = 100
LOG_TRIES: Final = 10
"""How long, and how often, a writer that empties the log waits for readers to end. Other writers wait for their turns
meanwhile."""

_ROOM_MIN: Final = 1 << 20
"""A disk with less room than this counts as full: SQLite reports some errors of a full disk as I/O errors."""

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_POLL_S: Final = 0.0002
_POLL_MAX_S: Final = 0.001

Result = TypeVar("Result")
Change = Callable[[sqlite3.Connection], Result]
Last = Callable[[sqlite3.Connection, Sequence[Result]], None]


def _disk(path: Path) -> str:
    """The end of an error about a file: it says so if the disk of the file is full, or cannot be written."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return ""
    if disk.f_flag & os.ST_RDONLY:
        return "; its file system is read-only"
    free = disk.f_bavail * disk.f_frsize
    return f"; its disk is full: {free >> 10} KiB left" if free < _ROOM_MIN else ""


def _identity(path: Path) -> tuple[int, int]:
    """The same as long as a path leads to the same file. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class Use:
    """How a file is used.

    next_suffix: the end of the name of the lock file that the next process in turn holds. It belongs to the format:
        processes that name it differently do not take turns.
    unavailable: makes the error ("not now") for a message, if SQLite or the file system fails.
    damaged: makes the error for a message, if the file is no database any more. It counts as `unavailable` too.
    closed: makes the error of a use after the file was closed.
    writer_cache_kib, reader_cache_kib: the most that a connection keeps of the file's pages.
    log_bytes: once the log next to the file holds this much, it is copied into the file. A page that was written many
        times is copied once. If it is read all the time, it becomes twice as long before it is emptied.
    """

    next_suffix: str
    unavailable: Callable[[str], Exception]
    damaged: Callable[[str], Exception]
    closed: Callable[[str], Exception]
    writer_cache_kib: int
    reader_cache_kib: int
    log_bytes: int = 16 << 20


class SqliteFile:
    """A file that exists. Thread-safe. Not to be carried across a fork."""

    def __init__(self, path: Path, use: Use) -> None:
        self.path = path
        self._use = use
        self._turn = Turn(path, use.next_suffix)
        self._readers: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        self._written: tuple[int, int] | None = None
        self._is_synced: bool | None = None
        self._log = path.resolve().with_name(f"{path.resolve().name}-wal")
        self._log_most = 2 * use.log_bytes
        self._gathering = threading.Lock()
        self._waiting: deque[_Member] = deque()
        self._is_led = False
        self._closed = False

    @classmethod
    def make(cls, path: Path, use: Use, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Makes the file if it is missing. prepare: brings it up to date, while no other process can write; what it
        raises is passed on.

        Raises `use.unavailable`.
        """
        file = cls(path, use)
        with contextlib.closing(file), file.unavailable():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file._turn.held():
                is_new = not path.exists()
                path.touch(mode=0o600)  # its log gets the same rights
                with contextlib.closing(file.connect()) as connection:
                    prepare(connection)
                if is_new:
                    durable.sync(path.parent)

    def rows(self, statement: str, bound: Sequence[object] = ()) -> list[Any]:
        """The rows of one statement, which sees a snapshot by itself. Raises `use.unavailable`."""
        with self._reader() as reader:
            return reader.execute(statement, bound).fetchall()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection whose reads see one snapshot, taken at the first of them. Raises `use.unavailable`."""
        with self._reader() as reader:
            reader.execute("BEGIN")
            yield reader
            reader.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        reader: sqlite3.Connection | None = None
        try:
            self.refuse_closed()
            reader = self._idle_reader() or self.connect()
            yield reader
            self._readers.append(reader)
            if self._closed:
                self._close_readers()
        except BaseException as error:
            if reader is not None:
                reader.close()  # in whatever state it is
            if isinstance(error, (sqlite3.Error, OSError)):
                raise self._failed(error) from error
            raise

    @contextlib.contextmanager
    def write(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """The connection that writes, in a transaction. Once the block has ended, the transaction survives the death of
        this process; if the block raises, it is undone.

        synced: whether it also survives a failure of the machine. A transaction that is not synced may be lost then,
            but only together with all later ones that are not synced: there is one log, which is read up to its first
            damage.

        Raises `use.unavailable`, also if the turn does not come within TURN_WAIT_S.
        """
        with self.unavailable(), self._turn.held():
            writer = self._begun(synced=synced)
            try:
                yield writer
                writer.execute("COMMIT")
            except BaseException:
                self._undo(writer)
                raise

    def sync(self) -> None:
        """Makes all that was written before survive a loss of power. Raises `use.unavailable`."""
        # What is not in the log any more was synced when it was copied into the file. Without a log, that is
        # everything.
        with self.unavailable(), contextlib.suppress(FileNotFoundError):
            durable.sync(self._log)

    def write_grouped(self, change: Change[Result], last: Last[Result] | None = None) -> Result:
        """Makes a change, and returns its result once it is on disk. Changes of threads that wait for their turn share
        a transaction (a group commit). If a change raises, only that change is undone.

        change: short, because its whole group waits for it. It may run in another thread than its caller's.
        last: makes the last change of a transaction, from the results of all its changes that did not raise. Only the
            first member's is called, for the whole group: all callers of a file give the same one. If it raises, all
            changes are undone.

        Raises what the change raises; `use.unavailable`, as `write` does.
        """
        member = _Member(change, last, time.monotonic() + TURN_WAIT_S)
        with self._gathering:
            self._waiting.append(member)
            leads = member.leads = not self._is_led
            self._is_led = True
        with self.unavailable():
            # A thread that gets the lead later is woken for it. It must take that wake-up even if it leads by now.
            if not leads:
                self._wait(member)
            if member.leads:
                self._lead(member)
            if member.error is not None:
                raise member.error
        result: Result = member.result
        return result

    def _wait(self, member: "_Member") -> None:
        """Returns when the member has its outcome, or leads the next group. Raises TimeoutError."""
        try:
            if member.woken.acquire(timeout=max(0.0, member.deadline - time.monotonic())):
                return
            if not self._withdraw(member):
                member.woken.acquire()  # another thread has it in hand, or has just made it the leader
                return
        except BaseException:
            self._leave([member])
            raise
        raise TimeoutError(_no_turn("another thread is writing"))

    def _withdraw(self, member: "_Member") -> bool:
        """Takes a change out if no group has it yet. Returns whether it did: then the change will not be made."""
        with self._gathering:
            if member.leads or member not in self._waiting:
                return False
            self._waiting.remove(member)
            return True

    def _lead(self, leader: "_Member") -> None:
        """Commits a group: all that wait when the turn comes, the leader first. Then the next one leads."""
        group = [leader]
        try:
            with self._turn.held(leader.deadline):
                with self._gathering:
                    group = list(itertools.islice(self._waiting, GROUP_MAX))
                    for _ in group:
                        self._waiting.popleft()
                self._commit(group)
        except BaseException as error:
            # An error of this thread alone (an interrupt, say) is "not now" to the others.
            shared = error if isinstance(error, Exception) else self._use.unavailable(f"{self.path}: {error!r}")
            for each in group:
                each.error = each.error or shared
            if shared is not error:
                raise
        finally:
            self._leave(group)
            for each in group:
                each.woken.release()

    def _leave(self, members: Sequence["_Member"]) -> None:
        """Removes members that do not wait any more. If one of them was the leader, the next that waits leads now."""
        with self._gathering:
            for each in members:
                if each in self._waiting:
                    self._waiting.remove(each)
            if any(each.leads for each in members):
                self._is_led = bool(self._waiting)
                if self._is_led:
                    self._waiting[0].leads = True
                    self._waiting[0].woken.release()

    def _commit(self, group: Sequence["_Member"]) -> None:
        writer = self._begun(synced=True)
        try:
            if len(group) == 1:  # a savepoint would copy each page that is changed
                group[0].result = group[0].change(writer)
            else:
                for each in group:
                    _apply(each, writer)
            made = [each.result for each in group if each.error is None]
            if made and group[0].last is not None:
                group[0].last(writer, made)
            writer.execute("COMMIT")
        except BaseException:
            self._undo(writer)
            raise

    def _begun(self, *, synced: bool) -> sqlite3.Connection:
        """The connection that writes, in a new transaction. The caller holds the turn."""
        self.refuse_closed()
        if self._writer is None:
            self._writer = self._opened_writer()
            self._written = _identity(self.path)
            self._is_synced = None
        elif _identity(self.path) != self._written:
            # It was put back from a copy, for example, and the file that is open here is out of use.
            raise self._use.unavailable(f"{self.path}: another file is there than was opened: start this process again")
        if self._is_synced is not synced:
            self._writer.execute("PRAGMA synchronous = FULL" if synced else "PRAGMA synchronous = NORMAL")
            self._is_synced = synced
        self._empty_long_log(self._writer)
        self._writer.execute("BEGIN IMMEDIATE")
        return self._writer

    def _opened_writer(self) -> sqlite3.Connection:
        writer = self.connect(self._use.writer_cache_kib)
        try:
            # A copy that `VACUUM INTO` has made is without a log, and then readers keep writers out.
            writer.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error:
            writer.close()
            raise
        return writer

    def _empty_long_log(self, writer: sqlite3.Connection) -> None:
        """Empties the log if it is much longer than it should be. The caller holds the turn.

        SQLite begins the log again once all of it is in the file and no reader needs it. It looks for that moment at
        each commit. If people read all the time, some of them began before each commit, and the log would grow until
        the disk is full. Here nothing is committed: later readers need only the file, and earlier ones are soon gone.
        """
        try:
            log_bytes = self._log.stat().st_size
        except FileNotFoundError:
            return
        if log_bytes < self._log_most:
            return
        # If it fails, a process may be suspended while it reads, or the disk is full: the next writes do not try again.
        self._log_most = log_bytes + self._use.log_bytes
        with contextlib.suppress(sqlite3.Error):
            writer.execute(f"PRAGMA busy_timeout = {LOG_WAIT_MS}")
            # Several short waits: during a long one, later readers would take the place of those that it waits for.
            for _ in range(LOG_TRIES):
                (is_busy, *_) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not is_busy:
                    self._log_most = 2 * self._use.log_bytes
                    break
        writer.execute(f"PRAGMA busy_timeout = {round(1_000 * TURN_WAIT_S)}")

    def connect(self, cache_kib: int | None = None) -> sqlite3.Connection:
        """A connection that its caller closes, used by one thread at a time. Raises sqlite3.Error."""
        connection = sqlite3.connect(
            f"{self.path.resolve().as_uri()}?mode=rw",
            uri=True,
            timeout=TURN_WAIT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA cache_size = -{cache_kib or self._use.reader_cache_kib}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA wal_autocheckpoint = {self._use.log_bytes // page_bytes}")
            connection.execute(f"PRAGMA journal_size_limit = {4 * self._use.log_bytes}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def unavailable(self) -> Iterator[None]:
        """Turns errors of SQLite and the file system (full, read-only, locked, corrupt, no database) into "not now"."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Exception:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more about some errors
        failed = self._use.damaged if kind in _DAMAGED else self._use.unavailable
        return failed(f"{self.path}: {error}{_disk(self.path)}")

    def refuse_closed(self) -> None:
        if self._closed:
            raise self._use.closed(f"{self.path}: used after it was closed")

    def close(self) -> None:
        """Closes what it opened, once running writes have ended; doing it twice is fine."""
        if self._closed:
            return
        with self.unavailable(), self._turn.held_in_process():
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._close_readers()
            self._turn.close()

    def _idle_reader(self) -> sqlite3.Connection | None:
        try:
            return self._readers.pop()
        except IndexError:
            return None

    def _close_readers(self) -> None:
        while reader := self._idle_reader():
            reader.close()

    def _undo(self, writer: sqlite3.Connection) -> None:
        """Rolls back; a connection that cannot even do that is given up, and the next write opens another."""
        try:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
        except sqlite3.Error:
            writer.close()
            self._writer = None


class _Member:
    """A change that waits for its group. woken: is released when it has its outcome, or gets the lead."""

    def __init__(self, change: Change[Any], last: Last[Any] | None, deadline: float) -> None:
        self.change = change
        self.last = last
        self.deadline = deadline
        self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


def _apply(member: _Member, writer: sqlite3.Connection) -> None:
    """Makes a member's change. If it raises, the changes of the others stay as they are."""
    writer.execute("SAVEPOINT one")
    try:
        member.result = member.change(writer)
    except Exception as error:
        if not writer.in_transaction:
            raise  # SQLite has undone all of them: on a full disk, for one
        writer.execute("ROLLBACK TO one")
        member.error = error
    writer.execute("RELEASE one")


class Turn:
    """The right to write to a file: first come, first served among threads; processes take turns.

    Next to the file are two lock files. A process first takes the one with `next_suffix`, then `.lock`, then gives the
    first one back. So a process that has just written finds the first one held by the process that waits, and comes
    after it. The system drops the locks of a process that dies.
    """

    def __init__(self, path: Path, next_suffix: str) -> None:
        self._threads = FairLock()
        self._next = _LockFile(path.with_name(path.name + next_suffix))
        self._lock = _LockFile(path.with_name(path.name + ".lock"))

    @contextlib.contextmanager
    def held(self, deadline: float | None = None) -> Iterator[None]:
        """Holds the turn. deadline: a time of `time.monotonic`; None: TURN_WAIT_S from now.

        Raises TimeoutError if the turn does not come by then; OSError.
        """
        if deadline is None:
            deadline = time.monotonic() + TURN_WAIT_S
        with self.held_in_process(deadline):
            self._next.acquire(deadline)
            try:
                self._lock.acquire(deadline)
            finally:
                self._next.release()
            try:
                yield
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def held_in_process(self, deadline: float | None = None) -> Iterator[None]:
        """Keeps out the threads of this process only. Raises TimeoutError."""
        wait_s = TURN_WAIT_S if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._threads.acquire(wait_s):
            raise TimeoutError(_no_turn("another thread is writing"))
        try:
            yield
        finally:
            self._threads.release()

    def close(self) -> None:
        """Closes the lock files. The caller holds the turn in this process."""
        self._next.close()
        self._lock.close()


class FairLock:
    """A lock that is handed to the thread that has waited longest. The interpreter's own lock goes to the first thread
    that asks after its release, which is mostly the one that has just released it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, seconds: float) -> bool:
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            came = mine.acquire(timeout=seconds)
        except BaseException:  # interrupted
            if not self._withdrawn(mine):
                self.release()
            raise
        return came or not self._withdrawn(mine)

    def _withdrawn(self, mine: threading.Lock) -> bool:
        """Whether a thread does not wait any more; False if the lock was handed to it just now."""
        with self._mutex, contextlib.suppress(ValueError):
            self._waiting.remove(mine)
            return True
        return False

    def release(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class _LockFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def acquire(self, deadline: float) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        pause = _POLL_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(_no_turn(f"another process holds {self._path.name}")) from None
                time.sleep(pause)
                pause = min(2 * pause, _POLL_MAX_S)
            else:
                return

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _no_turn(reason: str) -> str:
    return f"no turn to write within {TURN_WAIT_S:g} s: {reason}"
