"""Searches seeds of boards, or replays one.

`python -m tests.simulation.board_search [--runs N | --seed N | --drops N] [--mutant NAME | --all]`
"""

import argparse
import sys

import structlog

from tests.seed_search import search
from tests.simulation.board_mutants import MUTANTS
from tests.simulation.boards import above_zero, below_the_top, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.board_search", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this seed and print its history")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="take this guard out")
    parser.add_argument("--all", action="store_true", help="search every mutant, and print the seeds that find them")
    parser.add_argument("--drops", type=int, help="so many drops below the topmost pin, and at the bottom, instead")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if args.drops:
        failures = [below_the_top(args.drops), above_zero(args.drops)]
        print(*failures, sep="\n")
        return int(any(failures))
    if args.seed is not None:
        outcome = simulate(args.seed, MUTANTS.get(args.mutant))
        print(*outcome.history, f"seed {args.seed}: {outcome.failure or 'as the list says'}", sep="\n")
        return int(outcome.failure is not None)
    guards = list(MUTANTS.values()) if args.all else [MUTANTS.get(args.mutant)]
    return int(not search(simulate, guards, args.first, args.runs))


if __name__ == "__main__":
    sys.exit(main())
