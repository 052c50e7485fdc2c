"""The place of a cluster in a directory."""

import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from feedstore import durable
from feedstore.app.places import Prepare, replica
from feedstore.errors import ConfigError
from feedstore.widecolumn import Access, Cluster, Table, UnavailableError
from feedstore.widecolumn.rocksdb.cluster import RocksCluster


def refuse_mount(path: Path) -> None:
    """Refuses a mount point as the directory of a cluster: it cannot be replaced by another one. Raises ConfigError."""
    if os.path.ismount(path.resolve()):
        raise ConfigError(f"{path} is a mount point, which cannot be replaced by a new cluster: name a directory in it")


class DirectoryPlace:
    """An embedded cluster. path: its directory, or a link to it."""

    def __init__(self, path: Path, name: str) -> None:
        # What a link leads to is replaced, so that the link stays, and the new cluster is on the same disk.
        self.path = path.resolve()
        self.name = name

    def exists(self) -> bool:
        try:
            return any(self.path.iterdir())
        except FileNotFoundError:
            return False
        except OSError as error:  # as with too many open files: if it seemed gone, a new one would be made
            raise UnavailableError(str(error)) from error

    def create(self, tables: Sequence[Table], prepare: Prepare) -> None:
        refuse_mount(self.path)
        if self.exists():
            return
        new = self.path.with_name(self.path.name + ".new")
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.mkdir(mode=0o700)
            with closing(RocksCluster.open(new, tables)) as made:
                prepare(replica(self.name, made))
            new.rename(self.path)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    def remove(self) -> None:
        refuse_mount(self.path)
        try:
            if self.path.exists():
                durable.remove_tree(self.path)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    def open(self, tables: Sequence[Table], access: Access) -> Cluster:
        if not self.exists():
            raise UnavailableError(
                f"{self.path}: there is no cluster in this directory; bring it back, or rebuild it"
                f" (feedctl rebuild --all --cluster {self.name})"
            )
        return RocksCluster.open(self.path, tables, access=access)
