"""`python -m tests.replicas --rounds 200`: faults on the replicas of an embedded home.

With `--stack DIR` on those of a home on the local stack that `python -m deploy.local up --home DIR` has started.
"""

import argparse
import random
import secrets
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from deploy.local import Stack
from tests.replicas import files, servers
from tests.replicas.rounds import STATUS_S, RoundError


def main() -> int:
    """Returns the exit code: 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="as a run before printed it")
    parser.add_argument("--stack", type=Path, help="the home of a local stack that runs")
    parser.add_argument("--status-s", type=float, default=STATUS_S, help="the longest that status may take, s")
    parser.add_argument("--fault", help="only this kind")
    chosen = parser.parse_args()
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="feedstore-replicas-"))) / "home"
        if chosen.stack is None:
            rounds = files.rounds(home, rng, _say, chosen.status_s)
        else:
            rounds = opened.enter_context(servers.rounds(Stack(chosen.stack), home, rng, _say, chosen.status_s))
        try:
            for number in range(chosen.rounds):
                rounds.run(number, chosen.fault)
        except RoundError as error:
            print(f"seed {seed}: {error}", file=sys.stderr)
            return 1
    print(
        f"{chosen.rounds} rounds, {rounds.noticed} faults that status named, each healed by the command that it named"
    )
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
