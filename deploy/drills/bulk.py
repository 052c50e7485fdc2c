"""A bulk load of one cluster during the load of a drill: rows of users who follow nothing, and their removal."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

from feedstore.following import FEEDS
from feedstore.following.mutations import put, remove
from feedstore.widecolumn import Table, UnavailableError, WideColumnStore
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.port import Mutation

WRITERS = 3
CELLS_EACH = 300_000

_ROWS, _PINS = 200, 10
_AGAIN_S = 0.2
_END_S = 10.0
_REMOVE_S = 120.0


@dataclass
class BulkLoad:
    """WRITERS processes, so that they do not slow down the measuring process.

    url: of the cluster. first: ids of users and pins from there on are used by nothing else. ts: the timestamp of every
    cell.
    """

    url: str
    tables: Sequence[Table]
    first: int
    ts: int
    _writers: list[tuple[BaseProcess, Any]] = field(default_factory=list)

    def start(self) -> None:
        # Started, not forked: this process has threads, and connections.
        context = multiprocessing.get_context("spawn")
        for number in range(WRITERS):
            # Without a lock: a process that is ended while it holds one would block the reader of its count.
            begun = context.Value("q", 0, lock=False)
            first = self.first + number * CELLS_EACH
            words = (self.url, list(self.tables), first, self.ts, begun)
            process = context.Process(target=write, args=words, daemon=True)
            process.start()
            self._writers.append((process, begun))

    def is_running(self) -> bool:
        return any(process.is_alive() for process, _ in self._writers)

    def failure(self) -> str:
        """Why one of its processes has ended before it was done; empty if none has."""
        failed = [process.exitcode for process, _ in self._writers if process.exitcode not in {None, 0}]
        return f"a process of the bulk load ended with status {failed[0]}" if failed else ""

    def stop(self) -> int:
        """Ends it, and returns how many cells were written, without those of the batch that a process was ended in. May
        be repeated.
        """
        for process, _ in self._writers:
            process.terminate()
        for process, _ in self._writers:
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()
        done = (max(0, int(begun.value) - (process.exitcode != 0)) for process, begun in self._writers)
        return _ROWS * _PINS * sum(done)

    def remove(self) -> None:
        """Removes the cells that were written; may be called if none were. Raises UnavailableError: some are left."""
        if not self._writers:
            return
        with closing(HBaseCluster.open(self.url, self.tables, check=False)) as cluster:
            store = cluster.table(FEEDS)
            deadline = time.monotonic() + _REMOVE_S
            for number, (_, begun) in enumerate(self._writers):
                for batch in range(begun.value):
                    cells = _batch(self.first + number * CELLS_EACH, self.ts, batch)
                    _apply(store, remove(*cells), lambda: time.monotonic() <= deadline)


def write(url: str, tables: Sequence[Table], first: int, ts: int, begun: Any) -> None:
    """Writes CELLS_EACH cells; a batch that fails is tried until it is done. begun: counts batches.

    It ends with the process that started it: if that is killed, it cannot end this one.
    """
    drill = multiprocessing.parent_process()

    def is_wanted() -> bool:
        return drill is None or drill.is_alive()

    with closing(HBaseCluster.open(url, tables, check=False)) as cluster:
        store = cluster.table(FEEDS)
        for batch in range(CELLS_EACH // (_ROWS * _PINS)):
            if not is_wanted():
                return
            begun.value = batch + 1
            _apply(store, put(*_batch(first, ts, batch)), is_wanted)


def _apply(store: WideColumnStore, mutation: Mutation, may_try_again: Callable[[], bool]) -> None:
    """Tries a mutation until it is done. Raises UnavailableError: it is not, and may not be tried again."""
    while True:
        try:
            return store.apply([mutation])
        except UnavailableError:
            if not may_try_again():
                raise
            time.sleep(_AGAIN_S)


def _batch(first: int, ts: int, number: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The rows and pins of one batch, as `put` and `remove` take them."""
    start = first + number * _ROWS
    return [(start + row, ts) for row in range(_ROWS)], [(first + pin, ts) for pin in range(_PINS)]
