"""Writes the rows of a stream that do not fit its table to another table, the quarantine.

They fail a cast, NOT NULL, a CHECK constraint or the length of a CHAR or VARCHAR column.

In each batch the quarantine commits first, then the table, both with `txn(query id, batch id)`. If the
process ends between the two, the batch runs again, and replaces the rows that it has quarantined before,
because they may fit by now. So the two tables together hold every row once. A batch without such rows commits
nothing to the quarantine.
"""

from __future__ import annotations

from pyspark.sql.types import CharType, LongType, StringType, StructField, StructType, VarcharType

from deltaflow.batch.rows.char_varchar import declared_type
from deltaflow.batch.rows.schema_on_write import DeclaredTable, SchemaRules
from deltaflow.batch.write.overwrites import MatchingRows, OverwriteScope
from deltaflow.batch.write.transactional_write import WriteOperation, begin_write
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    SchemaMismatchError,
)
from deltaflow.log import DeltaLog, SetTransaction
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MODE
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION, names_with_invalid_characters
from deltaflow.log.protocol.schema_merging import obstacles_to_writing
from deltaflow.log.protocol.type_widening import keeps_values
from deltaflow.spark.write.file_write import Quarantine, RowPlan
from deltaflow.store import given_path
from deltaflow.streaming.messages import BatchRequest


def begin_quarantine(
    request: BatchRequest,
    path: str,
    frame: StructType,
    rows: RowPlan,
    table_schema: StructType,
    operation: WriteOperation,
) -> Quarantine:
    """Begins the quarantine's write of a batch; `rows` is the row plan of the stream's own table, which has
    `table_schema`."""
    query_id, batch_id = request.query_id, request.batch_id
    log = DeltaLog.for_table(path)
    transaction = log.start_transaction(request.settings)
    done = transaction.record_read_of_txn(query_id)  # a rival with the same batch is a conflict
    scope = OverwriteScope()
    if done is not None and done >= batch_id:
        earlier = f"batch_id = {batch_id} AND query_id = '{query_id}'"
        scope = MatchingRows(request.handle, earlier, checks_rows=False, is_alone=True)
    schema = StructType(
        [
            StructField("reason", StringType()),
            StructField("batch_id", LongType()),
            StructField("query_id", StringType()),
            StructField("row", frame),
        ]
    )
    try:
        write = begin_write(
            schema,
            [],
            {},
            rules=SchemaRules(merge_schema=True, fits=keeps_values),
            operation=operation,
            transaction=transaction,
            overwrite_scope=scope,
            declared=DeclaredTable(properties=_mapping_of_names(frame)),
            application=SetTransaction(
                app_id=query_id, version=batch_id, last_updated=transaction.log.clock()
            ),
            only_with_files=True,
        )
    except SchemaMismatchError as mismatch:
        assert transaction.snapshot is not None
        differences = obstacles_to_writing(
            transaction.snapshot.schema, schema, fits=keeps_values, may_add=True
        )
        raise DeltaAnalysisException(
            error_class="DELTA_QUARANTINE_TYPES",
            differences="; ".join(differences),
            quarantine=given_path(log.path),
        ) from mismatch
    return Quarantine(write, batch_id, query_id, _cast_errors(rows), _value_errors(rows, table_schema))


def _mapping_of_names(frame: StructType) -> dict[str, str]:
    """The properties of a new quarantine for names that only mapped tables may have, as the stream's is."""
    return {COLUMN_MAPPING_MODE.name: "name"} if names_with_invalid_characters(frame) else {}


def _cast_errors(rows: RowPlan) -> list[str]:
    """For each column the error of a value that cannot be cast to its type, up to the value."""
    errors = []
    for target in () if rows.cast_schema is None else rows.cast_schema.fields:
        error = DeltaInvariantViolationException(
            error_class="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            source_type=rows.frame_schema[target.name].dataType.simpleString().upper(),
            target_type=target.dataType.simpleString().upper(),
            column_name=target.name,
        )
        errors.append(f"{error} Value: ")
    return errors


def _value_errors(rows: RowPlan, table_schema: StructType) -> list[str]:
    """For each column the error of a value that it cannot have: one that is too long for its CHAR or VARCHAR,
    up to the value; of a column that is computed, that it cannot be."""
    return [_value_error(table_schema[target.name], rows) for target in rows.table_schema.fields]


def _value_error(target: StructField, rows: RowPlan) -> str:
    name = target.name
    if name in rows.identities:
        error = DeltaInvariantViolationException(
            error_class="DELTA_IDENTITY_COLUMN_OVERFLOW", column_name=name
        )
        return str(error)
    if name in rows.generated:
        sql, declared = target.metadata[GENERATION_EXPRESSION], declared_type(target)
        or_length = ", or its value is too long" if isinstance(declared, CharType | VarcharType) else ""
        message = f"Column {name} cannot be computed: its expression {sql} fails for the row{or_length}."
        return str(DeltaInvariantViolationException(message))
    error = DeltaInvariantViolationException(
        f"The value exceeds the char/varchar length limitation of column {name}.",
        error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
    )
    return f"{error} Value: "
