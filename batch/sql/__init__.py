"""SQL statements on Delta tables: each calls an operation of a room below, or is refused."""
