"""Opening one RocksDB, its settings, and turning its errors into the port's.

rocksdict raises bare `Exception` for everything and ends an iteration *silently* when a block cannot be read; both are
dealt with here, so that nothing else has to know.
"""

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    CompactOptions,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    Snapshot,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from feedstore.widecolumn.port import DamagedError, StoreError, Table, UnavailableError, UnsafeTableError

MIB = 1 << 20

CACHE_BYTES = 32 * MIB
MEMTABLE_BYTES = 4 * MIB
"""A writer has two of them: one is flushed while the other fills up."""
MERGED_FROM = 3
MERGED_FROM_IF_BUSY = 8
"""How many sorted runs a table has before some are merged. Pages look into each run; merging late while a table is busy
merges its cells less often.
"""
JUDGED_WRITES = 64
"""How many writes of a cluster are judged together. A cluster at rest makes them in about a quarter of a minute."""
BUSY_BYTES = MIB
REST_BYTES = 64 * 1024
"""A table is busy if it got at least BUSY_BYTES in these writes, and at rest if it got less than REST_BYTES. What a
writer notes while nothing arrives is a sixth of REST_BYTES.
"""

DURABLE = WriteOptions()
DURABLE.sync = True
DURABLE.memtable_insert_hint_per_batch = True
REOPEN_FREE_BYTES = 4 * MIB
"""With less space than this, opening again after a full disk is not tried."""
UNSYNCED = WriteOptions()
"""For what may be lost by a crash and is found again: the deletions of a sweep."""
ONCE = ReadOptions()
"""For reads of thousands of keys that are not read again: they leave the cache to the blocks of pages."""
ONCE.fill_cache(False)  # type: ignore[call-arg]  # its stub lacks the argument


@dataclass(frozen=True)
class Layout:
    """The content of one RocksDB. families: the names of its column families. options: their settings, around the cache
    that they share. check: raises UnsafeTableError if a database has another layout; with `create` it marks a new one.
    """

    families: Sequence[str]
    options: Callable[[Cache], Options]
    check: Callable[[Path, Rdict, bool], None]


@dataclass(frozen=True)
class Files:
    """An open RocksDB.

    The directory stays locked while any native object lives, and the frames of an exception that somebody keeps would
    keep some alive. So `close` closes what can be closed, and drops the rest. A caller that makes a snapshot, an
    iterator or a batch drops it, whatever happens.

    owned: the directory that an owner opened; None for a reader. RocksDB names files by path: if another directory was
    put in its place, RocksDB would write there, and remove the files that it does not know.
    """

    path: Path
    db: Rdict
    families: dict[str, Rdict]
    handles: dict[str, ColumnFamily]
    owned: tuple[int, int] | None

    def refuse_another(self) -> None:
        """Raises UnavailableError if another directory is in place of the one that an owner has opened."""
        if self.owned is not None and _directory_at(self.path) != self.owned:
            raise UnavailableError(
                f"{self.path}: this is no longer the directory that was opened: end this process, put the"
                " right one in its place, and start it again"
            )

    def close(self) -> None:
        if self.owned is not None and _directory_at(self.path) not in (self.owned, None):
            self._leave()
            return
        self.handles.clear()
        for each in (*self.families.values(), self.db):
            while True:
                try:
                    each.close()
                except RuntimeError:  # "Already borrowed": another thread compacts
                    time.sleep(0.01)
                except Exception:  # noqa: BLE001  # after a failed write; what was acknowledged is in the log
                    break
                else:
                    break

    def _leave(self) -> None:
        """Stops the background's work, and leaves the rest until the process ends: closing a RocksDB removes files."""
        self.db.cancel_all_background(True)
        for each in (*self.families.values(), self.db):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


