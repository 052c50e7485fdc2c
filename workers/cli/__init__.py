"""The command line `feedctl`: one module for each group of commands."""

import os

from workers.app import memory_tuning

# numpy multiplies no matrices here. Without threads for that it loads in two thirds of the usual time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

with memory_tuning.loading():
    from workers.cli.root import main

__all__ = ["main"]
