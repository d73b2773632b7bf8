"""The partitions that a version of a table has, as SHOW PARTITIONS lists them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import Snapshot
from deltaflow.log.files.partition_values import canonical_values, partition_folder


def partition_folders(snapshot: Snapshot, wanted: Mapping[str, str | None], time_zone: str) -> list[str]:
    """The sorted folders `column=value/…` of the partitions that have files and the `wanted` values.

    Timestamps are shown in UTC, each instant once. Those without a zone are read in `time_zone`.
    """
    columns = snapshot.physical_partition_columns
    values = snapshot.files["partition_values"]
    types = {name: snapshot.schema[name].dataType for name in columns}
    partitions = pa.table(
        {
            name: canonical_values(
                pc.map_lookup(values, physical_name, "first").combine_chunks(), types[name], time_zone
            )
            for name, physical_name in columns.items()
        }
    )
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
        column = partitions[name]
        if not value:
            partitions = partitions.filter(pc.is_null(column))
        else:
            [wanted_value] = canonical_values(pa.array([value]), types[name], time_zone)
            partitions = partitions.filter(pc.equal(column, wanted_value))
    numbers = [str(number) for number in range(len(columns))]  # group_by takes some names for paths
    rows = partitions.rename_columns(numbers).group_by(numbers).aggregate([]).to_pylist()
    return sorted(partition_folder([*columns], dict(zip(columns, row.values(), strict=True))) for row in rows)