class Merging:
    """Decides from how many sorted runs each table is merged. At first all are at rest. For one thread at a time."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._writes = 0
        self._bytes: Counter[str] = Counter()
        """What each table got in these writes."""

    def wrote(self, table: str, size: int) -> dict[str, int]:
        """Notes a write of `size` bytes. Returns the tables whose number of runs changes, with the new number."""
        self._bytes[table] += size
        self._writes += 1
        if self._writes < JUDGED_WRITES:
            return {}
        busy = {name for name, got in self._bytes.items() if got >= BUSY_BYTES} - self._busy
        at_rest = {name for name in self._busy if self._bytes[name] < REST_BYTES}
        self._busy = (self._busy | busy) - at_rest
        self._writes = 0
        self._bytes.clear()
        return dict.fromkeys(busy, MERGED_FROM_IF_BUSY) | dict.fromkeys(at_rest, MERGED_FROM)


def layout_of(tables: Iterable[Table]) -> Layout:
    """A column family for each table; their widths are in the default one."""
    given = tuple(tables)

    def check(path: Path, db: Rdict, create: bool) -> None:
        _check_widths(path, db, given, create=create)

    return Layout([table.name for table in given], _table_options, check)


def open_owner(path: Path, layout: Layout) -> Files:
    """Opens for reading and writing; creates what is missing."""
    with _translated(path):
        _refuse_damage(path)
        stored = Rdict.list_cf(str(path)) if _exists(path) else []
        cache = Cache(CACHE_BYTES)
        families = {name: layout.options(cache) for name in {*stored, *layout.families} - {"default"}}
        db = Rdict(str(path), _database_options(), families, AccessType.read_write())
        return _checked(path, db, layout, create=True)


def open_secondary(path: Path, layout: Layout, log_directory: Path) -> Files:
    """Opens for reading while an owner writes, in this or in another process. `live_files` is called before it."""
    with _translated(path):
        options = _database_options()
        options.set_max_open_files(-1)  # else the owner may delete a file between two reads of it
        cache = Cache(CACHE_BYTES)
        families = {name: layout.options(cache) for name in layout.families}
        db = Rdict(str(path), options, families, AccessType.secondary(str(log_directory)))
        return _checked(path, db, layout, create=False)


def live_files(path: Path, layout: Layout, no_logs: Path) -> dict[str, int]:
    """The files of the families, as the manifest names them, and their sizes in bytes. no_logs: a directory without
    logs. The owner's logs would be replayed only to be dropped: up to 32 MiB, with the interpreter held.

    A secondary passes over what is missing, and silently shows an older version. A RocksDB that is opened for reading
    alone does not: it checks that every file is there, and its size.

    Raises:
        DamagedError: a file is missing or has another size. Or the owner has just replaced it: then the manifest has
            grown.
        UnavailableError: there is no database, or one without these families.
    """
    with _translated(path):
        _refuse_damage(path)
        _refuse_nothing(path)
        families = {name: layout.options(Cache(0)) for name in layout.families}
        options = _database_options()
        options.set_wal_dir(str(no_logs))
        try:
            db = Rdict(str(path), options, families, AccessType.read_only(False))
        except Exception:
            # Only now: each list of families takes 200 bytes that rocksdict never gives back.
            _refuse_missing(path, families)
            raise
        try:
            return {str(each["name"]).lstrip("/"): int(each["size"]) for each in db.live_files()}
        finally:
            db.close()


def take(
    path: Path, view: Rdict | Snapshot, position: bytes, count: int, reading: ReadOptions | None = None
) -> list[bytes]:
    """The first `count` keys at or after `position`; fewer only if the table ends."""
    try:
        keys = cast("list[bytes]", list(islice(view.keys(from_key=position, read_opt=reading), count)))
        while len(keys) < count:
            following = keys[-1] + b"\0" if keys else position
            if _is_end(view, following):
                break
            more = view.keys(from_key=following, read_opt=reading)
            keys += cast("list[bytes]", list(islice(more, count - len(keys))))
    except Exception as error:
        raise _unavailable(path, error) from error
    return keys


def _is_end(view: Rdict | Snapshot, position: bytes) -> bool:
    """Whether no key is at or after a position. Raises if the files there cannot be read."""
    iterator = view.iter()
    try:
        iterator.seek(position)
        if iterator.valid():
            return False
        iterator.status()
        return True
    finally:
        del iterator


def write(files: Files, batch: WriteBatch, options: WriteOptions) -> None:
    try:
        files.db.write(batch, options)
    except Exception as error:
        batch.set_default_column_family(None)
        raise _unavailable(files.path, error) from error


def snapshot(path: Path, family: Rdict) -> Snapshot:
    with _translated(path):
        return family.snapshot()


def merge_from(path: Path, family: Rdict, runs: int) -> None:
    """Sets how many sorted runs there are before some are merged, in the background."""
    with _translated(path):
        family.set_options({"level0_file_num_compaction_trigger": str(runs)})


def compact(path: Path, family: Rdict) -> None:
    """Rewrites the files without what a sweep has dropped."""
    options = CompactOptions()
    options.set_exclusive_manual_compaction(v=False)
    with _translated(path):
        family.compact_range(None, None, options)


def catch_up(files: Files) -> None:
    """Reads what the owner has written since. Only for files that were opened for reading."""
    with _translated(files.path):
        files.db.try_catch_up_with_primary()


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raises the port's error for an error of rocksdict."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise _unavailable(path, error) from error


def _unavailable(path: Path, error: Exception) -> UnavailableError:
    text = str(error)
    if "LOCK" in text and ("lock hold by" in text or "While lock file" in text):
        return UnavailableError(f"{path}: another process or cluster object owns this directory ({text})")
    if "Corruption" in text or ("No such file" in text and path.is_dir()):
        return DamagedError(f"{path}: damaged: {text}")
    return UnavailableError(f"{path}: {text}")


def _exists(path: Path) -> bool:
    return (path / "CURRENT").exists()


def _refuse_damage(path: Path) -> None:
    """Raises DamagedError if CURRENT is gone, and other files are there: RocksDB would start empty, and remove them."""
    if path.is_dir() and not _exists(path) and any(path.iterdir()):
        raise DamagedError(f"{path}: damaged: CURRENT is missing, and other files are there")


def _refuse_nothing(path: Path) -> None:
    """Raises UnavailableError if there is no database: rocksdict would create the directory."""
    if not _exists(path):
        raise UnavailableError(f"{path}: there is no cluster in this directory")


def _refuse_missing(path: Path, names: Iterable[str]) -> None:
    wanted = set(names)
    if missing := wanted - set(Rdict.list_cf(str(path))):
        if missing == wanted and any(path.glob("*.sst")):
            raise DamagedError(f"{path}: damaged: there are files of tables, but its manifest names none")
        raise UnavailableError(f"{path}: the owner of this cluster has not created {', '.join(sorted(missing))}")


def _check_widths(path: Path, db: Rdict, tables: Iterable[Table], *, create: bool) -> None:
    """Raises UnsafeTableError if a table was made with other widths. Keys are cut by position, and would be misread."""
    for table in tables:
        widths = bytes((table.row_bytes, table.column_bytes))
        stored = db.get(table.name.encode())
        if stored is None and create:
            db.put(table.name.encode(), widths, DURABLE)
        elif stored is not None and stored != widths:
            raise UnsafeTableError(
                f"{path}: table {table.name} holds rows of {stored[0]} bytes and columns of {stored[1]}, "
                f"not {table.row_bytes} and {table.column_bytes}"
            )


def _directory_at(path: Path) -> tuple[int, int] | None:
    """The directory that is at a path: it stays the same if it is moved."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _checked(path: Path, db: Rdict, layout: Layout, *, create: bool) -> Files:
    """What was opened, once it is checked. If that fails, it is closed: the error would keep it, and its lock."""
    try:
        layout.check(path, db, create)
        return Files(
            path=path,
            db=db,
            families={name: db.get_column_family(name) for name in layout.families},
            handles={name: db.get_column_family_handle(name) for name in layout.families},
            owned=_directory_at(path) if create else None,
        )
    except BaseException:
        db.close()
        raise


def _database_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    options.set_max_background_jobs(2)
    options.set_max_total_wal_size(32 * MIB)
    options.set_max_open_files(256)
    options.set_max_file_opening_threads(1)  # it starts this many for each table, even without files
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    options.set_bytes_per_sync(MIB)
    return options


def _table_options(cache: Cache) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_size(16 * 1024)
    blocks.set_block_cache(cache)
    blocks.set_format_version(5)
    merging = UniversalCompactOptions()
    merging.size_ratio = 10
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_level_zero_file_num_compaction_trigger(MERGED_FROM)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(merging)
    options.set_compression_type(DBCompressionType.lz4())
    return options
