"""Faults on purpose, on a system that is marked for it, and what readers and writers saw (docs/docker.md)."""
