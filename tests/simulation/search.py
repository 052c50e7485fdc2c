"""Which seed finds a guard that is gone."""

from itertools import chain
from typing import NamedTuple

from tests.simulation.mutants import Taken
from tests.simulation.world import simulate

BOUND = 20_000
"""More seeds than the rarest guard takes."""


class Found(NamedTuple):
    seed: int
    failure: str


def find(mutant: Taken, *, blind: bool, bound: int = BOUND) -> Found | None:
    """The first seed that fails without the guard: the known one, unless `blind`, or one below `bound`."""
    known = [] if blind or mutant.found_by is None else [mutant.found_by]
    for seed in chain(known, range(bound)):
        outcome = simulate(seed, mutant, mutant.profile)
        if outcome.failure is not None:
            return Found(seed, outcome.failure)
    return None
