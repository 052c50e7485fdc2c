"""One SQLite file, as the embedded adapters share it: one writer at a time, readers beside it, errors by name."""

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from workers.queue.port import QueueError, QueueUnavailableError

WRITE_WAIT_S = 10.0
"""How long a writer waits for its turn before it gives up: another process may be stopped in the middle of a write."""

LOCK_RETRY_S = 0.0005
"""How often the next process in turn looks whether the writer before it is done."""

APPLICATION_ID = 0x66656564  # "feed"
FORMAT = 1

PAGE_BYTES = 8_192
CHECKPOINT_PAGES = 2_048
"""The log beside the file is folded into it past this many pages (16 MiB)."""


@contextlib.contextmanager
def unavailable(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system raise (full, read-only, locked, corrupt, no database) into "not now"."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise QueueUnavailableError(f"{path}: {error}") from error


class WriteLock:
    """One writer at a time, among the threads of this process and among processes, each in its turn.

    A lock alone lets whoever releases it take it again before the waiting ones wake up: a busy publisher would starve
    a committer. So there are two, in the process and on disk: who wants the second waits for it holding the first.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (path.with_name(path.name + ".next"), path.with_name(path.name + ".lock"))
        self._path = path
        self._next_thread = threading.Lock()
        self._thread = threading.Lock()
        self._files: tuple[int, int] | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises QueueUnavailableError where the turn does not come within WRITE_WAIT_S."""
        deadline = time.monotonic() + WRITE_WAIT_S
        with self.held_in_process():
            if self._files is None:
                self._files = self._open()
            next_process, process = self._files
            self._acquire_file(next_process, deadline)
            try:
                self._acquire_file(process, deadline)
            finally:
                fcntl.flock(next_process, fcntl.LOCK_UN)
            try:
                yield
            finally:
                fcntl.flock(process, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def held_in_process(self) -> Iterator[None]:
        """Keeps out the threads of this process only."""
        deadline = time.monotonic() + WRITE_WAIT_S
        self._acquire_thread(self._next_thread, deadline)
        try:
            self._acquire_thread(self._thread, deadline)
        finally:
            self._next_thread.release()
        try:
            yield
        finally:
            self._thread.release()

    def close(self) -> None:
        """Nobody may hold or want the lock any more."""
        if self._files is not None:
            for file in self._files:
                os.close(file)
            self._files = None

    def _open(self) -> tuple[int, int]:
        files: list[int] = []
        try:
            for path in self._paths:
                files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # noqa: PERF401 - closed below
        except OSError:
            for file in files:
                os.close(file)
            raise
        return files[0], files[1]

    def _acquire_thread(self, lock: threading.Lock, deadline: float) -> None:
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise QueueUnavailableError(f"{self._path}: no turn to write within {WRITE_WAIT_S:g} s")

    def _acquire_file(self, file: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise QueueUnavailableError(
                        f"{self._path}: another process has been writing for {WRITE_WAIT_S:g} s"
                    ) from None
                time.sleep(LOCK_RETRY_S)
            else:
                return


class SqliteFile:
    """An existing SQLite file. Thread-safe.

    Writers share one connection, because only one writes at a time; short reads share a second one. Long reads (a
    consumer's) take their own with `connect`. Readers and writers never wait for each other (WAL), whatever process
    they are in. Not to be carried across a fork.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = WriteLock(path)
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    def make(cls, path: Path) -> "SqliteFile":
        """The file at a path, made where it is missing or empty.

        Raises:
            QueueUnavailableError: it cannot be written, or is something else.
        """
        with unavailable(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = cls(path)
        try:
            with unavailable(path), file._lock.held():
                new = not path.exists()
                path.touch(mode=0o600)  # its log gets the same rights
                with contextlib.closing(
                    sqlite3.connect(path, timeout=WRITE_WAIT_S, isolation_level=None)
                ) as connection:
                    _claim(path, connection)
                if new:
                    _sync_directory(path.parent)
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def open(cls, path: Path) -> "SqliteFile":
        """The file at a path.

        Raises:
            QueueUnavailableError: it is missing, something else, or of another format.
        """
        if not path.exists():
            raise QueueUnavailableError(f"{path}: no such file; create the queue first")
        file = cls(path)
        try:
            with file.read() as reader:
                _check_format(path, reader)
        except BaseException:
            file.close()
            raise
        return file

    def connect(self) -> sqlite3.Connection:
        """A connection that its caller closes; used by one thread at a time. Raises sqlite3.Error."""
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=WRITE_WAIT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * PAGE_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def write(self, *, synced: bool) -> Iterator[sqlite3.Connection]:
        """A transaction: it outlives this process when the block has ended, and is undone when it raises.

        synced: it outlives the machine too. One that is not may be lost with the machine, but only together with every
        later one that is not synced: the log is one, and is read up to its first damage.
        """
        with unavailable(self.path), self._lock.held():
            self.refuse_closed()
            if self._writer is None:
                self._writer = self.connect()
            self._writer.execute("PRAGMA synchronous = FULL" if synced else "PRAGMA synchronous = NORMAL")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                self._undo(self._writer)
                raise

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """For one statement. It waits for other short reads, never for a writer."""
        with unavailable(self.path), self._reading:
            self.refuse_closed()
            if self._reader is None:
                self._reader = self.connect()
            yield self._reader

    @property
    def closed(self) -> bool:
        return self._closed

    def refuse_closed(self) -> None:
        if self._closed:
            raise QueueError(f"{self.path}: used after it was closed")

    def close(self) -> None:
        """Closes what it opened, once running calls have ended; doing it twice is fine."""
        if self._closed:
            return
        with unavailable(self.path), self._lock.held_in_process(), self._reading:
            self._closed = True
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None
        self._lock.close()

    def _undo(self, writer: sqlite3.Connection) -> None:
        """Rolls back; a connection that cannot even do that is given up, and the next write opens another."""
        try:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
        except sqlite3.Error:
            writer.close()
            self._writer = None


def _claim(path: Path, connection: sqlite3.Connection) -> None:
    """Marks an empty file as ours; raises where it is anything else."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables:
        _check_format(path, connection)
        return
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _check_format(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise QueueUnavailableError(f"{path}: not a file that the embedded queue made")
    if version != FORMAT:
        raise QueueUnavailableError(f"{path}: format {version}, this program knows {FORMAT}")


def _sync_directory(path: Path) -> None:
    """A file's name is durable once its directory is."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
