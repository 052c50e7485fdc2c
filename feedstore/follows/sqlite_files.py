"""SQLite databases: their connections, the order of their writers, and the migrations.

A file has one connection that writes and a pool of connections that read, for each store that is opened on it. Writers
queue: threads of one process in the order they came, processes in turns. SQLite's own lock makes them poll for it
instead, and with a busy worker beside it a replay could wait for ever.
"""

import fcntl
import importlib.resources
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from feedstore.follows.port import FollowStoreUnavailableError, refuse_version

LOCK_WAIT_S: Final = 10.0
"""How long a writer waits for its turn before it gives up."""

WRITER_CACHE_KIB: Final = 32_768
READER_CACHE_KIB: Final = 8_192
CHECKPOINT_PAGES: Final = 4_000
"""The write-ahead log is copied into the file whenever it holds this many pages (16 MiB)."""

_POLL_S: Final = 0.0002
_POLL_MAX_S: Final = 0.002


class Database(Protocol):
    """Where a shard's rows are: a context manager around each use of a connection."""

    def reading(self) -> "Use":
        """A connection for reads that stand in one snapshot, taken at the first of them."""
        ...

    def writing(self) -> "Use":
        """The connection that writes, in a transaction that holds the database's write lock. It commits at the end,
        or rolls back where an error leaves the block.
        """
        ...

    def close(self) -> None: ...


class Use(Protocol):
    def __enter__(self) -> sqlite3.Connection: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


# Files
# --------------------------------------------------------------------------------------------------------------------


class FileDatabase:
    """A file that exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        self._turn = Turn(path)
        self._closed = False

    def reading(self) -> Use:
        return _Reading(self)

    def writing(self) -> Use:
        return _Writing(self)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        while self._readers:
            self._readers.pop().close()
        with suppress(TimeoutError), self._turn:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._turn.close()

    def unavailable(self, error: BaseException | str) -> FollowStoreUnavailableError:
        return FollowStoreUnavailableError(f"{self._path}: {error}")

    def lend_reader(self) -> sqlite3.Connection:
        self._refuse_closed()
        try:
            return self._readers.pop()
        except IndexError:
            return connect(self._path, READER_CACHE_KIB)

    def take_back(self, reader: sqlite3.Connection) -> None:
        if self._closed:
            reader.close()
        else:
            self._readers.append(reader)

    def begin(self) -> sqlite3.Connection:
        self._refuse_closed()
        self._turn.wait(LOCK_WAIT_S)
        try:
            if self._writer is None:
                self._refuse_closed()
                self._writer = connect(self._path, WRITER_CACHE_KIB)
            self._writer.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._turn.end()
            raise
        return self._writer

    def end(self, *, commit: bool) -> None:
        writer = self._writer
        assert writer is not None
        try:
            if commit:
                writer.execute("COMMIT")
            elif writer.in_transaction:
                writer.execute("ROLLBACK")
        except BaseException:
            # Whatever state it is in: closing it rolls back.
            self._writer = None
            with suppress(sqlite3.Error):
                writer.close()
            raise
        finally:
            self._turn.end()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self.unavailable("the store was closed")


class _Reading:
    def __init__(self, database: FileDatabase) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._reader = self._database.lend_reader()
            self._reader.execute("BEGIN")
        except (sqlite3.Error, OSError) as error:
            raise self._database.unavailable(error) from error
        return self._reader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._reader.execute("ROLLBACK")
            self._database.take_back(self._reader)
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._reader.close()
        if isinstance(error, sqlite3.Error):
            raise self._database.unavailable(error) from error


class _Writing:
    def __init__(self, database: FileDatabase) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        try:
            return self._database.begin()
        except (sqlite3.Error, OSError) as error:
            raise self._database.unavailable(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._database.end(commit=error is None)
        except sqlite3.Error as failure:
            raise self._database.unavailable(failure) from failure
        if isinstance(error, sqlite3.Error):
            raise self._database.unavailable(error) from error


def connect(path: Path, cache_kib: int) -> sqlite3.Connection:
    """A connection to a file that exists. What it commits is on disk when the commit returns (rule 11)."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=rw",
        uri=True,
        timeout=LOCK_WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.executescript(
        f"""
        PRAGMA synchronous = FULL;
        PRAGMA cache_size = -{cache_kib};
        PRAGMA temp_store = MEMORY;
        PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
        PRAGMA journal_size_limit = {4 * CHECKPOINT_PAGES * 4096};
        """
    )
    return connection


# Memory
# --------------------------------------------------------------------------------------------------------------------


