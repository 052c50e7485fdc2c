"""How much is simulated: a part in `make test`, everything with SIMULATION=full, as in `.ci/run`."""

import os
from typing import Final

FULL: Final = os.environ.get("SIMULATION") == "full"
"""Guards are searched blind, and every order is tried."""

RUNS: Final = int(os.environ.get("SIMULATION_RUNS") or (4_000 if FULL else 1_000))
"""How many seeds."""

EVERY: Final = 1 if FULL else 7
"""Of all orders, one in so many is tried. Seven divides no factorial up to 6!, so every ending has its turn."""
