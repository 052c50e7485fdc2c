"""The HTTP API: `FeedService` for programs in any language. docs/http.md is what its callers read."""
