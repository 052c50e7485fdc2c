"""`python -m bench.stack`: the measurements that need the real servers of the local stack."""
