"""The names of the Python package `delta.tables`."""

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.interface.merge_builder import DeltaMergeBuilder
from deltaflow.interface.optimize_builder import DeltaOptimizeBuilder
from deltaflow.interface.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
