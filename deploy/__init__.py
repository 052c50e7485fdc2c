"""What runs the system beside its code: the local stack of real servers."""
