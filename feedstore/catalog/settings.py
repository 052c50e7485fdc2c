"""A section [catalogs.NAME] of the configuration."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from feedstore.settings import Bytes, Ms

PINS: Final = "pins"
"""The name of the catalog that pages show pins from. It is built from the follow store."""


def posted(catalogs: Iterable[str]) -> list[str]:
    """Which of some catalogs have posted updates: all but that of pins, which the actions update."""
    return [name for name in catalogs if name != PINS]


class CatalogSettings(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"build_ms": "build", "ttl_ms": "ttl", "stale_max_ms": "stale_max", "cache_bytes": "cache"},
):
    """build_ms: how often the worker builds a generation of a catalog that comes from the follow store. keep: how many
    generations, the latest ones and as many that were in use. ttl_ms: how long web processes hold a record.
    stale_max_ms: how much longer they may show it if no cluster answers. cache_bytes: how much one web process holds.
    missing: what a page does about a pin that has no record: ask the follow store, or leave it out.
    """

    build_ms: Ms = Ms(21_600_000)
    keep: Annotated[int, Meta(ge=1, le=100)] = 3
    ttl_ms: Ms = Ms(300_000)
    stale_max_ms: Ms = Ms(600_000)
    cache_bytes: Bytes = Bytes(64 << 20)
    missing: Literal["source", "skip"] = "source"
