"""Rows on their way into a table: names, casts, missing columns, constraints."""
