"""Faults at random under more load than the clusters can take, and then a look at everything that was acknowledged."""
