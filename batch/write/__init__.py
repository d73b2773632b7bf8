"""Saves: the modes of a write, what it replaces, and its one commit."""
