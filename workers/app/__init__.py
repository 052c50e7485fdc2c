"""The only place that knows all: homes, and how the configuration becomes ports and workers."""
