"""A cluster in a directory of this machine: one RocksDB with a column family for each table."""
