"""The catalog: records by key, in immutable generations with live updates, read through a local cache."""
