"""A kit for HTTP servers, which are given endpoints, files and metrics. docs/http.md is for callers of the API."""
