"""The database of a local stack, as its administrator sees it."""

import subprocess

from deploy.local import Stack

_TIMEOUT_S = 60.0


def administer(stack: Stack, statements: str) -> None:
    """Runs statements over the server's own socket, where no password is asked for and nothing is read-only."""
    socket = stack.home / "data" / "mariadb" / "mariadb.sock"
    subprocess.run(["mariadb", "--no-defaults", f"--socket={socket}", "-e", statements], check=True, timeout=_TIMEOUT_S)
