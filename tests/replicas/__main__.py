"""`python -m tests.replicas --rounds 200`: faults on the replicas of an embedded home."""

import argparse
import random
import secrets
import sys
import tempfile
from pathlib import Path

from tests.replicas.rounds import RoundError, Rounds


def main() -> int:
    """Returns the exit code: 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="as a run before printed it")
    chosen = parser.parse_args()
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="feedstore-replicas-") as directory:
        rounds = Rounds(Path(directory) / "home", random.Random(seed), lambda line: print(line, flush=True))
        try:
            for number in range(chosen.rounds):
                rounds.run(number)
        except RoundError as error:
            print(f"seed {seed}: {error}", file=sys.stderr)
            return 1
    print(
        f"{chosen.rounds} rounds, {rounds.noticed} faults that status named, each healed by the command that it named"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
