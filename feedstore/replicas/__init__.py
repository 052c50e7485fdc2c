"""Several clusters read as one.

A read asks the preferred cluster, and another one if that one fails or is slow. The modules, from top to bottom:

- `replicas`: one read of a table that every cluster has (`Replicas.read`).
- `contest`: the same question to several clusters, whatever it is. It asks them in order, hedges, and returns the first
  answer.
- `attempts`: one read of one cluster, in the caller's thread or on a thread of its own.
- `health`: what all reads share: which clusters to ask, in which order and how soon.
- `breaker`, `hedging`: the pure parts of `health`: time is an argument. A cluster that fails again and again is
  left alone; a hedge is sent after the p95 of recent reads, and only a few in a hundred reads.
- `watermarks`: looks how far each cluster is, once a second.
"""
