"""The base of every service's queue work: stages with their retries, the relay, and the threads that they run in."""
