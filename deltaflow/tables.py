"""The names of the Python package `delta.tables`."""

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.batch.dml.merge_builder import DeltaMergeBuilder
from deltaflow.batch.optimize.optimize import DeltaOptimizeBuilder
from deltaflow.batch.table_builder import DeltaTableBuilder
from deltaflow.builders import IdentityGenerator

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
