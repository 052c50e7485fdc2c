"""Rounds of faults on the replicas of an embedded home."""
