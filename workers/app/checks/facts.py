"""Gathers facts about a home and its machine. It only reads. It also runs the checks that refuse to start."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from feedstore.app import open_files
from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.catalog.port import NoGenerationError
from feedstore.clocks import wall_ms
from feedstore.errors import PortError
from feedstore.http import signed_cursors, tokens
from feedstore.http.tokens import IssuedToken
from workers.app import wiring
from workers.queue.embedded import stored_partitions

if TYPE_CHECKING:
    from feedstore.app.catalogs import CatalogPlace

_FILES_MAX: Final = 100_000
"""The most files of a home that are looked at."""
_LIBRARIES: Final = {
    "http": ("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    "metrics": ("prometheus_client",),
    "traces": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
}
"""The libraries of extras that are loaded only when a process serves or sends. Opening a store shows what it lacks."""


@dataclass(frozen=True)
class Located:
    """A part of a home that is in a file or a directory. what: its name in `feed.toml`."""

    what: str
    path: Path


@dataclass(frozen=True)
class HomeFile:
    """A file or directory of a home. mode: its permission bits. usable: whether this user may read and write it.
    written_ms: when it was last written.
    """

    path: Path
    mode: int
    owner: int
    usable: bool
    written_ms: int


@dataclass(frozen=True)
class Room:
    """A file system that a home is on. kind: its type by the kernel; empty if that is unknown."""

    path: Path
    free_bytes: int
    free_files: int | None
    read_only: bool
    kind: str


@dataclass(frozen=True)
class HomeFacts:
    """The facts. located: with resolved paths, so that two names of one place are equal. failed: the errors of start-up
    paths, by check. partitions: the numbers of partitions of an embedded queue's topics, if the queue exists.
    clocks_ms: the times of the shards. newest_ms: when the newest file of the home was written. off_ms: how far this
    machine's clock is ahead of the home's time, if that is too far. missing: libraries that are missing, by extra.
    """

    config: Config
    user: int
    now_ms: int
    located: Sequence[Located]
    entries: Sequence[HomeFile]
    rooms: Sequence[Room]
    failed: Mapping[str, Sequence[str]]
    partitions: Sequence[int]
    clocks_ms: Sequence[int]
    newest_ms: int
    off_ms: int | None
    tokens: Sequence[IssuedToken]
    missing: Mapping[str, Sequence[str]]


def gather(config: Config, environ: Mapping[str, str]) -> HomeFacts:
    """Gathers all facts. It writes nothing, and asks no server."""
    failed: dict[str, list[str]] = {}

    @contextmanager
    def noting(check: str) -> Iterator[None]:
        """Notes the error of a start-up path."""
        try:
            yield
        except PortError as error:
            failed.setdefault(check, []).append(str(error))

    located: list[Located] = []
    partitions: list[int] = []
    clocks_ms: list[int] = []
    found_tokens: list[IssuedToken] = []
    with noting("limits"):
        open_files.refuse_few(config)
    with noting("places"):
        located.extend(_located(config))
    paths = [each.path for each in located]
    entries = list(itertools.islice(_entries(config.home, *paths), _FILES_MAX))
    if "places" not in failed and len(set(paths)) == len(paths) and all(entry.usable for entry in entries):
        with noting("follow store"):
            clocks_ms.extend(_shard_clocks(config))
        with noting("queue"):
            partitions.extend(_partitions(config))
        for cluster in config.clusters:
            if cluster.in_files:  # the url of any other was read for its place, and no server is asked
                with noting("clusters"), closing(feedstore_wiring.open_cluster(config, cluster.name, "read")) as found:
                    found.opened()
                with noting("clusters"):
                    from feedstore.app.rocksdb import refuse_mount  # noqa: PLC0415 - only clusters in files load it

                    refuse_mount(config.path(cluster.url))
            for name in config.catalogs:
                with noting("catalogs"):
                    _open_catalog(config, name, cluster.name)
    with noting("http"):
        found_tokens.extend(_http(config, environ))
    return HomeFacts(
        config=config,
        user=os.geteuid(),
        now_ms=wall_ms(),
        located=located,
        entries=entries,
        rooms=list(_rooms([config.home, *paths])),
        failed=failed,
        partitions=partitions,
        clocks_ms=clocks_ms,
        newest_ms=max((entry.written_ms for entry in entries), default=0),
        off_ms=None if (clock := feedstore_wiring.home_clock(config)) is None else clock.own_offset_ms(),
        tokens=found_tokens,
        missing={extra: [name for name in names if not _is_installed(name)] for extra, names in _LIBRARIES.items()},
    )


def _located(config: Config) -> Iterator[Located]:
    """The parts of a home that are in files. Raises ConfigError if a url is invalid."""
    for cluster in config.clusters:
        if cluster.in_files:
            yield Located(f"cluster {cluster.name}", config.path(cluster.url).resolve())
            for name in config.catalogs:
                if (path := _catalog_place(config, name, cluster.name).path) is not None:
                    yield Located(f"catalog {name} of cluster {cluster.name}", path.resolve())
        else:
            place(config, cluster.name)
    for number, path in enumerate(config.shard_files):
        yield Located(f"shard {number} of the follow store", path.resolve())
    if config.queue_file is not None:
        yield Located("the queue", config.queue_file.resolve())


def files_of(config: Config) -> Iterator[HomeFile]:
    """The files and directories of a home and of its stores, which may be elsewhere. Raises ConfigError."""
    return _entries(config.home, *(each.path for each in _located(config)))


def _entries(*roots: Path) -> Iterator[HomeFile]:
    """Links are left out: what they lead to need not be the home's. Stores are: their paths are resolved."""
    seen: set[Path] = set()
    for root in roots:
        for path in (root, *(each for each in _beneath(root) if not each.is_symlink())):
            if path in seen:
                continue
            seen.add(path)
            try:
                status = path.stat()
            except OSError:
                continue  # it may have gone since it was listed; if it is needed, opening it fails
            usable = os.access(path, os.R_OK | os.W_OK)
            written_ms = status.st_mtime_ns // 1_000_000
            yield HomeFile(path, status.st_mode & 0o777, status.st_uid, usable, written_ms)


