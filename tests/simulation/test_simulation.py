"""The real handlers under a scheduler that interleaves them at every port call: always the feeds of the model.

`SIMULATION_RUNS` says how many seeds (tests/effort.py). A failing seed is printed;
`python -m tests.simulation --seed N` replays it with its history.
"""

import pytest

from tests.effort import RUNS, part
from tests.follows.memory_follows import open_in_memory
from tests.simulation.world import BEGINNING, DIVIDING, GENERAL, GROWING, PARKING, REBUILDING, simulate

_BLOCKS = 8


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rules_1_to_9_any_interleaving_ends_in_the_feeds_of_the_model(block: int):
    for seed in range(block * RUNS // _BLOCKS, (block + 1) * RUNS // _BLOCKS):
        outcome = simulate(seed)
        assert outcome.failure is None, f"python -m tests.simulation --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rules_1_to_10_what_is_parked_changes_nothing(block: int):
    for seed in range(block * RUNS // _BLOCKS // 4, (block + 1) * RUNS // _BLOCKS // 4):
        outcome = simulate(seed, profile=PARKING)
        assert outcome.failure is None, f"python -m tests.simulation --parking --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rules_1_to_10_a_cluster_that_is_made_anew_beside_live_expanders_gets_all_of_it(block: int):
    for seed in range(block * RUNS // _BLOCKS // 4, (block + 1) * RUNS // _BLOCKS // 4):
        outcome = simulate(seed, profile=REBUILDING)
        assert outcome.failure is None, f"python -m tests.simulation --rebuilding --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rule_10_partitions_that_are_added_change_nothing(block: int):
    for seed in range(block * RUNS // _BLOCKS // 8, (block + 1) * RUNS // _BLOCKS // 8):
        outcome = simulate(seed, profile=GROWING)
        assert outcome.failure is None, f"python -m tests.simulation --growing --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rules_1_to_9_actions_that_are_begun_before_their_turn_change_nothing(block: int):
    for seed in range(block * RUNS // _BLOCKS // 4, (block + 1) * RUNS // _BLOCKS // 4):
        outcome = simulate(seed, profile=BEGINNING)
        assert outcome.failure is None, f"python -m tests.simulation --beginning --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rules_1_to_10_fanouts_that_are_done_in_ranges_change_nothing(block: int):
    for seed in range(block * RUNS // _BLOCKS // 4, (block + 1) * RUNS // _BLOCKS // 4):
        outcome = simulate(seed, profile=DIVIDING)
        assert outcome.failure is None, f"python -m tests.simulation --dividing --seed {seed}: {outcome.failure}"


def test_a_seed_replays():
    first, second = (simulate(7, traced=True) for _ in range(2))
    assert first.history == second.history


def test_the_shards_in_memory_behave_as_those_in_sqlite():
    """The same seeds on SQLite make the same histories, so what the simulation shows holds for the real adapter."""
    compared = 0
    seeds = part(60)
    for seed in range(seeds):
        in_memory = simulate(seed, profile=GENERAL, traced=True, one_clock=True)
        in_sqlite = simulate(
            seed,
            profile=GENERAL,
            traced=True,
            one_clock=True,
            make_follows=lambda clocks: open_in_memory(clocks[0], len(clocks)),
        )
        assert in_sqlite.failure is None, f"seed {seed}: {in_sqlite.failure}"
        assert in_sqlite.history == in_memory.history, f"seed {seed}"
        compared += len(in_memory.history)
    assert compared > 80 * seeds
