"""A following-feed backend: the library that a web tier imports."""

__version__ = "0.1.0"
