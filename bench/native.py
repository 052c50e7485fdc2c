"""HBase's own Java client (`bench/java`) in a process of its own: loads, pages, flushes and compactions."""

import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.children import Answering, ChildError, answering
from deploy.local import jars, java
from feedstore.widecolumn import DeleteCells, Mutation, Put, PutCells
from tests.widecolumn.written import cells_in, count_in

SOURCE = Path(__file__).parent / "java" / "NativeFeeds.java"
ANSWER_S = 3_600.0
TOP = bytes(16)
"""A page from the top, in place of a column."""

_HEAD = struct.Struct(">c9sqi")


class Native:
    """One process; one call at a time. Tables are named as HBase names them, with their namespace."""

    def __init__(self, child: Answering) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.process.pid

    def load(self, table: str, cells: Path) -> float:
        """Writes what `write_cells` has put into a file; returns cells a second."""
        done = self._ask("load", table, str(cells))
        return float(done["cells"] / done["seconds"])

    def pages(self, table: str, pages: Path, times: int, limit: int, seed: int) -> list[float]:
        """The microseconds of each of `times` gets of pages that `write_pages` has put into a file: chosen at random,
        or each of them once, where there are just as many.
        """
        return self._timed("pages", table, pages, times, limit, seed)

    def through(self, table: str, pages: Path, times: int, limit: int, seed: int, *, gateway: int) -> list[float]:
        """The same with Thrift's own Java client, through the Thrift2 gateway on that port."""
        return self._timed("through", table, pages, times, limit, seed, gateway)

    def flush(self, table: str, zookeeper: int | None = None) -> None:
        """What is in memory goes to files. zookeeper: the port of another cluster's."""
        self._ask("flush", table, *([] if zookeeper is None else [str(zookeeper)]))

    def compact(self, table: str) -> None:
        """Everything in memory and in files goes into one file a region; returns when that is done."""
        self.flush(table)
        self.rewrite(table)

    def rewrite(self, table: str) -> float:
        """Everything in files goes into one file a region; returns the seconds that took."""
        return float(self._ask("rewrite", table)["seconds"])

    def trimmed_load(self, table: str, cells: Path, keep: int, at_once: int) -> tuple[float, int]:
        """As `load`, and every so many rows deletes what they hold beyond `keep` columns; returns cells a second and
        the deletions.
        """
        done = self._ask("trimmed-load", table, str(cells), str(keep), str(at_once))
        return float(done["cells"] / done["seconds"]), int(done["deleted"])

    def trim_job(self, table: str, keep: int) -> tuple[float, int]:
        """Scans the table and deletes what rows hold beyond `keep` columns; returns seconds and the deletions."""
        done = self._ask("trim-job", table, str(keep))
        return float(done["seconds"]), int(done["deleted"])

    def forget(self, table: str) -> None:
        """The next read of each block of the table goes to its file."""
        self._ask("forget", table)

    def _timed(self, command: str, table: str, pages: Path, times: int, limit: int, *words: int) -> list[float]:
        done = self._ask(command, table, str(pages), str(times), str(limit), *map(str, words))
        assert done["columns"] == times * limit, done["columns"]
        return [float(each) for each in done["us"]]

    def _ask(self, *words: str) -> dict[str, Any]:
        return self._child.ask(" ".join(words))


@contextmanager
def native(zookeeper: int, folder: Path) -> Iterator[Native]:
    """Compiles the class and starts it on the cluster whose ZooKeeper listens there. Raises ChildError."""
    classes = jars.ensure("hbase", lambda _: None)
    build = ["javac", "-d", str(folder), "-cp", f"{classes}/*", str(SOURCE)]
    try:
        subprocess.run(build, check=True, capture_output=True, text=True, timeout=120)
    except subprocess.CalledProcessError as error:
        raise ChildError(f"javac: {error.stderr}") from error
    # Not the flags of the servers: a real load lets the JIT do all it can.
    command = [
        java.program(), "-Xmx1g", "-XX:+UseParallelGC", "-Djava.net.preferIPv4Stack=true", *java.HBASE_FLAGS,
        f"-Dlog4j2.configurationFile={_log_conf(folder)}", "-cp", f"{folder}:{classes}/*", "NativeFeeds",
        str(zookeeper),
    ]  # fmt: skip
    with answering(command, folder / "native.log", ANSWER_S) as child:
        yield Native(child)


def _log_conf(folder: Path) -> Path:
    """Only warnings, and not on the standard output, which is for answers."""
    path = folder / java.LOG_CONF
    text = java.log_conf(("org.apache",))
    path.write_text(text.replace("appender.console.type = Console", "appender.console.type = Console\n" + _TARGET))
    return path


_TARGET = "appender.console.target = SYSTEM_ERR"


def write_cells(path: Path, batches: Iterable[Sequence[Mutation]]) -> int:
    """Writes mutations as the Java side reads them, one for each row and timestamp of each; returns the number of
    cells.
    """
    cells = 0
    with path.open("wb") as out:
        for mutation in (each for batch in batches for each in batch):
            cells += count_in(mutation)
            kind = b"p" if isinstance(mutation, Put | PutCells) else b"d"
            if isinstance(mutation, PutCells | DeleteCells):
                by_row: defaultdict[tuple[bytes, int], list[bytes]] = defaultdict(list)
                for row, column, ts in cells_in(mutation):
                    by_row[row, ts].append(column)
                out.writelines(_HEAD.pack(kind, *of, len(some)) + b"".join(some) for of, some in by_row.items())
                continue
            columns = b"".join(mutation.columns)
            count = len(mutation.columns)
            for row, timestamp in mutation.rows:
                out.write(_HEAD.pack(kind, row, timestamp, count) + columns)
    return cells


def write_pages(path: Path, pages: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Writes rows, each with the column after which its page begins."""
    path.write_bytes(b"".join(row + (after or TOP) for row, after in pages))
