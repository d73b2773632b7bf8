"""The defaults that ALTER TABLE gives to columns: constants, which new rows get that lack the column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.ddl.columns import ColumnChange
from deltaflow.batch.rows.char_varchar import declared_type, has_no_char
from deltaflow.batch.rows.row_plan import plain_type
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.schema_merging import can_store_or_parse
from deltaflow.log.protocol.schema_reading import dotted
from deltaflow.spark.expressions.analysis import analysed
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.expressions.table_expressions import table_expression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_defaults(spark: SparkSession, snapshot: Snapshot, changes: Iterable[ColumnChange]) -> None:
    """INVALID_DEFAULT_VALUE for a default that is no constant, or none that its column in the snapshot can
    store."""
    given = [change for change in changes if change.default]
    if not given:
        return
    path, fields = snapshot.path, {field.name.lower(): field for field in snapshot.schema.fields}
    for change in given:
        # `change_columns` raises for columns that are not there.
        if len(change.path) > 1:
            raise _error(change, path, "only columns of the table itself have one, not fields in them", None)
        field = fields.get(change.path[0].lower())
        if field is not None:
            _check(spark, path, change, field)


def _check(spark: SparkSession, path: str, change: ColumnChange, field: T.StructField) -> None:
    assert change.default is not None
    data_type = declared_type(field)
    try:
        value = F.expr(change.default)
        if has_subquery(value):
            raise _error(change, path, "it has a subquery", data_type)
        stored = table_expression(change.default, path)
        [found] = analysed(spark.createDataFrame([], T.StructType()), [value])
    except (AnalysisException, ParseException) as error:
        if isinstance(error, DeltaAnalysisException):
            raise
        raise _error(change, path, f"Spark does not read it as a constant ({error})", data_type) from error
    if found.aggregate is not None or not found.of_row:
        raise _error(change, path, "it is an aggregate", data_type)
    if found.nondeterministic is not None:
        raise _error(change, path, f"{found.nondeterministic} is not deterministic", data_type)
    is_same = plain_type(found.type) == plain_type(field.dataType) and has_no_char(data_type)
    if not (is_same or can_store_or_parse(found.type, field.dataType)):
        raise _error(change, path, f"its type is {found.type.simpleString()}", data_type)
    fits = F.lit(True) if is_same else stored.try_cast(field.dataType).isNotNull()
    if isinstance(data_type, T.CharType | T.VarcharType):
        fits = F.length(F.rtrim(stored.cast(field.dataType))) <= data_type.length
    try:
        [(is_stored,)] = spark.sql("SELECT 1").select(stored.isNull() | fits).collect()
    except PySparkException as error:
        raise _error(change, path, f"Spark cannot compute it ({error})", data_type) from error
    if not is_stored:
        raise _error(change, path, "it does not fit", data_type)


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