class MemoryDatabase:
    """A database that only this store sees, for tests and simulations: cheap to make, gone when it is closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.deserialize(_empty_image())

    def reading(self) -> Use:
        return _MemoryUse(self._lock, self._connection)

    def writing(self) -> Use:
        return _MemoryUse(self._lock, self._connection, "BEGIN")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class _MemoryUse:
    def __init__(self, lock: threading.RLock, connection: sqlite3.Connection, begin: str | None = None) -> None:
        self._lock = lock
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        if self._begin is not None:
            try:
                self._connection.execute(self._begin)
            except sqlite3.Error as error:
                self._lock.release()
                raise FollowStoreUnavailableError(f":memory:: {error}") from error
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._begin is not None and self._connection.in_transaction:
                self._connection.execute("COMMIT" if error is None else "ROLLBACK")
        finally:
            self._lock.release()
        if isinstance(error, sqlite3.Error):
            raise FollowStoreUnavailableError(f":memory:: {error}") from error


@cache
def _empty_image() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        # Small pages: most simulations write a few rows into each table.
        connection.execute("PRAGMA page_size = 1024")
        for _, script in migrations():
            connection.executescript(script)
        return connection.serialize()
    finally:
        connection.close()


# The order of writers
# --------------------------------------------------------------------------------------------------------------------


class Turn:
    """The right to write to a file: first come, first served among threads; processes take turns.

    Beside the file stand two lock files. A process first takes `.turn`, then `.lock`, then gives `.turn` back: one that
    has just written finds `.turn` held by the one that waits, and comes after it. The system drops the locks of a
    process that dies.
    """

    def __init__(self, path: Path) -> None:
        self._threads = FairLock()
        self._turn = _LockFile(path.with_name(path.name + ".turn"))
        self._lock = _LockFile(path.with_name(path.name + ".lock"))

    def wait(self, seconds: float) -> None:
        """Raises TimeoutError where the turn did not come in time, OSError where the lock files cannot be used."""
        deadline = time.monotonic() + seconds
        if not self._threads.acquire(seconds):
            raise TimeoutError(f"no turn to write within {seconds:.0f} s: another thread holds it")
        try:
            self._turn.acquire(deadline)
            try:
                self._lock.acquire(deadline)
            finally:
                self._turn.release()
        except BaseException:
            self._threads.release()
            raise

    def end(self) -> None:
        self._lock.release()
        self._threads.release()

    def close(self) -> None:
        self._turn.close()
        self._lock.close()

    def __enter__(self) -> None:
        self.wait(LOCK_WAIT_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class FairLock:
    """A lock that is handed to the thread that has waited longest. The interpreter's own goes to whoever asks first
    after its release, which is mostly the thread that has just released it.
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
        if mine.acquire(timeout=seconds):
            return True
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
        return True  # it was handed over just now

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
                    raise TimeoutError(f"no turn to write in time: another process holds {self._path}") from None
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


# Migrations
# --------------------------------------------------------------------------------------------------------------------


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """(version, script), ascending. They stand in `schemas/follows/sqlite`, or in the package where it is installed."""
    packaged = importlib.resources.files("feedstore.follows") / "migrations" / "sqlite"
    in_repository = Path(__file__).parents[2] / "schemas" / "follows" / "sqlite"
    folder: Traversable = packaged if packaged.is_dir() else in_repository
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((int(name.split("_", 1)[0]), entry.read_text("utf-8")) for name, entry in scripts)


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def lacking(path: Path) -> list[int]:
    """The versions of the tables that a file which is there lacks, ascending.

    Raises FollowStoreUnavailableError: it is another file, newer than this program, or cannot be read.
    """
    try:
        connection = connect(path, READER_CACHE_KIB)
        try:
            version = version_of(connection)
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise FollowStoreUnavailableError(f"{path}: {error}") from error
    if version > migrations()[-1][0]:
        refuse_version(path, version, migrations()[-1][0])
    return [each for each, _ in migrations() if each > version]


def migrate(path: Path, initialise: Callable[[sqlite3.Connection], None], to: int | None = None) -> None:
    """Creates the file if it is missing, applies the migrations that it lacks, and initialises it. to: the last
    migration that is applied; None: all. Each is a transaction: it is applied or not.

    Raises:
        FollowStoreUnavailableError: it is another file, newer than this program, or it cannot be written.
    """
    try:
        path.touch(mode=0o600)  # its log gets the same rights
        turn = Turn(path)
        try:
            with turn:
                connection = connect(path, READER_CACHE_KIB)
                try:
                    _migrate(connection, initialise, migrations()[-1][0] if to is None else to)
                finally:
                    connection.close()
        finally:
            turn.close()
    except (sqlite3.Error, OSError) as error:
        raise FollowStoreUnavailableError(f"{path}: {error}") from error


def _migrate(connection: sqlite3.Connection, initialise: Callable[[sqlite3.Connection], None], to: int) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    stands = version_of(connection)
    latest = migrations()[-1][0]
    if stands > latest:
        raise sqlite3.DatabaseError(f"it has version {stands}, this program knows {latest}")
    for version, script in migrations():
        if stands < version <= to:
            connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {version}; COMMIT;")
    connection.execute("BEGIN IMMEDIATE")
    initialise(connection)
    connection.execute("COMMIT")
