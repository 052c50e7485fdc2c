"""`python -m bench`: measures the embedded system."""

import argparse
import sys
from pathlib import Path

from bench import command
from bench.measurements import MEASUREMENTS


def run(chosen: argparse.Namespace, out: Path, scratch: Path) -> int:
    taken = {name: (measure.__doc__, measure) for name, measure in MEASUREMENTS.items()}
    return command.measure(chosen, command.context(chosen, out, scratch), out, taken)


if __name__ == "__main__":
    made = command.parser("bench", command.__doc__, MEASUREMENTS, "build/bench")
    sys.exit(command.main(command.options(made), run))
