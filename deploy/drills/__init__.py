"""Faults on purpose, on a system that is labelled for it, and what readers and writers saw (docs/drills.md)."""
