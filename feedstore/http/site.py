"""Pages for browsers: the files of a directory, read once.

They load nothing from other sites, and browsers enforce that.
"""

import hashlib
import mimetypes
from pathlib import Path
from typing import Final, NamedTuple

INDEX: Final = "index.html"

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class Asset(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def assets(directory: Path) -> dict[str, Asset]:
    """The files of a directory by their paths, `/` for its index; empty if there is no such directory."""
    found = {}
    for file in sorted(directory.rglob("*")):
        if not file.is_file() or file.name.startswith("."):
            continue
        content = file.read_bytes()
        name = file.relative_to(directory).as_posix()
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        if media_type.startswith("text/"):
            media_type += "; charset=utf-8"
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        found["/" if name == INDEX else f"/{name}"] = Asset(content, media_type, etag)
    return found
