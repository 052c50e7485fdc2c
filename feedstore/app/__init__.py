"""The only package that knows all parts: it makes adapters, services and servers out of the configuration."""
