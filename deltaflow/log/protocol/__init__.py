"""What the protocol says of a table: actions, commits, features, properties and schemas."""
