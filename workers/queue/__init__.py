"""The task queue: a port, and its adapters."""
