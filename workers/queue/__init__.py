"""The task queue: a port, and the embedded adapter beside it."""
