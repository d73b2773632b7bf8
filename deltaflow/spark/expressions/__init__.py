"""Expressions, conditions and plans as Spark's analysis sees them."""
