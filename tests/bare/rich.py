"""Takes the place of a library that only tests need, in the processes that they start: see `tests/conftest.py`."""

raise ImportError("the product runs without it")
