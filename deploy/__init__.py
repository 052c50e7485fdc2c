"""What runs the system, apart from its code: the local stack of real servers."""
