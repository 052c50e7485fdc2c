"""A catalog in HBase: a table for each generation, and one for all deltas and the rows that say what there is."""
