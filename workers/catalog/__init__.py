"""Filling catalogs: builds, updates, checks."""
