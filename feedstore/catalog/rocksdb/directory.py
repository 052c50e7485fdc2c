"""The names in a catalog's directory.

    gen-<as_of>-<hash>/             a generation
    gen-<as_of>-<unique>.new/       one that is being loaded, or whose load died
    gen-<as_of>-<hash>.gone/        one that is being removed
    delta/, delta-<unique>.new/     the delta; one that is being created
    CURRENT                         JSON: which generation fetches read
    BUILDING                        locked while somebody builds, and then JSON: who, and since when

A file or directory gets its final name after everything else, and loses it before anything else. So each one whose name
has no ending is whole.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from feedstore import durable
from feedstore.catalog import rule
from feedstore.catalog.port import (
    BeingBuiltError,
    BuiltBy,
    CatalogRefusedError,
    CatalogUnavailableError,
    InUse,
    NoGenerationError,
)
from feedstore.catalog.settings import kind_of
from feedstore.widecolumn.port import DamagedError, StoreError

LOCK_WAIT_S: float = 30.0
"""How long a swap or a collection waits for another one, which may remove large directories, or be suspended."""

_ID: Final = re.compile(r"\d{1,19}-[0-9a-f]{16}")
_LOADING: Final = re.compile(r"gen-(\d{1,19})-[0-9a-f]+\.new")
_NEW, _GONE = ".new", ".gone"
_MADE = "gen-", "delta-"
"""Directories whose names begin so are made under another name first. The next use replaces a CURRENT.new."""
_BUILDER_BYTES_MAX: Final = 4_096
_NAMED_MAX: Final = 5
"""A message names at most this many generations, the latest ones."""


class Pointer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of CURRENT. generation: the one that fetches read. rollbacks: how many there were. noted: the trail
    as `rule.extended` makes it; some of its generations may be removed.
    """

    generation: str
    rollbacks: int = 0
    noted: tuple[str, ...] = ()


class Names(NamedTuple):
    """The names in a directory at one moment. generations: their ids, oldest first. loading: the as_of of each
    announced load. new: directories that are not whole yet. gone: directories that are being removed.
    """

    generations: list[str]
    loading: list[int]
    new: list[Path]
    gone: list[Path]

    @property
    def as_ofs_ms(self) -> list[int]:
        """The as_of of every generation that may still be read, or is being loaded."""
        return [*map(rule.as_of_ms, self.generations), *self.loading]


