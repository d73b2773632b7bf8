"""What a MERGE counts, and how its result row and its commit tell it (delta-spark's DeltaOperations)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from deltaflow.batch.dml.merge_clauses import ResolvedClause, ResolvedMerge
from deltaflow.batch.dml.row_level_operation import Changed
from deltaflow.interface.merge_builder import When
from deltaflow.log import Operation
from deltaflow.spark.expressions.expressions import simple_string


class MergedRows(NamedTuple):
    """What a MERGE has done, as its result row says it."""

    affected: int
    updated: int
    deleted: int
    inserted: int


@dataclass
class MergeCounts:
    """Rows, by what became of them."""

    matched_updated: int = 0
    matched_deleted: int = 0
    by_source_updated: int = 0
    by_source_deleted: int = 0
    inserted: int = 0

    @property
    def updated(self) -> int:
        return self.matched_updated + self.by_source_updated

    @property
    def deleted(self) -> int:
        return self.matched_deleted + self.by_source_deleted

    def add(self, clause: ResolvedClause, rows: int) -> None:
        """Counts rows that a clause changes."""
        when = "matched" if clause.when is When.MATCHED else "by_source"
        name = f"{when}_{clause.action}d"
        setattr(self, name, getattr(self, name) + rows)


def operation_of_merge(
    merge: ResolvedMerge,
    counts: MergeCounts,
    changed: Changed,
    source_rows: int,
    materialized_ms: int,
    times_ms: Mapping[str, int],
) -> Operation:
    """How the commit names itself. `materialized_ms`: what materialising the source took."""
    sizes = changed.metrics
    metrics = {
        "numSourceRows": source_rows,
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsMatchedUpdated": counts.matched_updated,
        "numTargetRowsNotMatchedBySourceUpdated": counts.by_source_updated,
        "numTargetRowsDeleted": counts.deleted,
        "numTargetRowsMatchedDeleted": counts.matched_deleted,
        "numTargetRowsNotMatchedBySourceDeleted": counts.by_source_deleted,
        "numTargetRowsCopied": changed.rows - counts.updated - counts.inserted,
        "numTargetBytesAdded": sizes["numAddedBytes"],
        "numTargetBytesRemoved": sizes["numRemovedBytes"],
        "numOutputRows": changed.rows,
        "numTargetFilesAdded": sizes["numAddedFiles"],
        "numTargetFilesRemoved": sizes["numRemovedFiles"],
        "numTargetChangeFilesAdded": sizes["numAddedChangeFiles"],
        "materializeSourceTimeMs": materialized_ms,
        "numTargetDeletionVectorsAdded": sizes["numDeletionVectorsAdded"],
        "numTargetDeletionVectorsRemoved": sizes["numDeletionVectorsRemoved"],
        "numTargetDeletionVectorsUpdated": sizes["numDeletionVectorsUpdated"],
        **times_ms,
    }
    parameters = {
        "predicate": _json([simple_string(merge.condition.column)]),
        "matchedPredicates": _predicates(merge.of(When.MATCHED)),
        "notMatchedPredicates": _predicates(merge.of(When.NOT_MATCHED)),
        "notMatchedBySourcePredicates": _predicates(merge.of(When.NOT_MATCHED_BY_SOURCE)),
    }
    return Operation("MERGE", parameters, {name: str(number) for name, number in metrics.items()})


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _predicates(clauses: Sequence[ResolvedClause]) -> str:
    return _json(
        [
            {
                **({} if clause.condition is None else {"predicate": simple_string(clause.condition.column)}),
                "actionType": clause.action,
            }
            for clause in clauses
        ]
    )
