"""What every service's queue work runs on: stages with their retries, the relay, and the threads that they run in."""
