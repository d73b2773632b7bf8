"""Commits: transactions, what they read, conflicts with other writers, and outcomes."""
