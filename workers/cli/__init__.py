"""The command line `feedctl`: one module for each group of commands."""

import gc
import os

# numpy multiplies no matrices here. Without threads for that it loads in two thirds of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What is loaded stays: looking for garbage in it took 7 % of the time in which `feedctl status` starts.
_collecting = gc.isenabled()
gc.disable()

from workers.cli.root import main  # noqa: E402 - loads nearly everything

gc.freeze()
if _collecting:
    gc.enable()

__all__ = ["main"]
