"""The names of the Python package `delta.tables`."""

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.batch.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = ["DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
