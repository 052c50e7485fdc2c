"""The replicas read as one, and rounds of faults on those of an embedded home."""
