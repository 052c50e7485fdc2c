"""Which seed finds a guard that is gone."""

from itertools import chain
from typing import NamedTuple

from tests.simulation.mutants import Taken
from tests.simulation.world import simulate

BOUND = 20_000


class Found(NamedTuple):
    seed: int
    failure: str


def find(mutant: Taken, *, blind: bool) -> Found | None:
    """The first seed that fails without the guard. blind: not beginning with the one that is known."""
    known = [] if blind or mutant.found_by is None else [mutant.found_by]
    for seed in chain(known, range(BOUND)):
        outcome = simulate(seed, mutant, mutant.profile)
        if outcome.failure is not None:
            return Found(seed, outcome.failure)
    return None
