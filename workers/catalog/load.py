"""Loads a batch of a catalog that comes from files, and uses it unless it is suspicious."""

from collections.abc import Iterable, Mapping
from typing import Final

from feedstore.catalog import rule
from feedstore.catalog.port import CatalogError, CatalogRefusedError, CatalogStore, Generation
from feedstore.catalog.posting import AHEAD_MAX_MS, in_seconds
from feedstore.errors import NeverError
from workers.catalog import side_by_side
from workers.catalog.side_by_side import Entry, Outcomes, in_each

SHRINK_MAX: Final = 0.9
"""A generation is suspicious if it has fewer records than this share of the current one's."""


class SuspiciousGenerationError(CatalogError, NeverError):
    """A generation was not used. The message says why, and how to use it all the same."""


def load(
    stores: Mapping[str, CatalogStore], as_of_ms: int, entries: Iterable[Entry], *, force: bool = False
) -> Outcomes[Generation]:
    """Loads one batch into several clusters at the same time, and makes it current in each.

    stores: by cluster. entries: keys strictly ascending; they are read once, and only if some cluster takes them.
    force: make it current whatever its size, and although the current generation is of a later time.

    Outcomes that failed:
        SuspiciousGenerationError: it is not used, and perhaps not loaded.
        LacksUpdatesError: the delta lacks updates since `as_of_ms`.
        CatalogUnavailableError: it may be loaded; load it again.

    Raises the errors of `entries`: nothing has changed in any cluster.
    """
    # Before the load, because a load may take long; and after it, because another one may have ended meanwhile.
    asked, older = in_each(stores, lambda name: None if force else _refuse_older(stores[name], as_of_ms))
    if not asked:
        return Outcomes({}, older)
    loaded, failed = side_by_side.load({name: stores[name] for name in asked}, as_of_ms, entries)
    used, refused = in_each(loaded, lambda name: _used(stores[name], loaded[name], force=force))
    return Outcomes(used, older | failed | refused)


def _used(store: CatalogStore, generation: Generation, *, force: bool) -> Generation:
    if force:
        store.use(generation.id)
    else:
        while True:
            before = store.in_use()
            _refuse_older(store, generation.as_of_ms)
            refuse_smaller(store, generation)
            if store.use(generation.id, before):
                break
            # Another load or a rollback came between: these looks were at what is not in use any more.
    return generation._replace(current=True, used=True)


def refuse_wrong(as_of_ms: int, now_ms: int) -> None:
    """Raises CatalogRefusedError if `as_of_ms` is in seconds, or further ahead of the home's clock than an update may
    be. Such a generation would hide every update until then, and would raise the floor so that every right load is
    refused for good.
    """
    if in_seconds(as_of_ms):
        raise CatalogRefusedError(f"as of {as_of_ms}: expected ms since 1970, and this looks like seconds")
    if as_of_ms > now_ms + AHEAD_MAX_MS:
        raise CatalogRefusedError(
            f"as of {as_of_ms}: expected ms since 1970, at most {AHEAD_MAX_MS // 60_000} minutes ahead; now is {now_ms}"
        )


def _refuse_older(store: CatalogStore, as_of_ms: int) -> None:
    """Raises SuspiciousGenerationError if the current generation is of a later time: records would go back in time."""
    # The trail names the current generation even if that is damaged. Loading the same batch again then mends it.
    for current in store.trail()[-1:]:
        if (later_ms := rule.as_of_ms(current)) > as_of_ms:
            raise SuspiciousGenerationError(
                f"as of {as_of_ms}: the current generation {current} is as of {later_ms}, which is later, so this batch"
                " is not used; feedctl catalog rollback goes back to the one before; if this batch is right, do it"
                " again with --force"
            )


def refuse_smaller(store: CatalogStore, generation: Generation) -> None:
    """Raises SuspiciousGenerationError if a generation is much smaller than the current one."""
    for current in store.generations():
        if current.current and generation.records < SHRINK_MAX * current.records:
            raise SuspiciousGenerationError(
                f"generation {generation.id} has {generation.records:,} records, the current one has"
                f" {current.records:,}: it is not used; if this is right, do it again with --force"
            )
