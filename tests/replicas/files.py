"""Faults of clusters in files."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from feedstore.app import config as configuration
from feedstore.following import FEEDS
from feedstore.widecolumn import DeleteColumns, WideColumnStore
from tests.cli.command import Cli
from tests.replicas.rounds import COPIED_ALIVE, PUT_BACK, REFUSED, STATUS_S, RoundError, Rounds


def rounds(home: Path, rng: random.Random, say: Callable[[str], None], status_s: float = STATUS_S) -> Rounds:
    """Those of a new home."""
    cli = Cli(home)
    cli("init")
    cli.set("tick", '"50ms"')
    return Rounds(cli, InFiles(cli, rng), rng, say, status_s)


class InFiles:
    """rng: chooses the file, and what becomes of it."""

    kinds: Sequence[str] = ("put back", COPIED_ALIVE, "deleted", "cut", "flipped", "emptied", "another's", "one url")

    def __init__(self, cli: Cli, rng: random.Random) -> None:
        self._cli = cli
        self._rng = rng
        self._copy = cli.home.with_name("copy")

    def copy(self, cluster: str) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        for _ in range(20):
            try:
                shutil.copytree(self._data(cluster), self._copy)
            except shutil.Error:  # a file went while its directory was copied
                shutil.rmtree(self._copy)
            else:
                return
        raise RoundError("no copy could be taken")

    def harm(self, fault: str, cluster: str) -> str:
        there = self._data(cluster)
        if fault in {*PUT_BACK, COPIED_ALIVE}:
            shutil.rmtree(there)
            shutil.copytree(self._copy, there)
        elif fault == "another's":
            shutil.rmtree(there)
            shutil.copytree(self._data("b" if cluster == "a" else "a"), there)
        elif fault == "emptied":
            self._empty(cluster)
        elif fault == "one url":
            self._share_url()
            return REFUSED
        else:
            files = [file for file in sorted(there.iterdir()) if file.stat().st_size and file.name != "LOCK"]
            file = self._rng.choice(files)
            spoil(file, fault, self._rng)
            return f"{fault} {file.name}"
        return fault

    def move(self, cluster: str) -> None:
        raise RoundError(f"cluster {cluster} has files, and can be made again where it is")

    def _data(self, cluster: str) -> Path:
        return self._cli.home / "data" / cluster

    def _empty(self, cluster: str) -> None:
        with self._cli.ports(access="write") as ports:
            empty(ports.replicas[cluster].tables[FEEDS])

    def _share_url(self) -> None:
        file = self._cli.home / configuration.FILE_NAME
        text = file.read_text()
        file.write_text(text.replace("rocksdb:data/b", "rocksdb:data/../data/a"))
        refused = self._cli("status", code=2).stderr
        file.write_text(text)
        if "cluster a and cluster b are in one place" not in refused:
            raise RoundError(f"one url is not refused: {refused}")


def spoil(file: Path, fault: str, rng: random.Random) -> None:
    """Deletes a file, cuts it, or flips a bit of it."""
    content = bytearray(file.read_bytes())
    if fault == "deleted":
        file.unlink()
    elif fault == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def empty(feeds: WideColumnStore, start: bytes = b"", stop: bytes | None = None) -> None:
    """Takes the rows of a range away."""
    for row, columns in list(feeds.scan(start, stop)):
        newest = max(cell.timestamp for cell in feeds.cells(row))
        feeds.apply([DeleteColumns([(row, newest)], columns)])
