"""How far random and exhaustive tests go: a part of the way in `make test`, all of it with SIMULATION=full, as in
`make test-deep`.
"""

import os
from typing import Final

FULL: Final = os.environ.get("SIMULATION") == "full"
"""Guards are searched blind, every order is tried, and nothing is left out."""

RUNS: Final = int(os.environ.get("SIMULATION_RUNS") or (2_000 if FULL else 300))
"""How many seeds."""

EVERY: Final = 1 if FULL else 47
"""Of all orders, one in so many is tried. It divides no factorial up to 46!, so every ending has its turn."""

_PART: Final = 5


def part(full: int) -> int:
    """How many of `full` examples, rounds or seconds are tried."""
    return full if FULL else max(1, full // _PART)


NAMES: Final = frozenset({"FULL", "RUNS", "EVERY", "part"})
"""A test whose module imports one of these tries more with SIMULATION=full, as those of hypothesis do: it is marked
`deep`.
"""
