"""`python -m bench`: measures the embedded system."""

import argparse
import sys
from pathlib import Path

from bench import command
from bench.measurements import MEASUREMENTS


def run(chosen: argparse.Namespace, out: Path, scratch: Path) -> int:
    return command.measure(chosen, command.context(chosen, out, scratch), out, MEASUREMENTS)


if __name__ == "__main__":
    made = command.parser("bench", command.__doc__, MEASUREMENTS, "build/bench")
    sys.exit(command.main(command.options(made), run))
