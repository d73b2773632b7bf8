"""ALTER TABLE … ADD and DROP CONSTRAINT: CHECK constraints, one commit that changes a table's metadata.

A constraint is the property delta.constraints.<name> (PROTOCOL.md, "CHECK Constraints"). Writes check their
rows by it (deltaflow.batch.rows.row_checks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltaflow.batch.ddl.changes import begin_change, commit_change
from deltaflow.batch.rewrite.touched_files import TouchedFiles
from deltaflow.batch.rows.char_varchar import check_finds_char
from deltaflow.batch.rows.computed_columns import as_read
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog, Operation, OptimisticTransaction, Snapshot
from deltaflow.log.protocol.properties import CONSTRAINTS_ASSUME_DROP_IF_EXISTS, CONSTRAINTS_PREFIX
from deltaflow.spark.expressions.analysis import analysed
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.expressions.table_expressions import table_expression_over
from deltaflow.spark.sql.statements import NamedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESERVED = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"
"""delta-spark's name for the check of the lengths of CHAR and VARCHAR."""


def add_constraint(
    spark: SparkSession, table: NamedTable, name: str, expression: str, settings: Mapping[str, str]
) -> int:
    """Adds a CHECK constraint if all rows satisfy it, which one job checks. Returns the commit's version.

    `settings` are the session's. Raises if the name or the expression cannot be a constraint's, or if a row
    breaks the constraint. Rows that another writer adds meanwhile are a conflict.
    """
    assert table.path is not None
    if name == _RESERVED:
        raise DeltaAnalysisException(error_class="DELTA_INVALID_CONSTRAINT_NAME", name=name, table=table.path)
    transaction, metadata = begin_change(DeltaLog.for_table(table.path), settings)
    transaction.record_read_of_whole_table()
    snapshot = transaction.snapshot
    assert snapshot is not None
    key = CONSTRAINTS_PREFIX + name.lower()
    if key in metadata.configuration:
        raise DeltaAnalysisException(
            error_class="DELTA_CONSTRAINT_ALREADY_EXISTS",
            constraint_name=name,
            old_constraint=metadata.configuration[key],
            table=table.path,
        )
    _check_expression(spark, snapshot, name, expression)
    _check_rows(spark, table, transaction, expression)
    return commit_change(
        transaction,
        msgspec.structs.replace(metadata, configuration={**metadata.configuration, key: expression}),
        Operation("ADD CONSTRAINT", {"name": name, "expr": expression}),
    )


def drop_constraint(table: NamedTable, name: str, if_exists: bool, settings: Mapping[str, str]) -> int:
    """Drops a CHECK constraint. Returns the commit's version.

    DELTA_CONSTRAINT_DOES_NOT_EXIST if there is none of this name, unless `if_exists` or the session's setting
    spark.databricks.delta.constraints.assumesDropIfExists.enabled is true.
    """
    assert table.path is not None
    transaction, metadata = begin_change(DeltaLog.for_table(table.path), settings)
    key = CONSTRAINTS_PREFIX + name.lower()
    expression = metadata.configuration.get(key)
    if_exists = if_exists or CONSTRAINTS_ASSUME_DROP_IF_EXISTS.of(settings, table.path)
    if expression is None and not if_exists:
        raise DeltaAnalysisException(
            error_class="DELTA_CONSTRAINT_DOES_NOT_EXIST",
            constraint_name=name,
            table_name=table.name,
            config=CONSTRAINTS_ASSUME_DROP_IF_EXISTS.name,
            conf_value="true",
            table=table.path,
        )
    existed = {"existed": "false"} if expression is None else {"expr": expression, "existed": "true"}
    kept = {other: value for other, value in metadata.configuration.items() if other != key}
    return commit_change(
        transaction,
        msgspec.structs.replace(metadata, configuration=kept),
        Operation("DROP CONSTRAINT", {"name": name, **existed}),
    )


def _check_expression(spark: SparkSession, snapshot: Snapshot, name: str, expression: str) -> None:
    """Raises if the expression is no condition, or cannot be checked for each row by itself."""
    rows, condition = spark.createDataFrame([], snapshot.schema), F.expr(expression)
    if has_subquery(condition):
        raise _refused("DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression, snapshot)
    try:
        rows.where(condition)
        [found] = analysed(rows, [condition])
    except AnalysisException as error:
        parameters = error.getMessageParameters() or {}
        error_condition = error.getCondition() or ""
        if error_condition == "INVALID_WHERE_CONDITION":
            aggregates = parameters["expressionList"]
            raise _refused("DELTA_AGGREGATE_IN_CHECK_CONSTRAINT", aggregates, snapshot) from error
        if error_condition == "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN":
            raise DeltaAnalysisException(
                error_class="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
                name=name,
                expr=expression,
                table=snapshot.path,
            ) from error
        if error_condition.startswith("UNRESOLVED_COLUMN") or error_condition == "FIELD_NOT_FOUND":
            raise DeltaAnalysisException(
                error_class="DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES",
                column_name=parameters.get("objectName") or parameters.get("fieldName"),
                table=snapshot.path,
            ) from error
        raise
    if found.function is not None:
        raise _refused("DELTA_UDF_IN_CHECK_CONSTRAINT", found.function, snapshot)
    if found.nondeterministic is not None:
        error_class = "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT"
        raise _refused(error_class, found.nondeterministic, snapshot)


def _refused(error_class: str, expression: str, snapshot: Snapshot) -> DeltaAnalysisException:
    return DeltaAnalysisException(error_class=error_class, expr=expression, table=snapshot.path)


def _check_rows(
    spark: SparkSession,
    table: NamedTable,
    transaction: OptimisticTransaction,
    expression: str,
) -> None:
    """Raises if rows break the constraint, which null does, too; 1 job."""
    assert transaction.snapshot is not None
    check_finds_char(spark, transaction.snapshot)
    with TouchedFiles(spark, transaction, "ADD CONSTRAINT") as files:
        rows = as_read(files.rows(), files.schema)
        condition = table_expression_over(rows, expression, transaction.path)
        broken = rows.where(~F.coalesce(condition, F.lit(False))).count()
    if broken:
        raise DeltaAnalysisException(
            error_class="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            num_rows=broken,
            table_name=table.name,
            check_constraint=expression,
            table=transaction.path,
        )
