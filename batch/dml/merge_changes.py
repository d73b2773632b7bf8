"""Which rows of the table a MERGE changes: how many by clause and file, and at which positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from deltaflow.batch.dml.merge_clauses import ResolvedClause
from deltaflow.batch.rewrite.marked_rows import bucket_of, bucket_with, positions
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import FILES_SCHEMA
from deltaflow.spark.expressions.frames import with_one_reducer

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

FILE, ROW, POSITION, ACTION = "\0file", "\0row", "\0position", "\0action"
"""Columns of the rows that match or that a clause changes: the file, the position in it, and the number of
the clause, from 1, or 0. ROW is the position, but null for a row without a match."""
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
    """The rows that the clauses change, of a frame with FILE, ROW, ACTION and, `with_positions`, POSITION;
    records their files as touched. One query; of a frame that Spark keeps (`is_kept`), its last shuffle ends
    in one task.

    `may_have_several_matches`: the first clause deletes all rows that match, so that rows may match several
    rows of the source.
    """
    if with_positions:
        frame = _positions(found, clauses)
        rows = (with_one_reducer(frame) if is_kept else frame).collect()
        return _with_positions(operation, rows, clauses, may_have_several_matches=may_have_several_matches)
    rows = _counted(found, clauses).collect()
    if not may_have_several_matches and any((row["most"] or 0) > 1 for row in rows):
        return ChangedRows(has_several_matches=True)
    numbers = range(1, len(clauses) + 1)
    rows = [row for row in rows if any(row[f"n{i}"] for i in numbers)]
    deletes = _numbers(clauses, "delete")
    files = operation.record_files_at({row[FILE]: sum(row[f"n{i}"] for i in deletes) for row in rows})
    return ChangedRows(files, [sum(row[f"n{i}"] for row in rows) for i in numbers])


def _counted(found: DataFrame, clauses: Sequence[ResolvedClause]) -> DataFrame:
    """The rows of each file by clause (n1, n2, …), and the most matches that a row has."""
    numbers = range(1, len(clauses) + 1)
    is_match = F.col(ROW).isNotNull()
    of_rows = found.groupBy(FILE, ROW).agg(
        F.count(F.lit(1)).alias("n"), *[F.count_if(F.col(ACTION) == i).alias(f"n{i}") for i in numbers]
    )
    # Rows without a match have no row number here: each counts. One that is deleted twice counts once.
    return of_rows.groupBy(FILE).agg(
        F.max(F.when(is_match, F.col("n"))).alias("most"),
        *[
            F.sum(F.when(is_match, F.least(f"n{i}", F.lit(1))).otherwise(F.col(f"n{i}"))).alias(f"n{i}")
            for i in numbers
        ],
    )


def _positions(found: DataFrame, clauses: Sequence[ResolvedClause]) -> DataFrame:
    """Of each bucket of a file: the matches and their positions, the rows by clause (n1, n2, …), and the
    positions of those that are updated and deleted."""
    is_match = F.col(ROW).isNotNull()
    position = F.col(POSITION)
    columns = [
        F.count_if(is_match).alias(_MATCHES),
        bucket_with(F.when(is_match, position)).alias(_MATCHED),
        *[F.count_if(F.col(ACTION) == i).alias(f"n{i}") for i in range(1, len(clauses) + 1)],
    ]
    for action in _ACTIONS:
        changes = F.col(ACTION).isin(_numbers(clauses, action))
        columns.append(bucket_with(F.when(changes, position)).alias(action))
    return found.groupBy(FILE, bucket_of(position).alias(_BUCKET)).agg(*columns)


def _with_positions(
    operation: TouchedFiles,
    rows: Sequence[Any],
    clauses: Sequence[ResolvedClause],
    *,
    may_have_several_matches: bool,
) -> ChangedRows:
    of_file: dict[str, dict[str, list[tuple[int, bytes]]]] = {}
    for row in rows:
        buckets = of_file.setdefault(row[FILE], {name: [] for name in (_MATCHED, *_ACTIONS)})
        for name, of_name in buckets.items():
            of_name.append((row[_BUCKET], row[name]))
    marked = {path: {n: positions(b) for n, b in buckets.items()} for path, buckets in of_file.items()}

    def number(name: str) -> int:
        return sum(len(of_path[name]) for of_path in marked.values())

    of_clauses = [sum(row[f"n{i}"] for row in rows) for i in range(1, len(clauses) + 1)]
    repeated = sum(row[_MATCHES] for row in rows) - number(_MATCHED)
    if repeated and not may_have_several_matches:
        return ChangedRows(has_several_matches=True)
    if repeated:
        of_clauses[0] -= repeated  # rows that it deletes several times
    for action in _ACTIONS:
        said = sum(of_clauses[i - 1] for i in _numbers(clauses, action))
        if said != number(action):
            raise DeltaIllegalStateException(
                f"Spark found {said} rows to {action} for {operation.name}, at {number(action)} positions. "
                "Nothing was committed.",
                table=operation.snapshot.path,
                version=operation.snapshot.version,
            )
    changed = {path: of_path for path, of_path in marked.items() if any(of_path[name] for name in _ACTIONS)}
    files = operation.record_files_at({path: len(of_path["delete"]) for path, of_path in changed.items()})
    updates, deletes = (
        operation.of_files(files, {path: of_path[name] for path, of_path in changed.items()})
        for name in _ACTIONS
    )
    marks = [update | delete for update, delete in zip(updates, deletes, strict=True)]
    return ChangedRows(files, of_clauses, marks=marks, updated=updates)


def _numbers(clauses: Sequence[ResolvedClause], action: str) -> list[int]:
    return [i for i, clause in enumerate(clauses, 1) if clause.action == action]
