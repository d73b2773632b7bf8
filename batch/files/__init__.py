"""Data files: how a write cuts them, the actions that add them, the partitions that they are in."""
