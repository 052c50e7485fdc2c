"""The delta: a RocksDB that its owner writes and others follow.

Updates are in one column family: key -> time x 2 + deleted (8 bytes, big-endian), then the record. `floor` and `known`
are in another one, so that no key can collide with them. So is `known/<sources>/<source>` for each source, if there are
several. The owner reads the present update before it writes, so a reader needs one `get` for each key. A bloom filter
makes these cheap, as nearly all keys are absent.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from feedstore.catalog import rule
from feedstore.catalog.port import CatalogUnavailableError, Delta, Update
from feedstore.catalog.rocksdb.directory import Directory, failing
from feedstore.catalog.rule import Held
from feedstore.widecolumn.port import RefusedError
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from feedstore.widecolumn.rocksdb.files import DURABLE, UNSYNCED, Files, Layout
from feedstore.widecolumn.rocksdb.secondary import Secondary

CATCH_UP_EVERY_S: Final = 0.1
"""A follower's view may be this old."""

_failing = partial(failing, if_damaged=": move this directory away while no worker runs; a worker then makes it again")

_UPDATES, _ABOUT = "updates", "about"
_FLOOR, _KNOWN = b"floor", b"known"
_FORMAT_KEY, _FORMAT = b"format", b"1"
_COLLECTED_AT_ONCE = 1_024


class View:
    """A view of a delta. files: None if it was never made; then nothing is known. The owner's view changes from call to
    call; a follower's does not. `fetch` reads `known_ms` before the updates, and `floor_ms` after them; it says why.
    """

    def __init__(self, path: Path, files: Files | None) -> None:
        self._path = path
        self._files = files

    def known_ms(self) -> int:
        return self._number(_KNOWN)

    def known_of(self, source: int, sources: int) -> int:
        return self._number(_known_key(source, sources))

    def updates(self, keys: Sequence[bytes]) -> list[Held | None]:
        if self._files is None:
            return [None] * len(keys)
        with _failing(self._path):
            get: Callable[[bytes], Any] = self._files.families[_UPDATES].get
            found = [get(key) for key in keys]
        return [None if value is None else _held(value) for value in found]

    def floor_ms(self) -> int:
        return self._number(_FLOOR)

    def entries(self) -> int:
        if self._files is None:
            return 0
        with _failing(self._path):
            return int(self._files.families[_UPDATES].property_int_value("rocksdb.estimate-num-keys") or 0)

    def _number(self, key: bytes) -> int:
        if self._files is None:
            return 0
        with _failing(self._path):
            value: bytes | None = self._files.families[_ABOUT].get(key)
        return 0 if value is None else int.from_bytes(value, "big")


class DeltaReader(Protocol):
    def view(self, *, latest: bool = False) -> AbstractContextManager[View]:
        """A view of the delta, up to a tenth of a second old, unless `latest`. Raises CatalogUnavailableError."""

    def close(self) -> None: ...


