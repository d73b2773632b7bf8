"""The way from one version of a table to the next: transactions, what they read, conflicts, outcomes."""
