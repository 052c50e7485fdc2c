"""A server's log: all its lives in one file, each with a line of its own at the start."""

import datetime as dt
import mmap
from pathlib import Path

_BYTES_MAX = 64 * 1024 * 1024
_TAIL_BYTES_MAX = 256 * 1024
_START = "=== started by the stack "


def begin(path: Path) -> None:
    """Marks a new life. A log that has become long is put aside, and the one put aside before it is dropped."""
    if path.exists() and path.stat().st_size > _BYTES_MAX:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{_START}{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}\n")


def says(path: Path, text: str) -> bool:
    """Whether the log says so in the life that began last."""
    try:
        # Mapped, because it is asked again and again while a server starts, and may have 64 MiB.
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            return log.find(text.encode(), max(0, log.rfind(_START.encode()))) >= 0
    except (OSError, ValueError):  # not there, or empty
        return False


def tail(path: Path, lines: int) -> str:
    """The last lines of a log; of a long one, of its last quarter of a megabyte."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"({path}: {error.strerror or error})"
    return "\n".join(text.splitlines()[-lines:]) if lines > 0 else ""