class Directory:
    """path: of one catalog in one cluster. Its methods raise CatalogUnavailableError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.delta = path / "delta"
        self.current_file = path / "CURRENT"
        self.building_file = path / "BUILDING"

    def names(self) -> Names:
        """The names; none if the directory is missing. The system lists a few dozen names in one piece, so a load that
        ends meanwhile is seen under its old or its new name.
        """
        with unavailable(self.path):
            found = [each.name for each in self.path.iterdir()] if self.path.exists() else []
        ids = [name.removeprefix("gen-") for name in found if name.startswith("gen-")]
        return Names(
            rule.in_order(each for each in ids if _ID.fullmatch(each)),
            [int(match[1]) for match in map(_LOADING.fullmatch, found) if match],
            [self.path / name for name in found if name.endswith(_NEW) and name.startswith(_MADE)],
            [self.path / name for name in found if name.endswith(_GONE)],
        )

    def generation(self, name: str) -> Path:
        """The path of a generation. Raises CatalogRefusedError if the id is not valid."""
        if not _ID.fullmatch(name):
            raise CatalogRefusedError(f"{name!r} is no id of a generation: expected <as_of_ms>-<16 hexadecimal digits>")
        return self.path / f"gen-{name}"

    def announce(self, as_of_ms: int, unique: str) -> Path:
        """Makes the directory of a load, which collections see. It need not outlive the machine: its load does not."""
        return self._made(f"gen-{as_of_ms}-{unique}{_NEW}")

    def announce_delta(self, unique: str) -> Path:
        """Makes the directory in which a delta is created."""
        return self._made(f"delta-{unique}{_NEW}")

    def _made(self, name: str) -> Path:
        path = self.path / name
        with unavailable(path):
            durable.make_directory(self.path)
            path.mkdir()
            durable.give(path)
        return path

    def finish(self, new: Path, path: Path) -> None:
        """Gives a whole directory its final name. If there is one of that name already, that one stays."""
        with unavailable(path):
            for each in new.iterdir():
                durable.give(each)
            try:
                new.rename(path)
            except OSError:  # a directory that is not empty is not replaced
                if not path.exists():
                    raise
            durable.sync(self.path)
        discard(new)

    def retire(self, path: Path) -> Path:
        """Renames a directory that is to be removed, in one step. Processes that have it open can still read it."""
        gone = path.with_name(path.name + _GONE)
        discard(gone)  # what is left of an earlier one of this name, if its process was killed
        with unavailable(path):
            path.rename(gone)
            durable.sync(self.path)
        return gone

    # CURRENT
    # ----------------------------------------------------------------------------------------------------------------

    def current_version(self) -> tuple[int, int, int]:
        """A version of CURRENT, which changes whenever CURRENT does. Raises NoGenerationError."""
        with self._reading_current():
            status = self.current_file.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def pointer(self) -> Pointer:
        """The content of CURRENT. Raises NoGenerationError, or CatalogUnavailableError if it cannot be read."""
        with self._reading_current():
            text = self.current_file.read_bytes()
        try:
            pointer = msgspec.json.decode(text, type=Pointer)
            for each in (pointer.generation, *pointer.noted):
                self.generation(each)
        except (msgspec.MsgspecError, UnicodeDecodeError, CatalogRefusedError) as error:
            raise CatalogUnavailableError(f"{self.current_file} is damaged: {error}; {self._how_to_mend()}") from error
        return pointer

    def in_use(self) -> InUse:
        try:
            pointer = self.pointer()
        except NoGenerationError:
            return InUse(None, 0)
        return InUse(pointer.generation, pointer.rollbacks)

    def _how_to_mend(self) -> str:
        """What to do if CURRENT is damaged. No list shows the generations then."""
        there = self.names().generations[-_NAMED_MAX:]
        if not there:
            return f"remove it, because no generation is left; then: {kind_of(self.path.name).fill}"
        return (
            f"use a generation again: feedctl catalog use {self.path.name} {there[-1]} --cluster NAME"
            f" (there are {', '.join(there)})"
        )

    def use(self, name: str) -> None:
        """Makes a generation current. Call it under `locked`."""
        try:
            before = self.pointer()
        except NoGenerationError:
            pointer = Pointer(name, noted=(name,))
        except CatalogUnavailableError:
            # CURRENT is damaged, and is replaced. This may be a rollback, so the number must differ from the lost one.
            _, mtime_ns, _ = self.current_version()
            pointer = Pointer(name, rollbacks=mtime_ns, noted=(name,))
        else:
            # Removed generations do no harm in the trail, so the directory is read only if no trail was noted.
            trail = before.noted or rule.trail((), self.names().generations, before.generation)
            pointer = Pointer(
                name, before.rollbacks + rule.rolls_back(before.generation, name), tuple(rule.extended(trail, name))
            )
        with unavailable(self.current_file):
            durable.replace(self.current_file, msgspec.json.encode(pointer).decode() + "\n")

    @contextmanager
    def _reading_current(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NoGenerationError(
                f"{self.current_file} is missing, so no generation is in use: {kind_of(self.path.name).fill}"
            ) from None
        except OSError as error:
            raise CatalogUnavailableError(f"{self.current_file}: {error}") from error

    @contextmanager
    def building(self, builder: BuiltBy) -> Iterator[None]:
        """Locks BUILDING for one builder. Raises BeingBuiltError. The system frees the lock if this process dies."""
        with unavailable(self.building_file):
            durable.make_directory(self.path)
            file = durable.opened(self.building_file)
        try:
            with unavailable(self.building_file):
                if not durable.locked(file, 0.0):
                    raise BeingBuiltError(_builder_in(os.pread(file, _BUILDER_BYTES_MAX, 0)))
                os.ftruncate(file, 0)
                os.pwrite(file, msgspec.json.encode(builder), 0)
            yield
        finally:
            os.close(file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A lock for a look at the directory and the step that follows from it: meanwhile no other process makes a
        generation current or removes one. Loads and fetches never wait for it. Raises CatalogUnavailableError, also if
        another process has it for LOCK_WAIT_S.
        """
        with unavailable(self.path):
            durable.make_directory(self.path)
        with held(self.path, LOCK_WAIT_S):
            yield


@contextmanager
def held(path: Path, within_s: float) -> Iterator[None]:
    """A lock of a directory until the end of the block, or of this process. Raises CatalogUnavailableError, also if
    another block holds it for `within_s`.
    """
    with unavailable(path):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with unavailable(path):
            if not durable.locked(lock, within_s):
                raise TimeoutError(f"another process has been changing it for {within_s:g} s")
        yield
    finally:
        os.close(lock)


def _builder_in(text: bytes) -> BuiltBy:
    try:
        return msgspec.json.decode(text, type=BuiltBy)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return BuiltBy("another process", 0)  # it has not written who it is yet


@contextmanager
def unavailable(path: Path) -> Iterator[None]:
    """Turns errors of the system into the port's error."""
    try:
        yield
    except OSError as error:
        raise CatalogUnavailableError(f"{path}: {error}") from error


@contextmanager
def failing(path: Path, if_damaged: str = "") -> Iterator[None]:
    """Turns all errors into the port's: rocksdict raises bare `Exception` for everything. if_damaged: ends the message
    if the files are damaged.
    """
    try:
        yield
    except CatalogUnavailableError:
        raise
    except DamagedError as error:
        raise CatalogUnavailableError(f"{error}{if_damaged}") from error
    except StoreError as error:
        raise CatalogUnavailableError(str(error)) from error
    except Exception as error:
        raise CatalogUnavailableError(f"{path}: {error}") from error


def discard(path: Path) -> None:
    """Removes a directory as far as possible. The next collection removes the rest."""
    shutil.rmtree(path, ignore_errors=True)
