"""A catalog in HBase: a table for each generation, and one table with all deltas and with the state of each catalog."""
