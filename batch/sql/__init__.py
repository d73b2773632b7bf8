"""SQL statements on Delta tables: each calls an operation of the rooms below, or is refused."""
