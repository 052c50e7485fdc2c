"""Reading a RocksDB that another process owns."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from feedstore.widecolumn.port import DamagedError, UnavailableError
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from feedstore.widecolumn.rocksdb.files import Files, Layout
from feedstore.widecolumn.rocksdb.scratch import Scratch

_ATTEMPTS_MAX = 10
_MANIFEST, _LOG, _TABLE = "MANIFEST-", ".log", ".sst"


class Secondary:
    """The files of a RocksDB, up to date with their owner. Not thread-safe.

    RocksDB's secondary instance follows the owner's log, and keeps in memory what it has read there. Once the owner has
    flushed that part of the log, the secondary passes over the rest of it: a deletion never reaches its memory, and
    what a sweep dropped would be shown again. So catching up (1-2 ms) is trusted only while the manifest does not
    change, which every flush and compaction extends; else the secondary is thrown away and opened again (10-30 ms, and
    one replay of the owner's log, which holds the interpreter). If neither the manifest nor the log has grown, there is
    nothing to catch up with: the owner writes each batch into its log before the write returns.

    A secondary does not notice if a file is gone or cut: it shows what was there before that file. So the files that
    the manifest names are looked for each time.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._live: dict[str, int] = {}
        """The files of the families, with their sizes, as the manifest that is open names them."""
        self._layout = layout
        self._files: Files | None = None
        self._seen: set[tuple[str, int]] = set()
        """The manifests, with their sizes, that the files were opened on."""
        self._read: set[tuple[str, int]] = set()
        """The owner's logs, with their sizes, as they were before the last catching up."""
        self._scratch: Scratch | None = None

    def catch_up(self) -> Files:
        """The files, with all that the owner has written by now.

        Raises:
            DamagedError: a file is missing, or it is too short.
            UnavailableError: there is no cluster, or its owner rewrites the files faster than they can be opened.
        """
        for attempts_left in reversed(range(_ATTEMPTS_MAX)):
            there = self._look()
            manifests, logs = _of(there, _MANIFEST), _of(there, _LOG)
            try:
                if self._files is None or self._seen != manifests:
                    self._close_files()
                    own_logs = self._own_logs()
                    self._live = rocksdb_files.live_files(self._path, self._layout, own_logs)
                    self._files = rocksdb_files.open_secondary(self._path, self._layout, own_logs)
                else:
                    self._refuse_missing(there)
                    if self._read == logs and manifests:
                        return self._files
                    rocksdb_files.catch_up(self._files)
            except UnavailableError:  # the owner may have deleted a file under our hands
                self._close_files()
                if attempts_left == 0 or manifests == _of(self._look(), _MANIFEST):
                    raise
                continue
            self._seen, self._read = manifests, logs
            if manifests == _of(self._look(), _MANIFEST):
                return self._files
        raise UnavailableError(f"{self._path}: the owner rewrites its files faster than they can be opened")

    def close(self) -> None:
        self._close_files()
        if self._scratch is not None:
            self._scratch.remove()

    def _own_logs(self) -> Path:
        try:
            if self._scratch is None:
                self._scratch = Scratch()
            return self._scratch.there()
        except OSError as error:
            raise UnavailableError(f"{self._path}: to read it takes a temporary directory: {error}") from error

    def _refuse_missing(self, there: Mapping[str, int]) -> None:
        """Raises DamagedError if a file of the version that is open is gone or has another size."""
        for name, size in self._live.items():
            found = there.get(name)
            if found != size:
                said = "is missing" if found is None else f"has {found} bytes, expected {size}"
                raise DamagedError(f"{self._path}: damaged: {name} {said}")

    def _close_files(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def _look(self) -> dict[str, int]:
        """The size of each file that counts, by name, in one look at the directory."""
        found: dict[str, int] = {}
        # A file that is gone before its size is read is left out, like one that was never there: the caller notices.
        with suppress(OSError), os.scandir(self._path) as entries:
            for entry in entries:
                if entry.name.startswith(_MANIFEST) or entry.name.endswith((_LOG, _TABLE)):
                    with suppress(OSError):
                        found[entry.name] = entry.stat().st_size
        return found


def _of(there: Mapping[str, int], kind: str) -> set[tuple[str, int]]:
    return {(name, size) for name, size in there.items() if name.startswith(kind) or name.endswith(kind)}
