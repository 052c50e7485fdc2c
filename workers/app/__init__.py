"""Homes, and how the configuration becomes ports and workers: the only package that knows all others."""
