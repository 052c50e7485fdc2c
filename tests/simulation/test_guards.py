"""The simulation finds each guard that is taken out: some seed fails without it, and the same seed passes with it."""

import pytest

from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.world import simulate

BOUND = 20_000


@pytest.mark.timeout(900)  # the rarest take thousands of seeds
@pytest.mark.parametrize(
    "mutant",
    [each for each in MUTANTS.values() if not each.directed],
    ids=lambda each: f"rule_{each.rule}_{each.name}",
)
def test_simulation_finds_the_guard_that_was_removed(mutant: Taken):
    for seed in range(BOUND):
        outcome = simulate(seed, mutant, mutant.profile)
        if outcome.failure is not None:
            print(f"{mutant.what}: found with seed {seed}: {outcome.failure}")
            print(f"replay: python -m tests.simulation --mutant {mutant.name} --seed {seed}")
            guarded = simulate(seed, profile=mutant.profile)
            assert guarded.failure is None, f"seed {seed} fails with the guard as well: {guarded.failure}"
            return
    pytest.fail(f"no seed below {BOUND} finds it: {mutant.what}")
