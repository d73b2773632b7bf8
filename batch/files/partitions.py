"""The partitions that a version of a table has, as SHOW PARTITIONS lists them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import Snapshot
from deltaflow.log.files.partition_values import partition_folder


def partition_folders(snapshot: Snapshot, wanted: Mapping[str, str | None]) -> list[str]:
    """`column=value/…` of every partition that has files, sorted; of those with the `wanted` values."""
    columns = snapshot.partition_columns
    values = snapshot.files["partition_values"]
    table = pa.table({name: pc.map_lookup(values, name, "first") for name in columns})
    by_lower = {name.lower(): name for name in columns}
    for given, value in wanted.items():
        name = by_lower.get(given.lower())
        if name is None:
            raise DeltaAnalysisException(
                error_class="DELTA_PARTITION_COLUMN_NOT_FOUND",
                name=given,
                columns=", ".join(columns),
                table=snapshot.path,
            )
        column = table[name]
        table = table.filter(pc.is_null(column) if value is None else pc.equal(column, value))
    rows = table.group_by(columns).aggregate([]).to_pylist()
    return sorted(partition_folder(columns, row) for row in rows)
