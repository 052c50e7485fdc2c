"""The real handlers under a scheduler that interleaves them at every port call: always the feeds of the model.

`SIMULATION_RUNS` says how many seeds (tests/effort.py). A failing seed is printed;
`python -m tests.simulation --seed N` replays it with its history.
"""

import pytest

from tests.effort import RUNS, part
from tests.follows.memory_follows import open_in_memory
from tests.simulation.world import GENERAL, PROFILES, simulate

_BLOCKS = 8
_SHARES = {"general": 1, "growing": 8}
"""The part of the seeds that a profile gets: all, an eighth; the others a quarter."""


@pytest.mark.parametrize("block", range(_BLOCKS))
@pytest.mark.parametrize("profile", PROFILES)
def test_rules_1_to_10_any_interleaving_ends_in_the_feeds_of_the_model(profile: str, block: int):
    runs = RUNS // _SHARES.get(profile, 4)
    for seed in range(block * runs // _BLOCKS, (block + 1) * runs // _BLOCKS):
        outcome = simulate(seed, profile=PROFILES[profile])
        assert outcome.failure is None, (
            f"python -m tests.simulation --profile {profile} --seed {seed}: {outcome.failure}"
        )


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
