"""Signed cursors, which only this deployment can make, each for one list.

The library's cursors have a checksum, which anybody can compute. A client that makes cursors could read from any place
of a list, and beyond the cap. A signature prevents that without the key. All instances of a deployment share one key,
so that a walk may continue at another one.
"""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from feedstore import durable
from feedstore.domain.cursors import MalformedCursorError
from feedstore.errors import ConfigError

VARIABLE: Final = "FEED_CURSOR_KEY"
"""The environment variable that may have the key instead of a file."""
KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 16
_SIGNATURE_CHARS: Final = 22


class SignedCursors:
    """Signs and opens cursors. key: secret."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise ValueError(f"key: expected at least {KEY_BYTES} bytes, got {len(key)}")
        # Keyed BLAKE2 is a MAC (RFC 7693), and takes less time than HMAC; the key is hashed once, here.
        self._keyed = hashlib.blake2b(
            key=hashlib.sha256(key).digest(), person=b"feed-cursor", digest_size=_SIGNATURE_BYTES
        )

    def signed(self, owner: str, cursor: str | None) -> str | None:
        """Signs a cursor. owner: names the list that the cursor belongs to, such as `following:1`."""
        return None if cursor is None else self._signature(owner, cursor) + cursor

    def opened(self, owner: str, text: str | None) -> str | None:
        """Checks a signed cursor, and returns the library's cursor. Raises MalformedCursorError if `text` was not
        signed for this list with this key.
        """
        if text is None:
            return None
        signature, cursor = text[:_SIGNATURE_CHARS], text[_SIGNATURE_CHARS:]
        if not text.isascii() or not hmac.compare_digest(signature, self._signature(owner, cursor)):
            raise MalformedCursorError("it is damaged, or it is from another list")
        return cursor

    def _signature(self, owner: str, cursor: str) -> str:
        made = self._keyed.copy()
        made.update(f"{owner}\0{cursor}".encode("utf-8", "surrogatepass"))
        return base64.urlsafe_b64encode(made.digest())[:_SIGNATURE_CHARS].decode()


def load_key(path: Path, environ: Mapping[str, str]) -> bytes:
    """The key of a deployment: from the environment, or from a file, which is made if it is missing.

    Raises ConfigError if the key cannot be read or made, is too short, or other users may read the file.
    """
    text = environ.get(VARIABLE)
    where = VARIABLE
    if text is None:
        where = str(path)
        try:
            text = _read(path)
        except FileNotFoundError:
            text = _make(path)
        except OSError as error:
            raise ConfigError(f"{path}: {error}") from error
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigError(
            f"{where}: expected at least {KEY_BYTES} bytes in hexadecimal: copy those of the other servers, or remove"
            " it: then a new key is made, and walks through lists start again"
        )
    return key


def _read(path: Path) -> str:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o007:
            raise ConfigError(f"{path}: other users can read it: chmod o-rwx {path}")
        return file.read(1_024).decode("latin-1")


def _make(path: Path) -> str:
    """Makes the file. If another process makes it at the same moment, the first one wins."""
    try:
        with durable.changing(path):
            if not path.exists():
                durable.replace(path, secrets.token_hex(KEY_BYTES) + "\n")
            return _read(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
