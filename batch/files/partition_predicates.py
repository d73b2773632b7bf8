"""Predicates on partition columns in SQL: which files they choose, and which one given partitions have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from deltaflow.batch.arguments import check_predicate
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import Snapshot
from deltaflow.log.files.partition_values import canonical_values
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.schema import CHAR_VARCHAR, char_length
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.scan.file_index import partitions_of
from deltaflow.spark.sql.sql_text import name_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def files_where(spark: SparkSession, snapshot: Snapshot, where: Sequence[str], time_zone: str) -> pa.Table:
    """The files of the partitions for which all conditions are true.

    Spark evaluates the conditions on the partition values. Timestamps without a zone are read in `time_zone`.
    Raises DELTA_FAILED_RECOGNIZE_PREDICATE for a condition that is no expression,
    DELTA_NON_PARTITION_COLUMN_REFERENCE for one that names other columns, and
    DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES for one with a subquery.
    """
    columns = snapshot.partition_columns
    values, numbers = partitions_of(snapshot.files, snapshot.physical_partition_columns)
    if columns:
        values = pa.table(
            {
                name: canonical_values(
                    values[name].combine_chunks(), snapshot.schema[name].dataType, time_zone
                )
                for name in columns
            }
        )
    else:
        values = pa.table({"partition": [None]})
    frame = spark.createDataFrame(values.append_column("\0", pa.array(range(values.num_rows), pa.int64())))
    frame = frame.select(*[_typed_column(snapshot.schema[name]) for name in columns], "`\0`")
    for condition in where:
        check_predicate(condition, snapshot.path)
        frame = _filtered(frame, condition, snapshot)
    chosen = frame.select("`\0`").toArrow()["\0"]
    return snapshot.files.filter(pc.is_in(numbers.cast(pa.int64()), chosen.combine_chunks()))


def _typed_column(field: StructField) -> Column:
    """A partition column as readers see it: with its type, and CHAR filled up with blanks."""
    # Not by the type's name in SQL: a setting of Spark says which type `timestamp` is.
    value = F.nullif(F.col(quoted(field.name)), F.lit("")).try_cast(field.dataType)
    length = char_length(field)
    return (
        value.alias(field.name)
        if length is None
        else F.rpad(value, length, " ").alias(
            field.name, metadata={CHAR_VARCHAR: field.metadata[CHAR_VARCHAR]}
        )
    )


def _filtered(frame: DataFrame, condition: str, snapshot: Snapshot) -> DataFrame:
    try:
        filtered = frame.where(condition)
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN."):
            raise
        name = (error.getMessageParameters() or {})["objectName"]
        raise DeltaAnalysisException(
            error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
            column_name=".".join(name_parts(frame.sparkSession, name)),
            columns=", ".join(snapshot.partition_columns),
            table=snapshot.path,
        ) from error
    if has_subquery(F.expr(condition)):
        raise DeltaAnalysisException(
            f"The predicate {condition} has a subquery, which a predicate on partitions cannot have. Run the "
            "subquery first, and put its values into the predicate.",
            error_class="DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES",
            table=snapshot.path,
        )
    return filtered


def partition_predicates(snapshot: Snapshot, bins: Sequence[pa.Table]) -> list[str]:
    """The predicate that chooses the partitions of the bins, as Spark shows it; none without partitions."""
    columns = [snapshot.schema[name] for name in snapshot.partition_columns]
    if not columns:
        return []
    partitions = {tuple(files["partition_values"][0].as_py()): None for files in bins}
    return [_joined([_joined(_equalities(columns, dict(values)), "AND") for values in partitions], "OR")]


def _equalities(columns: Sequence[StructField], values: dict[str, str | None]) -> list[str]:
    conditions = []
    for column in columns:
        value = values[physical_name(column)]
        shown = "null" if value is None else value
        conditions.append(f"('{column.name} <=> cast({shown} as {column.dataType.simpleString()}))")
    return conditions


def _joined(conditions: Sequence[str], operator: str) -> str:
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = f"({joined} {operator} {condition})"
    return joined
