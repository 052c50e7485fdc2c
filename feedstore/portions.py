"""Things in their order, some at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

Thing = TypeVar("Thing")
Things = TypeVar("Things", bound=Sequence[Any])


def chunks(things: Things, size: int) -> Iterator[Things]:
    """Slices of `size` things; the last one may be shorter."""
    return (cast("Things", things[start : start + size]) for start in range(0, len(things), size))


def portions(
    things: Iterable[Thing], size_of: Callable[[Thing], int], most: int, most_things: int | None = None
) -> Iterator[list[Thing]]:
    """Yields things in their order, as many at a time as have the size `most` together, or a single one that is larger.
    Messages are divided into batches in this way, and their content into messages. most_things: the most at a time.
    """
    some: list[Thing] = []
    room = most
    for thing in things:
        size = size_of(thing)
        if some and (size > room or len(some) == most_things):
            yield some
            some, room = [], most
        some.append(thing)
        room -= size
    if some:
        yield some
