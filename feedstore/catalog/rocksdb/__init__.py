"""A catalog in a directory of this machine: read-only generations, and a delta that one process owns."""
