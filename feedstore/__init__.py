"""A following-feed backend: the library that a web tier imports."""
