"""Follows, boards, pins and the outbox: a port, and its adapters."""
