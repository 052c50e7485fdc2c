"""Boards under a scheduler that lets other things happen between any two calls: always what a list says. Each guard
that is taken out is found.

`python -m tests.simulation.board_search --seed N` replays a seed with its history.
"""

from itertools import chain

import pytest

from feedstore.follows.store import FollowStore
from tests.effort import FULL, part
from tests.simulation.board_mutants import BELOW_ZERO, FOUND_BY, HOLES_FORGET, MUTANTS, Mutant
from tests.simulation.boards import above_zero, below_the_top, past_a_hole, patched, simulate
from tests.simulation.memory_shard import MemoryShard
from workers.boards import Respacing

_BLOCKS = 4
_RUNS = 600 if FULL else 40
NOW_MS = 1_700_000_000_000
_A_FEW = 1_000 if FULL else 30


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_board_is_what_a_list_says_under_any_schedule(block: int):
    for seed in range(block * _RUNS // _BLOCKS, (block + 1) * _RUNS // _BLOCKS):
        outcome = simulate(seed)
        assert outcome.failure is None, f"python -m tests.simulation.board_search --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda each: each.name)
def test_a_guard_that_was_removed_is_found(mutant: Mutant):
    seeds = range(_A_FEW) if FULL else chain([FOUND_BY[mutant.name]], range(_A_FEW))
    found = next((seed for seed in seeds if simulate(seed, mutant).failure is not None), None)
    if found is None and not FULL:
        pytest.skip("the known seed finds it no more: python -m tests.simulation.board_search --all")
    assert found is not None, mutant.what
    assert simulate(found).failure is None


def test_a_later_save_is_on_top_after_thousands_of_drops_directly_below_the_topmost_pin():
    assert below_the_top(part(10_000)) is None
    assert below_the_top(400, mutant=MUTANTS["topmost_is_a_member"]) is not None


def test_nothing_is_pushed_below_zero_and_the_bottom_never_runs_out():
    assert above_zero(part(2_000)) is None
    assert above_zero(part(2_000), mutant=BELOW_ZERO) is not None


def test_a_walk_past_a_hole_needs_its_marks():
    def walked() -> tuple[list[int], list[int]]:
        store = FollowStore([MemoryShard(lambda: NOW_MS)])
        return past_a_hole(
            store, NOW_MS, "down", 1, lambda boards, asked: Respacing(boards, lambda: 0.0).respace([asked])
        )

    seen, order = walked()
    assert seen == order
    with patched(HOLES_FORGET.patched()):
        seen, order = walked()
    assert seen != order
