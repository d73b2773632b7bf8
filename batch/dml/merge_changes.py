"""Which rows of the table a MERGE changes: how many by clause and file, and at which positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from deltaflow.batch.dml.merge_clauses import ResolvedClause
from deltaflow.batch.rewrite.marked_rows import bucket_of, bucket_with, positions
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import FILES_SCHEMA

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

FILE, ROW, POSITION, ACTION = "\0file", "\0row", "\0position", "\0action"
"""Columns of the rows that match or that a clause changes: the file, the position in it, and the number of
the clause, from 1, or 0. ROW is the position, but null for a row without a match."""
_BUCKET = "bucket"
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
) -> ChangedRows:
    """The rows that the clauses change, of a frame with FILE, ROW, ACTION and, `with_positions`, POSITION;
    records their files as touched. One query."""
    rows = _counted(found, clauses, with_positions=with_positions).collect()
    if not may_have_several_matches and any((row["most"] or 0) > 1 for row in rows):
        return ChangedRows(has_several_matches=True)
    numbers = range(1, len(clauses) + 1)
    rows = [row for row in rows if any(row[f"n{i}"] for i in numbers)]
    of_clauses = [sum(row[f"n{i}"] for row in rows) for i in numbers]
    deleted: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        deleted[row[FILE]] += _number(row, clauses, "delete")
    files = operation.record_files_at(deleted)
    if not with_positions:
        return ChangedRows(files, of_clauses)
    marked = {}
    for action in _ACTIONS:
        buckets: dict[str, list[tuple[int, bytes]]] = {path: [] for path in deleted}
        for row in rows:
            buckets[row[FILE]].append((row[_BUCKET], row[action]))
        marked[action] = {path: positions(of_path) for path, of_path in buckets.items()}
        said = sum(_number(row, clauses, action) for row in rows)
        found_positions = sum(len(of_path) for of_path in marked[action].values())
        if said != found_positions:
            raise DeltaIllegalStateException(
                f"Spark found {said} rows to {action} for {operation.name}, at {found_positions} positions. "
                "Nothing was committed.",
                table=operation.snapshot.path,
                version=operation.snapshot.version,
            )
    updates, deletes = (operation.of_files(files, marked[action]) for action in _ACTIONS)
    marks = [update | delete for update, delete in zip(updates, deletes, strict=True)]
    return ChangedRows(files, of_clauses, marks=marks, updated=updates)


def _counted(found: DataFrame, clauses: Sequence[ResolvedClause], *, with_positions: bool) -> DataFrame:
    """The rows of each file by clause (n1, n2, …), and the most matches that a row has. `with_positions`: of
    each bucket of a file, and the positions by action."""
    numbers = range(1, len(clauses) + 1)
    is_match = F.col(ROW).isNotNull()
    of_rows = found.groupBy(FILE, ROW, *([POSITION] if with_positions else [])).agg(
        F.count(F.lit(1)).alias("n"), *[F.count_if(F.col(ACTION) == i).alias(f"n{i}") for i in numbers]
    )
    # Rows without a match have no row number here: each counts. One that is deleted twice counts once.
    columns = [
        F.max(F.when(is_match, F.col("n"))).alias("most"),
        *[
            F.sum(F.when(is_match, F.least(f"n{i}", F.lit(1))).otherwise(F.col(f"n{i}"))).alias(f"n{i}")
            for i in numbers
        ],
    ]
    if not with_positions:
        return of_rows.groupBy(FILE).agg(*columns)
    for action in _ACTIONS:
        changes = F.lit(False)
        for i in _numbers(clauses, action):
            changes |= F.col(f"n{i}") > 0
        columns.append(bucket_with(F.when(changes, F.col(POSITION))).alias(action))
    return of_rows.groupBy(FILE, bucket_of(F.col(POSITION)).alias(_BUCKET)).agg(*columns)


def _numbers(clauses: Sequence[ResolvedClause], action: str) -> Iterable[int]:
    return [i for i, clause in enumerate(clauses, 1) if clause.action == action]


def _number(row: Any, clauses: Sequence[ResolvedClause], action: str) -> int:
    return sum(row[f"n{i}"] for i in _numbers(clauses, action))
