"""Which rows of the table a MERGE changes: how many by clause and file, and at which positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from deltaflow.batch.dml.merge_clauses import ResolvedClause
from deltaflow.batch.rewrite.marked_rows import bucket_of, bucket_with, positions
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import FILES_SCHEMA
from deltaflow.spark.expressions.frames import with_one_reducer
from deltaflow.spark.scan.file_index import FILE, POSITION

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, Row

ACTION, IS_MATCH = "\0action", "\0matched"
"""Columns of the rows that match or that a clause changes, beside FILE and POSITION: the number of the
clause, from 1, or 0, and whether the row matches one of the source."""
_BUCKET, _MATCHES, _MATCHED = "bucket", "matches", "matched"
_ACTIONS = ("update", "delete")


@dataclass(frozen=True)
class ChangedRows:
    """The rows that clauses change."""

    files: pa.Table = field(default_factory=FILES_SCHEMA.append(MATCHING_ROWS).empty_table)
    """The files that hold them; MATCHING_ROWS tells how many of them are deleted."""
    of_clauses: Sequence[int] = ()
    """How many rows each clause changes."""
    has_several_matches: bool = False
    """Whether a row matches several rows of the source. Nothing else is known then."""
    marks: Sequence[BitMap64] | None = None
    """The positions of the rows in each file; None if they are not asked for."""
    updated: Sequence[BitMap64] = ()
    """The positions in each file of those that are updated."""


def changed_rows(
    operation: TouchedFiles,
    found: DataFrame,
    clauses: Sequence[ResolvedClause],
    *,
    may_have_several_matches: bool,
    with_positions: bool,
    is_kept: bool,
) -> ChangedRows:
    """The rows that the clauses change, of a frame with FILE, POSITION, ACTION and IS_MATCH; records their
    files as touched. One query; of a frame that Spark keeps (`is_kept`), its last shuffle ends in one task.

    `may_have_several_matches`: the first clause deletes all rows that match, so that rows may match several
    rows of the source.
    """
    frame = _buckets(found, clauses, with_positions=with_positions)
    rows = (with_one_reducer(frame) if is_kept else frame).collect()
    repeated = sum(row[_MATCHES] - row[_MATCHED] for row in rows)
    if repeated and not may_have_several_matches:
        return ChangedRows(has_several_matches=True)
    of_clauses = [sum(row[f"n{i}"] for row in rows) for i in range(1, len(clauses) + 1)]
    if repeated:
        of_clauses[0] -= repeated  # rows that it deletes several times
    for action in _ACTIONS:
        said = sum(of_clauses[i - 1] for i in _numbers(clauses, action))
        has = sum(row[action] for row in rows)
        if said != has:
            raise DeltaIllegalStateException(
                f"Spark found {said} rows to {action} for {operation.name}, at {has} positions. Nothing was "
                "committed.",
                table=operation.snapshot.path,
                version=operation.snapshot.version,
            )
    changing = [row for row in rows if any(row[action] for action in _ACTIONS)]
    deleted: defaultdict[int, int] = defaultdict(int)
    for row in changing:
        deleted[row[FILE]] += row["delete"]
    files = operation.record_files_at(deleted)
    if not with_positions:
        return ChangedRows(files, of_clauses)
    updates, deletes = (
        [_positions(changing, file, action) for file in sorted(deleted)] for action in _ACTIONS
    )
    marks = [update | delete for update, delete in zip(updates, deletes, strict=True)]
    return ChangedRows(files, of_clauses, marks=marks, updated=updates)


def _buckets(found: DataFrame, clauses: Sequence[ResolvedClause], *, with_positions: bool) -> DataFrame:
    """Of each bucket of a file: how many matches there are, of how many rows; how many rows each clause
    changes (n1, n2, …); how many positions are updated and deleted and, `with_positions`, which."""
    position = F.col(POSITION)
    matched = bucket_with(F.when(F.col(IS_MATCH), position))
    columns = [F.count_if(F.col(IS_MATCH)).alias(_MATCHES), F.bitmap_count(matched).alias(_MATCHED)]
    columns += [F.count_if(F.col(ACTION) == i).alias(f"n{i}") for i in range(1, len(clauses) + 1)]
    for action in _ACTIONS:
        numbers = _numbers(clauses, action)
        if not numbers:
            columns.append(F.lit(0).alias(action))
            continue
        bitmap = bucket_with(F.when(F.col(ACTION).isin(numbers), position))
        columns.append(F.bitmap_count(bitmap).alias(action))
        if with_positions:
            columns.append(bitmap.alias(_bitmap(action)))
    return found.groupBy(FILE, bucket_of(position).alias(_BUCKET)).agg(*columns)


def _positions(rows: Sequence[Row], file: int, action: str) -> BitMap64:
    return positions(
        [(row[_BUCKET], row[_bitmap(action)]) for row in rows if row[FILE] == file and row[action]]
    )


def _bitmap(action: str) -> str:
    return f"bitmap of {action}"


def _numbers(clauses: Sequence[ResolvedClause], action: str) -> list[int]:
    return [i for i, clause in enumerate(clauses, 1) if clause.action == action]
