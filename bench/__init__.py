"""`python -m bench`: measures the system against its targets, pairing each side with its baseline in one run."""
