"""SQL: the statements on Delta tables, and the parsing of those that Delta adds."""
