"""Disks that fill up."""

from pathlib import Path


def fill(ballast: Path) -> None:
    """Writes a file until there is no space left."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65_536))
        except OSError:
            pass
