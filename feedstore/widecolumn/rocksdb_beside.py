"""Reading a RocksDB beside the process that owns it."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from feedstore.widecolumn import rocksdb_files
from feedstore.widecolumn.port import Table, UnavailableError
from feedstore.widecolumn.rocksdb_files import Files

_ATTEMPTS_MAX = 10


class Follower:
    """The files of a cluster, up to date with their owner. Not thread-safe.

    RocksDB's secondary instance follows the owner's log, and keeps in memory what it has read there. Once the owner has
    flushed that part of the log, the secondary passes over the rest of it: a deletion never reaches its memory, and
    what a sweep dropped would be shown again. So catching up (1-2 ms) is trusted only while the manifest stands still,
    which every flush and compaction extends; else the secondary is thrown away and opened anew (10-30 ms, and the
    replay of the owner's log). Where neither the manifest nor the log has grown there is nothing to catch up with: the
    owner writes each batch into its log before the write returns.
    """

    def __init__(self, path: Path, tables: Sequence[Table]) -> None:
        self._path = path
        self._tables = tables
        self._files: Files | None = None
        self._seen: set[tuple[str, int]] = set()
        """The manifests, with their sizes, that the files were opened on."""
        self._read: set[tuple[str, int]] = set()
        """The owner's logs, with their sizes, as they were before the last catching up."""
        self._own_logs = Path(tempfile.mkdtemp(prefix="feedstore-beside-"))
        self._remove_own_logs = weakref.finalize(self, shutil.rmtree, self._own_logs, ignore_errors=True)

    def catch_up(self) -> Files:
        """All that the owner has written by now.

        Raises:
            UnavailableError: there is no cluster, or its owner rewrites the files faster than they can be opened.
        """
        for attempts_left in reversed(range(_ATTEMPTS_MAX)):
            manifests, logs = self._sizes("MANIFEST-*"), self._sizes("*.log")
            if self._files is not None and self._seen == manifests and self._read == logs and manifests:
                return self._files
            try:
                if self._files is None or self._seen != manifests:
                    self._close_files()
                    self._files = rocksdb_files.open_beside(self._path, self._tables, self._own_logs)
                else:
                    rocksdb_files.catch_up(self._path, self._files)
            except UnavailableError:  # the owner may have deleted a file under our hands
                self._close_files()
                if attempts_left == 0 or manifests == self._sizes("MANIFEST-*"):
                    raise
                continue
            self._seen, self._read = manifests, logs
            if manifests == self._sizes("MANIFEST-*"):
                return self._files
        raise UnavailableError(f"{self._path}: the owner rewrites its files faster than they can be opened beside it")

    def close(self) -> None:
        self._close_files()
        self._remove_own_logs()

    def _close_files(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def _sizes(self, pattern: str) -> set[tuple[str, int]]:
        try:
            return {(each.name, each.stat().st_size) for each in self._path.glob(pattern)}
        except OSError:
            return set()  # gone between the listing and the look, or never there: opening says what is wrong
