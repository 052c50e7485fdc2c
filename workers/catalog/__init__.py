"""What fills catalogs: builds, updates, checks."""
