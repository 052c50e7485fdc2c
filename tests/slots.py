"""The slots of a stage in tests that are not about slots."""

from typing import Any
from zlib import crc32


class EachAlone:
    """Each body needs a slot of its own, which is a slice of its own, and cannot be divided."""

    count = 0

    def needed(self, body: Any) -> frozenset[int]:
        return frozenset((crc32(repr(body).encode()),))

    def divided(self, body: Any, slots: frozenset[int]) -> tuple[Any, Any] | None:
        return None

    def halved(self, body: Any) -> tuple[Any, Any] | None:
        return None
