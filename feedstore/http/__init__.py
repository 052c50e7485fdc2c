"""A kit for HTTP servers, which are given their endpoints, files and metrics. docs/http.md is for callers
of the API.
"""
