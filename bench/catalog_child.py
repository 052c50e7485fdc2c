"""A process that holds a corpus, and says what that costs: `python -m bench.catalog_child HOW FILE`.

HOW: `empty` holds nothing; `dict` loads a file of fixed-width records into a dict of objects with slots; `catalog`
opens a catalog and fetches from it.
"""

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from bench.catalog_records import LINE
from feedstore.catalog.pins import key_of
from feedstore.catalog.rocksdb.reader import RocksCatalogReader

_FETCHED = 100
_COLLECTIONS = 15


class Pin:
    """What a web process would keep."""

    __slots__ = ("board", "created_ms", "is_deleted", "owner", "pin")

    def __init__(self, pin: int, owner: int, board: int, created_ms: int, *, is_deleted: bool) -> None:
        self.pin = pin
        self.owner = owner
        self.board = board
        self.created_ms = created_ms
        self.is_deleted = is_deleted


def _dict(path: Path) -> dict[int, Pin]:
    pins = {}
    with path.open("rb") as file:
        while chunk := file.read(LINE.size * 10_000):
            for pin, _version, deleted, owner, board, created_ms in LINE.iter_unpack(chunk):
                pins[pin] = Pin(pin, owner, board, created_ms, is_deleted=bool(deleted))
    return pins


def _catalog(path: Path) -> RocksCatalogReader:
    reader = RocksCatalogReader(path, time.monotonic)
    reader.fetch([key_of(number) for number in range(1, _FETCHED + 1)])
    return reader


def _collection_ms() -> float:
    """Processor time: what else runs on the machine would count for more than the collection."""
    began = time.thread_time()
    gc.collect()
    return (time.thread_time() - began) * 1_000


def main(how: str, path: Path) -> None:
    process = psutil.Process()
    gc.collect()
    before_bytes, before_blocks = process.memory_info().rss, sys.getallocatedblocks()
    began = time.perf_counter()
    holders: dict[str, Any] = {"empty": lambda _: None, "dict": _dict, "catalog": _catalog}
    held = holders[how](path)
    seconds = time.perf_counter() - began
    said = {
        "seconds": seconds,
        "bytes": process.memory_info().rss - before_bytes,
        "blocks": sys.getallocatedblocks() - before_blocks,
        "collection_ms": min(_collection_ms() for _ in range(_COLLECTIONS)),
    }
    print(json.dumps(said))
    del held


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
