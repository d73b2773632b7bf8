"""The defaults that ALTER TABLE gives to columns: constants, which new rows get that lack the column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.ddl.columns import ColumnChange
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog
from deltaflow.log.protocol.schema_merging import can_store
from deltaflow.log.protocol.schema_reading import dotted
from deltaflow.spark.expressions.analysis import analysed
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.expressions.table_expressions import table_expression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_defaults(spark: SparkSession, path: str, changes: Iterable[ColumnChange]) -> None:
    """INVALID_DEFAULT_VALUE for a default that is no constant, or none that its column can store."""
    given = [change for change in changes if change.default]
    if not given:
        return
    schema = DeltaLog.for_table(path).snapshot().schema
    types = {field.name.lower(): field.dataType for field in schema.fields}
    for change in given:
        # `change_columns` raises for columns that are not there.
        if len(change.path) > 1:
            raise _error(change, path, "only columns of the table itself have one, not fields in them", None)
        data_type = types.get(change.path[0].lower())
        if data_type is not None:
            _check(spark, path, change, data_type)


def _check(spark: SparkSession, path: str, change: ColumnChange, data_type: T.DataType) -> None:
    assert change.default is not None
    try:
        value = F.expr(change.default)
        if has_subquery(value):
            raise _error(change, path, "it has a subquery", data_type)
        table_expression(change.default, path)
        [found] = analysed(spark.createDataFrame([], T.StructType()), [value])
    except (AnalysisException, ParseException) as error:
        if isinstance(error, DeltaAnalysisException):
            raise
        raise _error(change, path, f"Spark does not read it as a constant ({error})", data_type) from error
    if found.aggregate is not None or not found.of_row:
        raise _error(change, path, "it is an aggregate", data_type)
    if not (found.type == data_type or can_store(found.type, data_type)):
        raise _error(change, path, f"its type is {found.type.simpleString()}", data_type)


def _error(
    change: ColumnChange, path: str, problem: str, data_type: T.DataType | None
) -> DeltaAnalysisException:
    column = dotted(change.path)
    return DeltaAnalysisException(
        error_class="INVALID_DEFAULT_VALUE",
        value=change.default,
        column_name=column,
        problem=problem,
        data_type="its type" if data_type is None else data_type.simpleString(),
        table=path,
        column=column,
    )