def _beneath(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))


def _rooms(paths: list[Path]) -> Iterator[Room]:
    seen: set[int] = set()
    for path in paths:
        there = next(each for each in (path, *path.resolve().parents) if each.exists())
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        room = os.statvfs(there)
        free_files = room.f_favail if room.f_files else None  # some file systems count none
        kind = _kind(device)
        yield Room(there, room.f_bavail * room.f_frsize, free_files, bool(room.f_flag & os.ST_RDONLY), kind)


def _kind(device: int) -> str:
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in mounts:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == number:
            return kind.split()[0]
    return ""


def _shard_clocks(config: Config) -> Iterator[int]:
    """Opens the follow store; yields the times of its shards."""
    match config.shards_scheme:
        case "sqlite":
            with closing(feedstore_wiring.open_follows(config, wall_ms)) as follows:
                yield from map(follows.now, range(follows.shards()))
        case "mysql":
            feedstore_wiring.mysql_servers(config)
        case _:
            assert_never(config.shards_scheme)


def _partitions(config: Config) -> Iterable[int]:
    """Opens the queue; returns the numbers of partitions of its topics."""
    match config.queue_scheme:
        case "embedded":
            return stored_partitions(config.path(config.queue)).values()
        case "kafka":
            wiring.kafka_address(config)
            return ()
        case _:
            assert_never(config.queue_scheme)


def _open_catalog(config: Config, name: str, cluster: str) -> None:
    found = _catalog_place(config, name, cluster)
    if found.path is None:
        return  # no server is asked
    with closing(found.reader()) as reader:
        reader.delta()
        with suppress(NoGenerationError):  # it was not built or loaded yet
            reader.check()


def _catalog_place(config: Config, name: str, cluster: str) -> "CatalogPlace":
    from feedstore.app import catalogs  # noqa: PLC0415 - a home without catalogs does not pay for their library

    return catalogs.place(config, name, cluster)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that should contain it is missing
        return False


def _http(config: Config, environ: Mapping[str, str]) -> list[IssuedToken]:
    if config.http.cursor_key.exists() or signed_cursors.VARIABLE in environ:
        signed_cursors.load_key(config.http.cursor_key, environ)
    return [] if config.http.tokens is None else tokens.listed(config.http.tokens)
