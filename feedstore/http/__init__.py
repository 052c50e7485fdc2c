"""A kit for HTTP servers: endpoints, files and metrics are handed in. docs/http.md is what callers of the API read."""
