"""Which generation is in use: how an operator changes it, so that a repeated request changes nothing more."""

from typing import Literal, NamedTuple

from feedstore.catalog.port import CatalogRefusedError, CatalogStore, NoGenerationError

Reason = Literal["generation_unknown", "generation_not_current", "no_generation_before"]


class SwapRefusedError(CatalogRefusedError):
    """Nothing was changed. reason: a stable word."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Swap(NamedTuple):
    """generation: the one that is in use now. before: the one that was; None: there was none. Both are the same if
    nothing had to be changed.
    """

    generation: str
    before: str | None


def use(store: CatalogStore, generation: str) -> Swap:
    """Makes a generation current. Raises SwapRefusedError, CatalogUnavailableError."""
    current = None
    ids = []
    for each in store.generations():
        ids.append(each.id)
        if each.current:
            current = each.id
    if generation not in ids:
        raise SwapRefusedError("generation_unknown", f"there is no generation {generation}")
    if generation != current:
        store.use(generation)
    return Swap(generation, current)


def roll_back(store: CatalogStore, generation: str | None = None) -> Swap:
    """Makes the generation before one current, if that one is; None: before the current one. Nothing is done if the one
    before it is current already.

    Raises NoGenerationError, SwapRefusedError, CatalogUnavailableError.
    """
    ids = []
    current = None
    for each in store.generations():
        ids.append(each.id)
        if each.current:
            current = each.id
    if current is None:
        raise NoGenerationError("no generation is in use: build or load one")
    generation = generation or current
    if generation not in ids:
        raise SwapRefusedError("generation_unknown", f"there is no generation {generation}")
    place = ids.index(generation)
    if place == 0:
        raise SwapRefusedError("no_generation_before", f"there is no generation before {generation}")
    before = ids[place - 1]
    if current not in {generation, before}:
        raise SwapRefusedError("generation_not_current", f"not {generation} is in use, but {current}")
    if current != before:
        store.use(before)
    return Swap(before, current)
