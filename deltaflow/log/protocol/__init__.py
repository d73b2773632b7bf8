"""What the protocol defines: actions, commits, features, properties and schemas."""
