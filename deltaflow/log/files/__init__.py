"""A table's files in columns: their state, paths, partition values, statistics, and what queries skip."""
