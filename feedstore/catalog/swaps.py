"""Which generation is in use: how an operator changes it, so that a repeated request changes nothing more."""

from typing import Literal, NamedTuple

from feedstore.catalog import rule
from feedstore.catalog.port import CatalogRefusedError, CatalogStore, CatalogUnavailableError, NoGenerationError

Reason = Literal["generation_unknown", "generation_not_current", "no_generation_before"]


class SwapRefusedError(CatalogRefusedError):
    """Nothing was changed. reason: a stable word."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Swap(NamedTuple):
    """The result of a swap. generation: the one that is in use now. before: the one that was in use; None: there was
    none. Both are the same if nothing had to be changed.
    """

    generation: str
    before: str | None


def use(store: CatalogStore, generation: str) -> Swap:
    """Makes a generation current. Raises SwapRefusedError, CatalogUnavailableError."""
    try:
        current = next(reversed(store.trail()), None)
    except CatalogUnavailableError:
        current = None  # its name may be unreadable: using a generation again mends that
    if generation != current:
        try:
            store.use(generation)
        except CatalogRefusedError as error:
            raise SwapRefusedError("generation_unknown", str(error)) from error
    return Swap(generation, current)


def roll_back(store: CatalogStore, generation: str | None = None) -> Swap:
    """Rolls back from a generation (None: the current one): if it is current, makes the one before it in the trail
    current. Changes nothing if it was rolled back already, or if another one comes into use meanwhile.

    Raises NoGenerationError, SwapRefusedError, CatalogUnavailableError.
    """
    before = store.in_use()  # first: if anything else is decided from here on, nothing is changed
    trail = store.trail()
    if not trail:
        raise NoGenerationError("no generation is in use: build or load one")
    current = trail[-1]
    if generation is not None and generation != current:
        return _was_rolled_back(store, generation, current)
    if len(trail) == 1:
        raise SwapRefusedError("no_generation_before", f"there is no generation before {current}, or it was removed")
    if not store.use(trail[-2], before):
        return _was_rolled_back(store, current, store.trail()[-1])
    return Swap(trail[-2], current)


def _was_rolled_back(store: CatalogStore, generation: str, current: str) -> Swap:
    """The answer if the generation is not current: nothing was changed if it is later than the current one, which means
    that it was rolled back already. Raises SwapRefusedError otherwise.
    """
    if generation not in {each.id for each in store.generations()}:
        raise SwapRefusedError("generation_unknown", f"there is no generation {generation}")
    if rule.is_later(current, generation):
        raise SwapRefusedError("generation_not_current", f"{generation} is not in use: {current} is")
    return Swap(current, current)
