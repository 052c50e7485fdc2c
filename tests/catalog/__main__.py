"""Searches seeds of catalogs, or replays one.

`python -m tests.catalog [--runs N | --seed N] [--adapter NAME] [--mutant NAME | --all]`
"""

import argparse
import sys
import time

from tests.catalog.catalog_adapters import EMBEDDED
from tests.catalog.catalog_mutants import MUTANTS
from tests.catalog.schedules import simulate


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
    failed = False
    for mutant in MUTANTS.values() if args.all else [chosen]:
        began_s, failure, seed = time.perf_counter(), None, args.first
        for seed in range(args.first, args.first + args.runs):
            failure = simulate(seed, args.adapter, mutant).failure
            if failure is not None:
                break
        took_s = time.perf_counter() - began_s
        name = mutant.name if mutant else "all guards"
        print(f"{name}: {f'seed {seed}: {failure}' if failure else f'{args.runs} seeds, nothing'} ({took_s:.1f} s)")
        failed = failed or (failure is None) == (mutant is not None)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
