"""Compares the catalog of pins with the follow store."""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from feedstore.catalog.pins import key_of, live_pin
from feedstore.catalog.port import CatalogReader
from feedstore.follows.port import MAX_PAGE, PinState
from feedstore.follows.store import FollowStore

Kind = Literal["missing", "differs", "deleted", "alive"]

WHAT: Final[dict[Kind, str]] = {
    "missing": "has no record",
    "differs": "has another owner, board or time",
    "deleted": "counts as deleted, and lives",
    "alive": "counts as alive, and was deleted",
}


class PinDifference(NamedTuple):
    pin: int
    kind: Kind


class PinComparison:
    """One walk over the pins of the follow store: iterate it once. A pin is compared if its last save or deletion is no
    later than the catalog's own `known_ms`.

    compared: how many pins were compared so far. later: how many were not, because they changed later. known_ms: the
    earliest `known_ms` that the catalog gave.
    """

    def __init__(self, catalog: CatalogReader, follows: FollowStore, on_progress: Callable[[int], None]) -> None:
        self.compared = self.later = 0
        self.known_ms: int | None = None
        self._catalog = catalog
        self._follows = follows
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[PinDifference]:
        """Yields every pin for which the catalog has something else.

        Raises CatalogUnavailableError, FollowStoreUnavailableError.
        """
        for shard in range(self._follows.shards()):
            after = 0
            while page := self._follows.pins_after(shard, after, MAX_PAGE):
                after = page[-1].pin.pin
                yield from self._of_page(page)
                self._on_progress(self.compared + self.later)

    def _of_page(self, page: list[PinState]) -> Iterator[PinDifference]:
        found = self._catalog.fetch([key_of(state.pin.pin) for state in page])
        self.known_ms = found.known_ms if self.known_ms is None else min(self.known_ms, found.known_ms)
        differences: list[PinDifference] = []
        for state in page:
            changed_ms = state.saved_ms if state.deleted_ms is None else state.deleted_ms
            if changed_ms > found.known_ms:
                self.later += 1
                continue
            self.compared += 1
            key = key_of(state.pin.pin)
            kind = _kind(state, key, found.records.get(key))
            if kind is not None:
                differences.append(PinDifference(state.pin.pin, kind))
        # A pin may have been deleted after its page was read, and the catalog may know that already.
        deleted = self._follows.deletions([each.pin for each in differences if each.kind != "alive"])
        self.compared -= len(deleted)
        self.later += len(deleted)
        yield from (each for each in differences if each.pin not in deleted)


def _kind(state: PinState, key: bytes, record: bytes | None) -> Kind | None:
    """The fault of a record; None if it has none."""
    if record is None:
        # A deleted pin needs a record only as long as a feed may show it.
        return "missing" if state.deleted_ms is None else None
    live = live_pin(key, record)
    if state.deleted_ms is not None:
        return None if live is None else "alive"
    if live is None:
        return "deleted"
    return None if live == state.pin else "differs"
