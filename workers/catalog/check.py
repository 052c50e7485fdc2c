"""Is the catalog of pins what the follow store says?"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from feedstore.catalog.pins import key_of, live_pin
from feedstore.catalog.port import CatalogReader
from feedstore.follows.port import MAX_PAGE, FollowStore, PinState

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


def differences(
    catalog: CatalogReader, follows: FollowStore, on_progress: Callable[[int], None]
) -> Iterator[PinDifference]:
    """Every pin of which the catalog says something else. What was saved or deleted later than the catalog's own
    `known_ms` is not judged.

    Raises CatalogUnavailableError, FollowStoreUnavailableError.
    """
    done = 0
    for shard in range(follows.shards()):
        after = 0
        while page := follows.pins_after(shard, after, MAX_PAGE):
            after = page[-1].pin.pin
            yield from _of_page(catalog, page)
            done += len(page)
            on_progress(done)


def _of_page(catalog: CatalogReader, page: list[PinState]) -> Iterator[PinDifference]:
    found = catalog.fetch([key_of(state.pin.pin) for state in page])
    for state in page:
        changed_ms = state.saved_ms if state.deleted_ms is None else state.deleted_ms
        if changed_ms > found.known_ms:
            continue
        key = key_of(state.pin.pin)
        record = found.records.get(key)
        if record is None:
            # A deleted pin needs its record only as long as a feed may show it.
            if state.deleted_ms is None:
                yield PinDifference(state.pin.pin, "missing")
            continue
        live = live_pin(key, record)
        if state.deleted_ms is not None:
            if live is not None:
                yield PinDifference(state.pin.pin, "alive")
        elif live is None:
            yield PinDifference(state.pin.pin, "deleted")
        elif live != state.pin:
            yield PinDifference(state.pin.pin, "differs")
