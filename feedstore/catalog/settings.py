"""A section [catalogs.NAME] of the configuration, and the kind of catalog that NAME says."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

from feedstore.settings import Bytes, MsTo90d, Section

PINS: Final = "pins"
"""The name of the catalog that pages show pins from."""


class CatalogKind(NamedTuple):
    """What a catalog is made of. source: the follow store's pins, or files. fill: the command that makes a generation
    of it. updated_by: what updates it; None: updates are posted to it.
    """

    source: Literal["pins", "files"]
    fill: str
    updated_by: str | None


def kind_of(catalog: str) -> CatalogKind:
    """The kind of a catalog: its name says it."""
    if catalog == PINS:
        return CatalogKind("pins", f"feedctl catalog build {catalog}", "saved and deleted pins")
    return CatalogKind("files", f"feedctl catalog load {catalog} FILE --as-of MS", None)


def posted(catalogs: Iterable[str]) -> list[str]:
    """Which of some catalogs have posted updates."""
    return [name for name in catalogs if kind_of(name).updated_by is None]


class CatalogSettings(Section, frozen=True):
    """build_ms: how often the worker builds a generation of a catalog that comes from the follow store. keep: how many
    generations, the latest ones and as many that were in use. ttl_ms: how long web processes hold a record.
    stale_max_ms: how much longer they may show it if no cluster answers. cache_bytes: how much one web process holds.
    missing: what a page does about a pin that has no record: ask the follow store, or leave it out.
    """

    build_ms: MsTo90d = MsTo90d(21_600_000)
    keep: Annotated[int, Meta(ge=1, le=100)] = 3
    ttl_ms: MsTo90d = MsTo90d(300_000)
    stale_max_ms: MsTo90d = MsTo90d(600_000)
    cache_bytes: Bytes = Bytes(64 << 20)
    missing: Literal["source", "skip"] = "source"
