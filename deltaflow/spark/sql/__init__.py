"""SQL: Delta's statements, who answers them, and how their texts are read."""
