"""Definitions: tables by name, their columns, constraints, properties and protocol."""
