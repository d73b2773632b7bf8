"""The names of the Python package `delta.tables`."""

from deltaflow.batch.delta_table import DeltaTable

__all__ = ["DeltaTable"]
