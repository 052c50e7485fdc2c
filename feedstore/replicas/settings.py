"""The section [serving] of the configuration."""

from typing import Annotated

from msgspec import Meta

from feedstore.settings import MsTo5m, Section


class ServingSettings(Section, frozen=True):
    """How several clusters are read as one. deadline_ms: how long a page may take. reads_at_once: the most reads that
    run at once on a cluster on servers. prefer: the cluster that is asked first; None: the first one that is named.
    """

    deadline_ms: MsTo5m = MsTo5m(1_000)
    reads_at_once: Annotated[int, Meta(ge=1, le=1_024)] = 64
    prefer: str | None = None
