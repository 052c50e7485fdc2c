"""Searches seeds of catalogs, or replays one.

`python -m tests.catalog [--runs N | --seed N] [--adapter NAME] [--mutant NAME | --all]`
"""

import argparse
import sys

from tests.catalog.catalog_adapters import EMBEDDED
from tests.catalog.catalog_mutants import MUTANTS
from tests.catalog.schedules import simulate
from tests.seed_search import search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.catalog", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this seed and print its history")
    parser.add_argument("--adapter", choices=sorted(EMBEDDED), default="memory", help="default memory")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="take this guard out")
    parser.add_argument("--all", action="store_true", help="search every mutant, and print the seeds that find them")
    args = parser.parse_args()
    chosen = MUTANTS.get(args.mutant)
    if args.seed is not None:
        outcome = simulate(args.seed, args.adapter, chosen)
        print(*outcome.history, f"seed {args.seed}: {outcome.failure or 'as the source says'}", sep="\n")
        return int(outcome.failure is not None)
    guards = MUTANTS.values() if args.all else [chosen]
    return int(not search(lambda seed, guard: simulate(seed, args.adapter, guard), guards, args.first, args.runs))


if __name__ == "__main__":
    sys.exit(main())
