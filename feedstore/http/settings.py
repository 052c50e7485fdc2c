"""The section [http] of the configuration."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from feedstore.settings import MsTo1h, Section


class HttpSettings(Section, frozen=True):
    """How HTTP is served. tokens: None admits only this machine. threads: for calls that wait for servers. patience_ms:
    how long a client may take to send a request. drain_ms: how long a server keeps serving, not ready, after it
    was told to end.
    """

    tokens: Path | None = None
    cursor_key: Path = Path("cursor.key")
    threads: Annotated[int, Meta(ge=1, le=1_024)] = 32
    connections: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    patience_ms: MsTo1h = MsTo1h(10_000)
    drain_ms: MsTo1h = MsTo1h(1_000)
