"""Generations: each a RocksDB of its own, made of SST files in one go and then only read."""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)

from feedstore import durable
from feedstore.catalog.checks import Checked, is_of
from feedstore.catalog.port import CatalogUnavailableError, Generation
from feedstore.catalog.rocksdb.directory import failing, unavailable

MIB: Final = 1 << 20
PART_BYTES: Final = 64 * MIB
"""About how large a file becomes."""

BLOCK_BYTES: Final = 2_048
"""About how large a block is before it is packed."""

_ABOUT: Final = "generation.json"
_LOOK_EVERY_RECORDS: Final = 4_096


class _About(msgspec.Struct, frozen=True):
    as_of_ms: int
    records: int
    bytes: int
    sha256: str
    took_ms: int = 0


def write(
    path: Path,
    as_of_ms: int,
    records: Iterable[tuple[bytes, bytes]],
    clock: Callable[[], float],
    part_bytes: int = PART_BYTES,
) -> Checked:
    """Writes a generation into an empty directory, at constant memory, reads it back, and syncs all of it. Returns the
    count and hash of what it wrote.

    clock: monotonic seconds. Raises CatalogRefusedError, CatalogUnavailableError (for example if it does not read what
    it wrote), and what `records` raises.
    """
    began_s = clock()
    checked = Checked(records)
    parts = _write_parts(path, checked, part_bytes)
    with failing(path), closing(Rdict(str(path), _options())) as db:
        if parts:
            moving = IngestExternalFileOptions()
            moving.set_move_files(v=True)
            db.ingest_external_file([*map(str, parts)], moving)
    # Before it gets its name: a wrong record must never be used, and no later check reads all records.
    if not _reads_as(path, checked):
        raise CatalogUnavailableError(
            f"{path}: it does not read back as it was written: load again, and look at the disk"
        )
    with unavailable(path):
        size = sum(each.stat().st_size for each in path.glob("*.sst"))
        about = _About(as_of_ms, checked.records, size, checked.sha256, int((clock() - began_s) * 1_000))
        durable.replace(path / _ABOUT, msgspec.json.encode(about).decode() + "\n")
        for each in path.iterdir():
            durable.sync(each)
        durable.sync(path)
    return checked


def holds(path: Path, written: Checked) -> bool:
    """Whether a generation has exactly these records. False if one of its files is damaged or gone."""
    try:
        about = describe(path, [])
        return about.sha256 == written.sha256 and _reads_as(path, written)
    except CatalogUnavailableError:
        return False


def _reads_as(path: Path, written: Checked) -> bool:
    """Whether a generation reads as it was written. Opens and reads all files again. Raises CatalogUnavailableError."""
    options = _options()
    with failing(path), closing(Rdict(str(path), options, {"default": options}, AccessType.read_only(False))) as db:
        return is_of(cast("Any", db.items()), written)


def describe(path: Path, trail: Sequence[str]) -> Generation:
    """Describes a generation. trail: of the catalog. Raises CatalogUnavailableError."""
    name, file = path.name.removeprefix("gen-"), path / _ABOUT
    try:
        about = msgspec.json.decode(file.read_bytes(), type=_About)
    except OSError as error:
        raise CatalogUnavailableError(f"{file}: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CatalogUnavailableError(f"{file} is damaged: {error}") from error
    return Generation(
        name,
        about.as_of_ms,
        about.records,
        about.bytes,
        about.sha256,
        current=name in trail[-1:],
        took_ms=about.took_ms,
        used=name in trail,
    )


class Opened:
    """An open generation, for any number of threads. Its files are closed with the last reference to it. Until then
    they can be read, even if they were removed.
    """

    def __init__(self, path: Path, generation: Generation, db: Rdict) -> None:
        self.generation = generation
        self._path = path
        self._db = db

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The records of some keys. Raises CatalogUnavailableError if a file is damaged."""
        get: Callable[[bytes], Any] = self._db.get
        try:
            # One call with a list of keys would take as long as one call for each.
            return [get(key) for key in keys]
        except Exception as error:
            raise CatalogUnavailableError(f"{self._path}: {error}") from error


_opening = threading.Lock()
_open: weakref.WeakValueDictionary[tuple[Path, int], Opened] = weakref.WeakValueDictionary()
"""The generations that this process has open, by the path and the inode of their directories. A directory never
changes; a damaged one is replaced by another one of the same name.
"""


def opened(path: Path) -> Opened:
    """Opens a generation for reading, once in this process.

    Takes as long for millions of records as for one. Raises CatalogUnavailableError: damaged, or missing.
    """
    with unavailable(path):
        key = path.resolve(strict=True), path.stat().st_ino
    with _opening:
        found = _open.get(key)
        if found is None:
            found = _open[key] = _opened(path)
        return found


def _opened(path: Path) -> Opened:
    generation = describe(path, [])
    if not (path / "CURRENT").exists():  # the error of RocksDB would not name it
        raise CatalogUnavailableError(f"{path}: damaged: CURRENT is missing")
    with failing(path):
        # Unless it is named, the default column family gets other settings.
        options = _options()
        db = Rdict(str(path), options, {"default": options}, AccessType.read_only(False))
        files = db.live_files()
    records = sum(int(each["num_entries"]) for each in files)
    if records != generation.records:
        raise CatalogUnavailableError(
            f"{path}: damaged: its files have {records} records, {_ABOUT} says {generation.records}"
        )
    return Opened(path, generation, db)


def _write_parts(path: Path, records: Iterable[tuple[bytes, bytes]], part_bytes: int) -> list[Path]:
    parts: list[Path] = []
    writer: SstFileWriter | None = None
    for number, (key, record) in enumerate(records):
        try:
            if writer is None:
                parts.append(path / f"part-{len(parts):05}.sst")
                writer = SstFileWriter(_options())
                writer.open(str(parts[-1]))
            writer[key] = record
            if number % _LOOK_EVERY_RECORDS == 0 and writer.file_size() >= part_bytes:
                writer.finish()
                writer = None
        except Exception as error:
            raise CatalogUnavailableError(f"{parts[-1]}: {error}") from error
    if writer is not None:
        with failing(parts[-1]):
            writer.finish()
    return parts


def _options() -> Options:
    """Options for small packed blocks: a look-up unpacks one block for one key. Files are mapped, and unpacked blocks
    are not kept (decision 66). There is no bloom filter, because nearly all keys that are asked for exist.
    """
    blocks = BlockBasedOptions()
    blocks.set_block_size(BLOCK_BYTES)
    blocks.set_format_version(5)
    blocks.set_index_block_restart_interval(8)
    blocks.disable_cache()
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_allow_mmap_reads(is_enabled=True)
    options.set_max_open_files(-1)  # all files are opened at the start, because a collection may remove the directory
    options.set_keep_log_file_num(1)
    return options
