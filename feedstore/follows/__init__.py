"""Follows, boards, pins and the outbox: a port, and the SQLite adapter beside it."""
