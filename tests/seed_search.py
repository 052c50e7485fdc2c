"""Searches seeds of a simulation: those that fail as it is, and those that fail without one of its guards."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Outcome(Protocol):
    @property
    def failure(self) -> str | None: ...


class Guard(Protocol):
    @property
    def name(self) -> str: ...


G = TypeVar("G", bound=Guard)


def search(simulate: Callable[[int, G | None], Outcome], guards: Iterable[G | None], first: int, runs: int) -> bool:
    """Prints, for each guard that is taken out (None: no guard), the first seed that fails, if any. Returns whether all
    is as it has to be: without a guard a seed fails, and with all of them none does.
    """
    is_right = True
    for guard in guards:
        began_s, failure, seed = time.perf_counter(), None, first
        for seed in range(first, first + runs):
            failure = simulate(seed, guard).failure
            if failure is not None:
                break
        took_s = time.perf_counter() - began_s
        name = guard.name if guard else "all guards"
        print(f"{name}: {f'seed {seed}: {failure}' if failure else f'{runs} seeds, nothing'} ({took_s:.1f} s)")
        is_right = is_right and (failure is None) == (guard is None)
    return is_right
