"""Which seed finds a guard that is gone."""

from itertools import chain
from typing import NamedTuple

from tests.simulation.mutants import Taken
from tests.simulation.world import simulate

BOUND = 2_000
"""Twice the seeds that the rarest of these guards takes. A guard that takes more has a schedule of its own instead
(`Taken.directed`): that finds it every time, and a search for it would take longer than for all the others.
"""


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
