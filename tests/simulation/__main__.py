"""Searches seeds, or replays one.

`python -m tests.simulation [--seed N] [--runs N] [--mutant NAME | --profile NAME]`

With --write-seeds it writes down which seed finds each mutant: the known one if it still does.
"""

import argparse
import json
import sys
import time

from tests.simulation.mutants import MUTANTS, SEEDS
from tests.simulation.search import find
from tests.simulation.world import PROFILES, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print its history")
    parser.add_argument("--first", type=int, default=0, help="the first seed to search from")
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds to search")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="take this guard out")
    parser.add_argument("--profile", choices=PROFILES, default="general", help="what happens how often: see world.py")
    parser.add_argument("--all", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--write-seeds", action="store_true", help=f"search all mutants and write {SEEDS.name}")
    args = parser.parse_args()
    if args.write_seeds:
        return _write_seeds()
    mutant = MUTANTS[args.mutant] if args.mutant else None
    profile = mutant.profile if mutant else PROFILES[args.profile]
    if args.seed is not None:
        outcome = simulate(args.seed, mutant, profile, traced=True)
        print(*outcome.history, sep="\n")
        print(f"seed {args.seed}: {outcome.failure or 'as the model says'}")
        return int(outcome.failure is not None)
    began, failures, moves, holes = time.perf_counter(), 0, 0, 0
    for seed in range(args.first, args.first + args.runs):
        outcome = simulate(seed, mutant, profile)
        moves += outcome.moves
        holes += outcome.holes
        if outcome.failure is not None:
            failures += 1
            print(f"seed {seed}: {outcome.failure}", flush=True)
            if not args.all:
                break
    took = time.perf_counter() - began
    done = seed - args.first + 1
    print(f"{done} runs, {failures} failures, {holes} holes, {done / took:.0f} runs/s, {moves / done:.0f} moves a run")
    return int(failures > 0)


def _write_seeds() -> int:
    seeds: dict[str, int] = {}
    searched = [mutant for mutant in MUTANTS.values() if not mutant.directed]
    for mutant in searched:
        found = find(mutant, blind=False)
        if found is not None:
            seeds[mutant.name] = found.seed
        print(f"{mutant.name}: {'not found' if found is None else found.seed}", flush=True)
    SEEDS.write_text(json.dumps(seeds, indent=2) + "\n")
    return int(len(seeds) < len(searched))


if __name__ == "__main__":
    sys.exit(main())
