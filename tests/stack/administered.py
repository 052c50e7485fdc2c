"""The database of a local stack, as its administrator sees it."""

import subprocess
import time
from typing import Final

from deploy.local import Stack

_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 0.1
_LATER: Final = ("1040", "2002")
"""It is full: it keeps one more connection for administrators, and clients that are about to be refused may have it. It
has just been started.
"""


def administer(stack: Stack, statements: str) -> None:
    """Runs statements over the server's own socket, where no password is asked for and nothing is read-only."""
    socket = stack.home / "data" / "mariadb" / "mariadb.sock"
    words = ["mariadb", "--no-defaults", f"--socket={socket}", "-e", statements]
    until_s = time.monotonic() + _TIMEOUT_S
    while True:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode == 0:
            return
        is_later = any(each in done.stderr for each in _LATER)
        assert is_later, done.stderr
        assert time.monotonic() < until_s, done.stderr
        time.sleep(_AGAIN_S)
