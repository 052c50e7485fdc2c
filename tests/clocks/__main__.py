"""`python -m tests.clocks --rounds 100`: the clock of one process of an embedded home is off."""

import argparse
import random
import secrets
import sys
import tempfile
from pathlib import Path

from tests.clocks.rounds import Rounds, library


def main() -> int:
    """Returns the exit code: 1 if something did not hold, 2 if it cannot be tried here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="as a run before printed it")
    chosen = parser.parse_args()
    if library() is None:
        print("libfaketime is missing: tests/clocks/install installs it", file=sys.stderr)
        return 2
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="feedstore-clocks-") as directory:
        rounds = Rounds(Path(directory) / "home", random.Random(seed), lambda line: print(line, flush=True))
        try:
            for number in range(chosen.rounds):
                rounds.run(number)
        except AssertionError as error:
            print(f"seed {seed}: {error}", file=sys.stderr)
            return 1
    print(f"{chosen.rounds} rounds: every page was true, every process was named, and nothing expired")
    return 0


if __name__ == "__main__":
    sys.exit(main())
