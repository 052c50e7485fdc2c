"""The tools that run the system, apart from its code: the local stack of real servers."""
