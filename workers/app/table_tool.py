"""Flushes, compacts and moves regions by a Java tool of ours (`coprocessor/`): no gateway of HBase can do that."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_FLAGS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    # HBase's client looks into the JDK's own classes, which Java 17 permits only with these.
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    *(
        word
        for package in ("java.nio", "java.lang", "sun.nio.ch")
        for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
    ),
    "--add-exports",
    "java.base/jdk.internal.misc=ALL-UNNAMED",
)
_CLASS = "feedstore.admin.TableTool"
_MARK = "error: "
_AWAY = 3
"""The tool's exit status if its cluster does not answer, or has not done in time what was asked."""
_MARGIN_S = 60.0
"""How much longer than its time-out the tool may take, to start and to end."""
_ASK_S = 0.1


class TableToolError(Exception):
    """The tool could not be run, or could not do its work; the message says why."""


class TableToolAwayError(TableToolError):
    """The cluster does not answer, or not in time."""


@dataclass(frozen=True)
class TableTool:
    """The tool for one cluster. class_path: Java's, with HBase's jars and ours. zookeeper: HOST:PORT."""

    class_path: str
    zookeeper: str

    def run(
        self, words: Sequence[str], timeout_s: int, line: Callable[[dict[str, Any]], None], waiting: Callable[[], None]
    ) -> None:
        """Runs one command. line: gets each line of its output at once. waiting: is called now and then.

        Raises TableToolAwayError; TableToolError, also if the tool does not end in time: it is killed, and HBase
        finishes its work.
        """
        argv = [
            _java(), *_FLAGS, "-cp", self.class_path, _CLASS,
            "--zookeeper", self.zookeeper, *words, "--timeout-s", str(timeout_s),
        ]  # fmt: skip
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                process = subprocess.Popen(  # noqa: S603 - the configuration's words
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True
                )
            except OSError as error:
                raise TableToolError(
                    f"{argv[0]}: {error.strerror}; a JDK 17 is needed, on the path or in JAVA_HOME"
                ) from error
            with process:
                assert process.stdout is not None
                lines = _Lines(process.stdout)
                deadline = time.monotonic() + timeout_s + _MARGIN_S
                try:
                    while lines.pass_on(line) or process.poll() is None:
                        if time.monotonic() >= deadline:
                            raise TableToolError(f"the tool did not end in {timeout_s} s; HBase finishes its part")
                        waiting()
                finally:
                    process.kill()
            if process.returncode != 0:
                said.seek(0)
                failed = TableToolAwayError if process.returncode == _AWAY else TableToolError
                raise failed(_error(said) or f"the tool ended with status {process.returncode}")


class _Lines:
    """The lines of a stream, read by a thread of their own."""

    def __init__(self, stream: IO[str]) -> None:
        self._read: list[str] = []
        self._thread = threading.Thread(target=lambda: self._read.extend(stream), daemon=True)
        self._thread.start()

    def pass_on(self, line: Callable[[dict[str, Any]], None]) -> bool:
        """Waits a moment, and hands over the lines that were read since the last call. False: no more will come."""
        self._thread.join(_ASK_S)
        more = self._thread.is_alive()
        while self._read:
            line(_answer(self._read.pop(0)))
        return more


def _answer(said: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(said)
        if isinstance(found, dict):
            return found
    raise TableToolError(f"the tool said {said.strip()!r}, which is no answer: is the class path that of this version?")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _error(said: IO[str]) -> str:
    """The line that says what was wrong: the JVM may have written lines before it, and the usage may follow."""
    lines = [line.strip() for line in said if line.strip()]
    return next((line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)), lines[-1] if lines else "")
