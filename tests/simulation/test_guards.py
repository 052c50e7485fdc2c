"""The simulation finds each guard that is taken out: some seed fails without it, and the same seed passes with it.

The seed that is known to find it is tried first. It may have ceased to, by a change of the handlers or of the world.
Then a few others are tried, and the test is skipped if none of them finds it: somebody must write the seeds down again.
With SIMULATION=full all are searched, without the known one, and nothing is skipped. Guards that hardly any seed finds
have schedules made for them, in the other modules here.
"""

from pathlib import Path

import pytest

from tests.effort import FULL
from tests.simulation.mutants import MUTANTS, Taken
from tests.simulation.search import BOUND, find
from tests.simulation.world import simulate

A_FEW = 100


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


def test_a_guard_that_is_not_searched_is_named_by_a_schedule():
    schedules = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [each.name for each in MUTANTS.values() if each.directed and f'["{each.name}"]' not in schedules] == []
