"""The command line `feedctl`: one module for each group of commands."""

from workers.cli.root import main

__all__ = ["main"]
