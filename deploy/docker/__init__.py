"""Two whole HBase clusters, the queue, the follow store, the workers and the web in Docker (docs/docker.md)."""
