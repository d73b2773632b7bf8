"""Scans: what Spark asks of a table while it plans a query."""
