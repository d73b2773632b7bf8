"""OPTIMIZE: what its commits say of themselves (delta-spark's DeltaOperations.Optimize)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructField

from deltaflow.batch.rewrite import Describe
from deltaflow.log import AddFile, Operation, RemoveFile, Snapshot


def describe(predicates: Sequence[str], *, auto: bool) -> Describe:
    """How the commit of a compaction names itself; `predicates` are conditions, in SQL, on partitions."""
    parameters: dict[str, str | bool] = {
        "predicate": msgspec.json.encode(predicates).decode(),
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": auto,
    }

    def of(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> Operation:
        return Operation("OPTIMIZE", parameters, _metrics(adds, removes))

    return of


def _metrics(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, str]:
    sizes = sorted(add.size for add in adds) or [0]
    metrics = {
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "p25FileSize": sizes[len(sizes) // 4],
        "numDeletionVectorsRemoved": 0,
        "minFileSize": sizes[0],
        "numAddedFiles": len(adds),
        "maxFileSize": sizes[-1],
        "p75FileSize": sizes[len(sizes) * 3 // 4],
        "p50FileSize": sizes[len(sizes) // 2],
        "numAddedBytes": sum(add.size for add in adds),
    }
    return {name: str(number) for name, number in metrics.items()}


def partition_predicates(snapshot: Snapshot, bins: Sequence[pa.Table]) -> list[str]:
    """One condition, in SQL, that the partitions of the bins satisfy; none without partitions."""
    columns = [snapshot.schema[name] for name in snapshot.partition_columns]
    if not columns:
        return []
    partitions = {tuple(files["partition_values"][0].as_py()): None for files in bins}
    return [_joined([_joined(_equal(columns, dict(values)), "AND") for values in partitions], "OR")]


def _equal(columns: Sequence[StructField], values: dict[str, str | None]) -> list[str]:
    conditions = []
    for column in columns:
        name, kind = column.name.replace("`", "``"), column.dataType.simpleString().upper()
        conditions.append(f"(`{name}` <=> CAST({_literal(values[column.name])} AS {kind}))")
    return conditions


def _joined(conditions: Sequence[str], operator: str) -> str:
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = f"({joined} {operator} {condition})"
    return joined


def _literal(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
