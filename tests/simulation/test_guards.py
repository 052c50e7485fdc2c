"""The simulation finds each guard that is taken out: some seed fails without it, and the same seed passes with it.

The seed that is known to find it is tried first. It may have ceased to, by a change of the handlers or of the world.
Then a few others are tried, and the test is skipped if none of them finds it: somebody must write the seeds down again.
With SIMULATION=full all are searched, without the known one, and nothing is skipped.
"""

import pytest

from tests.effort import FULL
from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.search import BOUND, find
from tests.simulation.world import simulate

A_FEW = 100


@pytest.mark.timeout(900)  # the rarest take thousands of seeds
@pytest.mark.parametrize(
    "mutant",
    [each for each in MUTANTS.values() if not each.directed],
    ids=lambda each: f"rule_{each.rule}_{each.name}",
)
def test_simulation_finds_the_guard_that_was_removed(mutant: Taken):
    found = find(mutant, blind=FULL, bound=BOUND if FULL else A_FEW)
    if found is None and not FULL:
        pytest.skip("the known seed finds it no more: python -m tests.simulation --write-seeds")
    assert found is not None, f"no seed below {BOUND} finds it: {mutant.what}"
    print(f"{mutant.what}: found with seed {found.seed}: {found.failure}")
    print(f"replay: python -m tests.simulation --mutant {mutant.name} --seed {found.seed}")
    if found.seed != mutant.found_by:
        print("write it down: python -m tests.simulation --write-seeds")
    guarded = simulate(found.seed, profile=mutant.profile)
    assert guarded.failure is None, f"seed {found.seed} fails with the guard as well: {guarded.failure}"
