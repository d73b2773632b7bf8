"""As spark_writer.py, by deltalake: a second implementation, without Spark and without deltaflow.

Its argument has deltalake's storage options as JSON.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

# The tests are no package that is installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from tests.races.jobs import Job, carry_out
from tests.races.operations import Operation

_SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int32())])
_WITH_X = _SCHEMA.append(pa.field("x", pa.int64()))


class DeltalakeWriter:
    """Carries out operations by deltalake."""

    def __init__(self, job: Job, options: dict[str, str]) -> None:
        self.path = job.path
        self.options = options
        self.features = job.features
        self.retention_hours = job.retention_hours

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.options)

    def newest(self) -> int:
        return self.table.version()

    def run(self, operation: Operation) -> None:
        own = CommitProperties(custom_metadata={"userMetadata": operation.id})
        where, table = operation.where.sql, self.table
        new = _rows(operation.rows, _SCHEMA)
        # It takes rows without a nullable column only so.
        without_x = "merge" if len(table.schema().fields) > len(_SCHEMA) else None
        match operation.kind:
            case "append":
                write_deltalake(table, new, mode="append", schema_mode=without_x, commit_properties=own)
            case "widen":
                rows = _rows(operation.widened, _WITH_X)
                write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=own)
            case "overwrite":
                write_deltalake(table, new, mode="overwrite", schema_mode=without_x, commit_properties=own)
            case "replace":
                write_deltalake(
                    table,
                    new,
                    mode="overwrite",
                    predicate=where,
                    schema_mode=without_x,
                    commit_properties=own,
                )
            case "update":
                values = {"v": "v + 1", **({"p": f"'{operation.part}'"} if operation.part else {})}
                table.update(updates=values, predicate=where, commit_properties=own)
            case "delete":
                table.delete(where, commit_properties=own)
            case "merge":
                _merge(table, new, operation, own)
            case "compact":
                filters = [("p", "=", "a")] if self.features.by_partition and operation.in_sql else None
                table.optimize.compact(filters, commit_properties=own)
            case "cluster":
                table.optimize.z_order(["id", "v"], commit_properties=own)
            case "vacuum":
                table.vacuum(
                    math.ceil(self.retention_hours),  # it knows no fractions
                    dry_run=False,
                    enforce_retention_duration=False,
                    commit_properties=own,
                )
            case "restore":
                newest = table.version()
                version = min(newest, max(newest - operation.back, 1))
                table.restore(version, commit_properties=own)
            case "add x":
                column = Field("x", PrimitiveType("long"), nullable=True)
                table.alter.add_columns([column], commit_properties=own)
            case "set x":
                table.update(updates={"x": "id"}, predicate=where, commit_properties=own)
            case "overwrite schema":
                rows = _rows(operation.widened, _WITH_X) if operation.in_sql else new
                write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=own)
            case "note" | "feed":
                name, value = operation.setting
                table.alter.set_table_properties(
                    {name: value}, raise_if_not_exists=False, commit_properties=own
                )
            case other:
                raise AssertionError(other)


def _rows(rows: object, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _merge(table: DeltaTable, source: pa.Table, operation: Operation, own: CommitProperties) -> None:
    """As `merge_of`."""
    of_target = operation.where.of("t")
    merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t", commit_properties=own)
    for clause in operation.clauses:
        match clause:
            case "update":
                merge = merge.when_matched_update({"v": "s.v", "p": "s.p"}, of_target)
            case "delete":
                merge = merge.when_matched_delete("s.v < 20")
            case "insert":
                merge = merge.when_not_matched_insert(
                    {"id": "s.id", "p": "s.p", "v": "s.v"}, "s.v IS NOT NULL"
                )
            case "source update":
                merge = merge.when_not_matched_by_source_update({"v": "t.v - 1"}, of_target)
            case "source delete":
                merge = merge.when_not_matched_by_source_delete("t.id % 7 = 0")
    merge.execute()


if __name__ == "__main__":
    own_options = json.loads(sys.argv[1])
    carry_out(lambda job: DeltalakeWriter(job, own_options))