def _options(cache: Cache) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_size(4_096)
    blocks.set_format_version(5)
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(10, block_based=False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(rocksdb_files.MEMTABLE_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    return options


def _check(path: Path, db: Rdict, create: bool) -> None:
    found = db.get(_FORMAT_KEY)
    if found is None and create:
        db.put(_FORMAT_KEY, _FORMAT, DURABLE)
    elif found is not None and found != _FORMAT:
        raise RefusedError(f"{path}: a delta of format {found!r}, expected {_FORMAT!r}: another version made it")


_LAYOUT: Final = Layout([_UPDATES, _ABOUT], _options, _check)


class FollowedDelta:
    """A `DeltaReader` of a delta that another process may write. Thread-safe.

    clock: monotonic seconds.
    """

    def __init__(self, directory: Directory, clock: Callable[[], float]) -> None:
        self._path = directory.delta
        self._clock = clock
        self._lock = threading.Lock()
        self._follower: Secondary | None = None
        self._files: Files | None = None
        self._caught_up_s = float("-inf")

    @contextmanager
    def view(self, *, latest: bool = False) -> Iterator[View]:
        # Held under the lock, because catching up may close the files and open others, and a view must be of one
        # moment.
        with self._lock:
            now_s = self._clock()
            if latest or not 0 <= now_s - self._caught_up_s < CATCH_UP_EVERY_S:
                self._caught_up_s = float("-inf")  # on an error the next view tries again: a lost delta is not empty
                self._catch_up()
                self._caught_up_s = now_s
            yield View(self._path, self._files)

    def close(self) -> None:
        with self._lock:
            self._files = None
            if self._follower is not None:
                self._follower.close()
                self._follower = None

    def _catch_up(self) -> None:
        self._files = None
        # The delta gets this name when it is whole, and is never removed: once seen, it must be there.
        if self._follower is None and self._path.exists():
            self._follower = Secondary(self._path, _LAYOUT)
        if self._follower is not None:
            with _failing(self._path):
                self._files = self._follower.catch_up()


class OwnDelta:
    """A `DeltaReader` that also writes. Its first write makes it the owner, until it is closed. Before that it only
    follows, so that a process that only loads does not disturb the owner. Thread-safe.

    unique: returns a name that is used nowhere else.
    """

    def __init__(self, directory: Directory, clock: Callable[[], float], unique: Callable[[], str]) -> None:
        self._directory = directory
        self._path = directory.delta
        self._unique = unique
        self._followed = FollowedDelta(directory, clock)
        self._lock = threading.Lock()
        self._files: Files | None = None
        self._removed_ms = 0
        """The time up to which a walk has removed the updates since the files were opened."""

    @contextmanager
    def view(self, *, latest: bool = False) -> Iterator[View]:
        files = self._files
        if files is not None:
            # No lock: readers do not wait for the disk. The updates may change between two calls.
            yield View(self._path, files)
        else:
            with self._followed.view(latest=latest) as view:
                yield view

    def own(self) -> None:
        """Becomes the owner. Raises CatalogUnavailableError if another process owns the delta."""
        with self._lock:
            self._owned()

    def update(self, updates: Sequence[Update]) -> None:
        with self._lock:
            files = self._owned()
            get = files.families[_UPDATES].get
            newest: dict[bytes, bytes] = {}
            for update in updates:
                key, stamp = update.key, rule.stamp(update)
                with _failing(self._path):
                    found = newest.get(key) or get(key)
                if rule.replaces(stamp, None if found is None else _stamp(found)):
                    newest[key] = stamp.to_bytes(8, "big") + (update.record or b"")
            self._write(files, _UPDATES, newest, DURABLE)

    def note_known(self, known_ms: int, source: int, sources: int) -> None:
        with self._lock:
            before = self._noted()
            if sources == 1:
                self._note(before, rule.noted(before, known_ms, [known_ms]))
                return
            view = View(self._path, self._owned())
            noted_ms = [view.known_of(each, sources) for each in range(sources)]
            if known_ms > noted_ms[source]:
                noted_ms[source] = known_ms
                # Unsynced: if a crash loses it, only less is known.
                self._write(self._owned(), _ABOUT, {_known_key(source, sources): known_ms.to_bytes(8, "big")}, UNSYNCED)
            self._note(before, rule.noted(before, known_ms, noted_ms))

    def note_gap(self, until_ms: int) -> None:
        with self._lock:
            before = self._noted()
            self._note(before, before._replace(floor_ms=max(before.floor_ms, until_ms)))

    def raise_floor(self, as_ofs_ms: Callable[[], Sequence[int]]) -> int:
        """Raises the floor before a collection. Returns the time up to which every generation that may still be read
        has all updates. as_ofs_ms: looks up the as_of of these generations.
        """
        with self._lock:
            before = self._noted()
            limit_ms = rule.collectable_ms(as_ofs_ms())
            raised = before._replace(floor_ms=max(before.floor_ms, limit_ms))
            self._note(before, raised)
            # A load announces itself first, and then reads the floor. So either it sees this floor, or this second look
            # finds it, even if it has ended since.
            limit_ms = min(limit_ms, rule.collectable_ms(as_ofs_ms()))
            self._note(raised, raised._replace(floor_ms=max(before.floor_ms, limit_ms)))
            return limit_ms

    def remove(self, limit_ms: int) -> int:
        """Removes the updates up to a time, and returns how many. A walk passes all updates, so it is skipped if an
        earlier one went as far: old updates that came late since then are not read, and the next walk removes them.
        """
        if limit_ms <= self._removed_ms:
            return 0
        with self._lock:
            walked = self._owned()
        removed, after = 0, b""
        while True:
            with self._lock:
                files = self._owned()
                with _failing(self._path):
                    keys = rocksdb_files.take(self._path, files.families[_UPDATES], after, _COLLECTED_AT_ONCE)
                removed += self._remove(files, keys, limit_ms)
            if len(keys) < _COLLECTED_AT_ONCE:
                break
            after = keys[-1] + b"\0"
        if removed:
            with self._lock:
                family = self._owned().families[_UPDATES]
            # Without the lock, or all updates would wait. If the files are closed meanwhile, that waits for the end of
            # this.
            with _failing(self._path):
                rocksdb_files.compact(self._path, family)
        with self._lock:
            if self._files is walked:
                self._removed_ms = limit_ms
        return removed

    def close(self) -> None:
        with self._lock:
            self._drop()
        self._followed.close()

    def _owned(self) -> Files:
        """The files as their owner; opens them if needed. Called under the lock, as are all methods below."""
        if self._files is None:
            with _failing(self._path):
                if not self._path.exists():
                    self._create()
                files = rocksdb_files.open_owner(self._path, _LAYOUT)
            self._followed.close()
            self._files = files
        else:
            with _failing(self._path):
                self._files.refuse_another()
        return self._files

    def _create(self) -> None:
        """Creates the delta under another name, and then renames it: a RocksDB whose process died while creating it
        looks like a damaged one.
        """
        new = self._directory.announce_delta(self._unique())
        rocksdb_files.open_owner(new, _LAYOUT).close()
        self._directory.finish(new, self._path)

    def _noted(self) -> Delta:
        view = View(self._path, self._owned())
        return Delta(view.floor_ms(), view.known_ms(), 0)

    def _note(self, before: Delta, after: Delta) -> None:
        if after != before:
            numbers = {_FLOOR: after.floor_ms.to_bytes(8, "big"), _KNOWN: after.known_ms.to_bytes(8, "big")}
            self._write(self._owned(), _ABOUT, numbers, DURABLE)

    def _remove(self, files: Files, keys: Sequence[bytes], limit_ms: int) -> int:
        get = files.families[_UPDATES].get
        with _failing(self._path):
            held: list[Any] = [get(key) for key in keys]
        old = [key for key, value in zip(keys, held, strict=True) if _held(value).time_ms <= limit_ms]
        # Unsynced: updates that a crash brings back are not read, and the next collection removes them.
        self._write(files, _UPDATES, dict.fromkeys(old), UNSYNCED)
        return len(old)

    def _write(self, files: Files, family: str, values: Mapping[bytes, bytes | None], options: WriteOptions) -> None:
        if not values:
            return
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(files.handles[family])
        for key, value in values.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        try:
            with _failing(self._path):
                rocksdb_files.write(files, batch, options)
        except CatalogUnavailableError:
            del batch
            self._drop()  # RocksDB refuses all writes until it is opened again
            raise

    def _drop(self) -> None:
        files, self._files = self._files, None
        self._removed_ms = 0  # the next files may have updates that a crash has brought back
        if files is not None:
            files.close()


def _known_key(source: int, sources: int) -> bytes:
    return b"%s/%d/%d" % (_KNOWN, sources, source)


def _stamp(value: bytes) -> int:
    return int.from_bytes(value[:8], "big")


def _held(value: bytes) -> Held:
    return rule.held(_stamp(value), value[8:])
