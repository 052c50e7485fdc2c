"""The only place that knows all: the configuration, the adapters by scheme, the services and servers they become."""
