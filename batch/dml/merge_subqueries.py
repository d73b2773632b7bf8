"""Subqueries in the conditions and values of a MERGE, whose jobs have to find the same answers in them.

Each is evaluated once, before the other jobs, on one version of each Delta table, and its rows are kept until
the commit (Checkpoints).
"""

from __future__ import annotations

from deltaflow.batch.dml.materialized_rows import record_reads
from deltaflow.batch.dml.merge_clauses import ResolvedMerge
from deltaflow.batch.dml.row_level_operation import RowLevelOperation
from deltaflow.spark.expressions.frames import evaluated_subqueries, read_at
from deltaflow.spark.scan.file_index import hadoop_path


def with_evaluated_subqueries(operation: RowLevelOperation, merge: ResolvedMerge) -> ResolvedMerge:
    """The MERGE with its subqueries evaluated, a job each, and what they read of the table recorded."""
    pinned = operation.rows()
    read_at(pinned, hadoop_path(operation.snapshot.path), operation.snapshot.version)
    found = evaluated_subqueries(pinned, merge.columns)
    operation.checkpoints.add(found.rows)
    record_reads(operation, found.scans)
    return merge.with_columns(found.columns)
