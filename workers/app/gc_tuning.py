"""How the garbage collector is set for long work."""

import gc

THRESHOLDS = (50_000, 20, 100)
"""Pipelines make values by the million and hardly any cycles: with Python's own thresholds, looking for cycles took 6 %
of the time of a writer and of an expander (py-spy, on the activity trace of docs/benchmarks.md).
"""


def relax() -> None:
    """Looks for cycles more rarely from now on, and not at all among what was made so far."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
