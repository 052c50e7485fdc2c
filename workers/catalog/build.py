"""Builds a generation of the catalog of pins: reads the whole follow store, checks the result, and then uses it."""

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import chain
from typing import Final

from feedstore.catalog.pins import entry_of, key_of
from feedstore.catalog.port import (
    CatalogError,
    CatalogStore,
    CatalogUnavailableError,
    Generation,
    InUse,
    LacksUpdatesError,
)
from feedstore.follows.port import MAX_PAGE, FollowStoreUnavailableError, PinState
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from workers.catalog import side_by_side
from workers.catalog.load import refuse_smaller
from workers.catalog.side_by_side import Outcomes, in_each

SAMPLE: Final = 1_000
"""This many records of a new generation are compared with the follow store before it is used."""

OnProgress = Callable[[int], None]
"""Is called with the number of records that have been read."""


def build(
    stores: Mapping[str, CatalogStore],
    follows: FollowStore,
    deleted_kept_ms: int,
    rng: random.Random,
    on_progress: OnProgress,
    *,
    force: bool = False,
) -> Outcomes[Generation]:
    """Reads the follow store once, and loads a generation into several clusters at the same time. Each is compared with
    the follow store and with its cluster's current generation, and then made current. It is not made current, as the
    result says, if something else was decided meanwhile: another generation came into use, from a build that began at
    about the same time; or there was a rollback, perhaps from such a generation, and this one may have the same fault.

    stores: by cluster. deleted_kept_ms: how long a deleted pin keeps a record: as long as a feed may show it. force:
    make it current whatever its size, and whatever was decided meanwhile.

    Outcomes that failed:
        SuspiciousGenerationError: the generation is much smaller than the current one; it is loaded and not used.
        CatalogUnavailableError: it may be loaded, and is not used; build again. So is one that differs from the follow
            store, and one whose updates were lost meanwhile.

    Raises FollowStoreUnavailableError: nothing has changed in any cluster; build again.
    """
    before, away = in_each(stores, lambda name: _in_use(stores[name], force=force))
    if not before:
        return Outcomes({}, away)
    sample = PinSample(rng, SAMPLE)
    # Asked before the first read: what commits from here on is in the delta, whether the walk meets it or not.
    as_of_ms = follows.settled_ms() - 1
    with ThreadPoolExecutor(follows.shards(), thread_name_prefix="catalog-read") as reading:
        entries = _entries(_pins(follows, reading, as_of_ms - deleted_kept_ms), sample, on_progress)
        loaded, failed = side_by_side.load({name: stores[name] for name in before}, as_of_ms, entries)
    used, refused = in_each(
        loaded, lambda name: _used(stores[name], follows, loaded[name], sample.pins, before[name], force=force)
    )
    return Outcomes(used, away | {name: _of_build(error) for name, error in failed.items()} | refused)


def _of_build(error: CatalogError) -> CatalogError:
    """The error of a load as one of its build: a build that begins later is of a later time."""
    return CatalogUnavailableError(str(error)) if isinstance(error, LacksUpdatesError) else error


def _used(
    store: CatalogStore,
    follows: FollowStore,
    generation: Generation,
    sample: list[int],
    before: InUse,
    *,
    force: bool,
) -> Generation:
    if not force and store.in_use() != before:  # a collection may even have removed this one
        return generation
    if not force:
        refuse_smaller(store, generation)
    _refuse_differing(store, follows, generation, sample)
    is_used = store.use(generation.id, None if force else before)
    return generation._replace(current=is_used, used=is_used)


def _in_use(store: CatalogStore, *, force: bool) -> InUse:
    if not force:
        store.generations()  # a damaged one that is in use is an error: nothing can be compared with it
    return store.in_use()


