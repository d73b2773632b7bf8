"""The columns of a directory of Parquet files: those of the footers, and the partition columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from deltaflow.batch.commands.parquet_files import ParquetFiles
from deltaflow.errors import DeltaAnalysisException, SchemaError, StoreError
from deltaflow.log import as_nullable, merge_schemas
from deltaflow.log.files.footers import files_of_distinct_schemas
from deltaflow.log.files.partition_values import canonical_values
from deltaflow.log.protocol.properties import SESSION_TIME_ZONE
from deltaflow.spark.expressions.frames import delta_settings
from deltaflow.spark.sql.parquet_tables import cast_columns, inferred_partition_schema, schema_of_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOOTERS_AT_ONCE = 10_000
_KEPT_METADATA = ("comment",)


def data_schema(spark: SparkSession, files: ParquetFiles) -> StructType:
    """The columns of all files, merged (byte, short and int grow), nullable.

    Python reads each footer to find the distinct schemas; Spark reads the schema of the first file with each
    of them. DELTA_FAILED_READ_FILE_FOOTER names a file that is not Parquet, DELTA_FAILED_MERGE_SCHEMA_FILE
    one whose schema does not fit.
    """
    merged = StructType()
    for path in _of_distinct_schemas(files):
        schema = _plain(schema_of_file(spark, path))
        try:
            merged = as_nullable(merge_schemas(merged, schema))
        except SchemaError as error:
            raise DeltaAnalysisException(
                f"Failed to merge schema of file {path}: {error.message}",
                error_class="DELTA_FAILED_MERGE_SCHEMA_FILE",
                file=path,
            ) from error
    return merged


def _of_distinct_schemas(files: ParquetFiles) -> Sequence[str]:
    first: dict[str, str] = {}
    for start in range(0, files.files.num_rows, FOOTERS_AT_ONCE):
        try:
            found = files_of_distinct_schemas(files.paths_and_sizes(start, FOOTERS_AT_ONCE))
        except StoreError as error:
            raise DeltaAnalysisException(
                f"{error.message} All files of a directory that becomes a Delta table have to be Parquet: "
                "move this one away.",
                error_class="DELTA_FAILED_READ_FILE_FOOTER",
                table=files.root,
                file=error.file,
            ) from error
        for text, path in found.items():
            first.setdefault(text, path)
    return list(first.values())


def _plain(schema: StructType) -> StructType:
    """The schema without metadata but comments: other metadata is about the table that a file comes from."""
    fields = []
    for column in schema.fields:
        kept = {key: column.metadata[key] for key in _KEPT_METADATA if key in column.metadata}
        fields.append(StructField(column.name, column.dataType, column.nullable, kept))
    return StructType(fields)


def partition_schema(spark: SparkSession, files: ParquetFiles, given: StructType | None) -> StructType:
    """The partition columns: the given ones, or else those of the folders with the types that Spark infers.

    DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME or DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME
    names a file if a folder has other columns.
    """
    expected = [name for name, _ in files.partitions[0]] if given is None else given.names
    for number, values in enumerate(files.partitions):
        found = [name for name, _ in values]
        if len(found) != len(expected):
            raise DeltaAnalysisException(
                error_class="DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME",
                expected_size=len(expected),
                expected=expected,
                parsed_size=len(found),
                parsed=found,
                path=files.first_path(number),
            )
        for name, other in zip(expected, found, strict=True):
            if name.lower() != other.lower():
                raise DeltaAnalysisException(
                    error_class="DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME",
                    expected=name,
                    parsed=other,
                    path=files.first_path(number),
                )
    if given is not None or not expected:
        return given or StructType()
    return inferred_partition_schema(spark, files.folders)


def merged_with_partitions(data: StructType, partitions: StructType) -> StructType:
    """All columns. A partition column that the files have as well keeps its position there, not its type."""
    columns = {field.name.lower(): field for field in data.fields}
    columns.update({field.name.lower(): field for field in partitions.fields})
    return as_nullable(StructType(list(columns.values())))


def partition_values(
    spark: SparkSession, files: ParquetFiles, schema: StructType
) -> list[dict[str, str | None]]:
    """The values of each partition as the log stores them. DELTA_FAILED_CAST_PARTITION_VALUE for a value that
    its column's type does not have. Folders have timestamps in the session's time zone, the log in UTC."""
    if not schema.fields:
        return [{} for _ in files.partitions]
    texts = [[values[i][1] for values in files.partitions] for i in range(len(schema))]
    raw = pa.table(
        [pa.array(column, pa.string()) for column in texts], names=[str(i) for i in range(len(texts))]
    )
    cast = raw
    if any(not isinstance(field.dataType, StringType | TimestampType) for field in schema.fields):
        cast = cast_columns(spark, raw, schema)
    time_zone = SESSION_TIME_ZONE.of(delta_settings(spark), files.root)
    columns = []
    for i, field in enumerate(schema.fields):
        values = cast[i].combine_chunks()
        if isinstance(field.dataType, TimestampType):
            values = canonical_values(raw[i].combine_chunks(), field.dataType, time_zone)
        failed = pc.index(pc.and_(pc.is_null(values), pc.is_valid(raw[i])), True).as_py()
        if failed >= 0:
            raise DeltaAnalysisException(
                error_class="DELTA_FAILED_CAST_PARTITION_VALUE",
                value=raw[i][failed],
                data_type=field.dataType.simpleString(),
                column=field.name,
                file=files.first_path(failed),
            )
        columns.append(values.to_pylist())
    return [dict(zip(schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