def _refuse_differing(store: CatalogStore, follows: FollowStore, generation: Generation, pins: list[int]) -> None:
    """Raises CatalogUnavailableError if the record of one of these pins differs from the follow store's, or if the
    follow store does not answer.
    """
    differing: list[int] = []
    try:
        for some in chunks(pins, MAX_PAGE):
            differing += _differing(store, follows, generation, some)
    except FollowStoreUnavailableError as error:
        raise CatalogUnavailableError(
            f"generation {generation.id} is not used, because it cannot be compared with the follow store: {error}"
        ) from error
    if differing:
        raise CatalogUnavailableError(
            f"generation {generation.id} is not used: {len(differing)} of {len(pins)} records that were compared, pin"
            f" {differing[0]} among them, differ from the follow store: build again"
        )


def _differing(store: CatalogStore, follows: FollowStore, generation: Generation, pins: Sequence[int]) -> Iterator[int]:
    found = store.look(generation.id, [key_of(pin) for pin in pins])
    for pin, state in follows.pins(pins).items():
        # If a pin was deleted since, the delta says so.
        alive_then = state._replace(deleted_ms=None)
        if found.get(key_of(pin)) not in {entry_of(state)[1], entry_of(alive_then)[1]}:
            yield pin


class PinSample:
    """A random sample of many pins, each with the same chance: each draws a number, and those with the smallest are
    kept.

    size: how many pins are kept. rng: gives the numbers.
    """

    def __init__(self, rng: random.Random, size: int) -> None:
        self._rng = rng
        self._size = size
        self._kept: list[tuple[float, int]] = []
        self._most = 1.0

    @property
    def pins(self) -> list[int]:
        return [pin for _, pin in self._kept]

    def add(self, pins: Iterable[int]) -> None:
        draw, most = self._rng.random, self._most
        drawn = [(number, pin) for pin in pins if (number := draw()) < most]
        self._kept = heapq.nsmallest(self._size, chain(self._kept, drawn))
        if len(self._kept) == self._size:
            self._most = self._kept[-1][0]


def _entries(
    pages: Iterator[list[PinState]], sample: PinSample, on_progress: OnProgress
) -> Iterator[tuple[bytes, bytes]]:
    done = 0
    for states in pages:
        sample.add(state.pin.pin for state in states)
        yield from map(entry_of, states)
        done += len(states)
        on_progress(done)


def _pins(follows: FollowStore, reading: Executor, deleted_since_ms: int) -> Iterator[list[PinState]]:
    """Yields every pin by ascending id, some at a time, without pins that were deleted before `deleted_since_ms`."""
    shards = [_of_shard(follows, reading, shard) for shard in range(follows.shards())]
    for states in _merged(shards):
        yield [state for state in states if state.deleted_ms is None or state.deleted_ms >= deleted_since_ms]


def _merged(shards: Iterable[Iterator[list[PinState]]]) -> Iterator[list[PinState]]:
    """Merges whole pages: `heapq.merge` would take as long for each pin as all other work of a walk."""
    pages = [(page, rest) for rest in shards if (page := next(rest, []))]
    while pages:
        # No other page has pins that come before these.
        until = min(page[-1].pin.pin for page, _ in pages)
        ends = [bisect_right(page, until, key=_pin_of) for page, _ in pages]
        taken = chain.from_iterable(page[:end] for (page, _), end in zip(pages, ends, strict=True))
        yield sorted(taken, key=_pin_of)
        pages = [
            (left, rest)
            for (page, rest), end in zip(pages, ends, strict=True)
            if (left := page[end:] or next(rest, []))
        ]


def _pin_of(state: PinState) -> int:
    return state.pin.pin


def _of_shard(follows: FollowStore, reading: Executor, shard: int) -> Iterator[list[PinState]]:
    """Yields the pages of a shard. While the pins of one are loaded, the next page is already read."""
    asked = reading.submit(follows.pins_after, shard, 0, MAX_PAGE)
    while page := asked.result():
        is_last = len(page) < MAX_PAGE
        if not is_last:
            asked = reading.submit(follows.pins_after, shard, page[-1].pin.pin, MAX_PAGE)
        yield page
        if is_last:
            return
