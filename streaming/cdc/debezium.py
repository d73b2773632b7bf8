"""Debezium's change events in JSON, as changes.

A record is the value of a message, one JSON object in a string column: a line of a file that a capture has
written, or the value of a message of Kafka. Source: Debezium's documentation of change event values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    DELETE,
    SEQUENCE,
    TRUNCATE,
    UNSET,
    UPSERT,
    Current,
    check_names,
)
from deltaflow.streaming.cdc.connect_types import Wire, row_type, unavailable
from deltaflow.streaming.cdc.data_columns import have_common_type
from deltaflow.streaming.cdc.message_shapes import BROKEN, Shape, Shapes
from deltaflow.streaming.cdc.records import Failure, record_failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TICKS_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_MESSAGE, _KEY, _READ, _ROWS = "\0message", "\0key", "\0read", "\0rows"
_TOLD, _LACKS = "\0told", "\0lacks"
_JSON = {"columnNameOfCorruptRecord": BROKEN}


@dataclass(frozen=True, kw_only=True)
class Debezium:
    """Reads Debezium's JSON messages, with or without the schema part; tombstones are no changes.

    The sequence of a change in PostgreSQL is the position of its transaction and its own position in the
    write-ahead log, which Debezium tells as `source.sequence` and `source.lsn`. For other databases
    `sequence_by` has to be given.

    Raises:
        DeltaIllegalArgumentException: `timestamps` or `decimals` has a value that is not one of those below,
            or `table` names no schema.
    """

    value: str = "value"
    """The column with the message's value, a string or bytes of UTF-8."""
    key: str | None = None
    """The column with the message's key: for deletes whose messages do not have the row before."""
    table: str | None = None
    """`schema.table`, or `database.table` where the database has no schemas: the changes of other tables are
    left out. Without it all messages have to be of one table."""
    schema: T.StructType | str | None = None
    """The columns of messages without a schema part; without it, those of the target."""
    timestamps: str = "micros"
    """What the numbers of timestamps count without a schema part: `millis`, `micros` or `nanos`."""
    decimals: str = "precise"
    """Debezium's `decimal.handling.mode`, without a schema part: `precise`, `string` or `double`."""
    sequence_by: str | None = None
    """An SQL expression over the columns `source` (a struct), `op` and `ts_ms` of the message."""
    unavailable_value: str | None = "__debezium_unavailable_value"
    """Debezium's `unavailable.value.placeholder`: a column with it keeps its value. None: there are none.
    Columns have sequences of their own in both cases, since messages may lack columns that the table has."""

    def __post_init__(self) -> None:
        for name, given, known in (
            ("timestamps", self.timestamps, tuple(_TICKS_PER_SECOND)),
            ("decimals", self.decimals, ("precise", "string", "double")),
        ):
            if given not in known:
                raise DeltaIllegalArgumentException(
                    f"Invalid value '{given}' for '{name}' of Debezium: it must be one of {', '.join(known)}."
                )
        if self.table is not None and "." not in self.table:
            raise DeltaIllegalArgumentException(
                f"Invalid value '{self.table}' for 'table' of Debezium: tables are known with their schema. "
                f"Give schema.{self.table}, or database.{self.table} where there are no schemas."
            )

    def changes(self, batch: DataFrame, current: Current) -> DataFrame | None:
        """The changes of the messages; see `deltaflow.streaming.cdc.changes`.

        Unless `schema` and `table` are given, the messages are looked through once before, for what they tell
        of their columns and of their table.

        Raises:
            DeltaAnalysisException: the columns of the messages are unknown, or they are of several tables.
        """
        key = F.lit(None) if self.key is None else F.col(quoted(self.key))
        value = F.col(quoted(self.value)).cast("string")
        messages = batch.select(value.alias(_MESSAGE), key.cast("string").alias(_KEY))
        # The value of a tombstone is null, which a file has as an empty line or as JSON's null.
        messages = messages.where(~F.trim(_MESSAGE).isin("", "null"))
        columns = T.StructType.fromDDL(self.schema) if isinstance(self.schema, str) else self.schema
        assert columns is None or isinstance(columns, T.StructType)
        shapes = Shapes(
            self.table,
            columns,
            _TICKS_PER_SECOND[self.timestamps],
            self.decimals == "precise",
        ).of(messages.select(F.col(_MESSAGE)), current.schema, current.keys)
        names = list(dict.fromkeys(name for shape in shapes for name in shape.columns))
        check_names(names)
        frames = [self._of_shape(messages, shape, names, current.keys) for shape in shapes]
        if not frames:
            return None
        if len(frames) > 1:
            _check_types(frames)
        return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)

    def _of_shape(
        self, messages: DataFrame, shape: Shape, names: Sequence[str], keys: Sequence[str]
    ) -> DataFrame:
        """The changes of the messages of a shape; `names` are the columns of all messages of the batch."""
        failure = record_failure(F.coalesce(F.get_json_object(_MESSAGE, "$.payload"), F.col(_MESSAGE)))
        read = messages.select(
            _MESSAGE,
            self._key_of_message(shape, keys).alias(_KEY),
            F.from_json(_MESSAGE, shape.message, _JSON).alias(_READ),
        )
        if not shape.schemas:
            read = read.select("*", _rows(shape).alias(_ROWS))
        event = _event(shape, failure)
        # An empty array, and not a filter: that would be pushed down, and each message read twice.
        none = F.array().cast(T.ArrayType(_told_type(shape)))
        told = F.when(shape.is_other(F.col(_READ)), none).when(self._is_of_other_table(event), none)
        told = told.otherwise(self._told(event, shape, keys, failure))
        of_message = [event[name].alias(name) for name in ("op", "ts_ms", "source")]
        lacks = _columns_it_lacks(shape).alias(_LACKS)
        changes = read.select(_MESSAGE, *of_message, lacks, F.explode(told).alias(_TOLD))
        row = F.col(_TOLD)["row"]
        values = [wire.value(row.getField(name), failure).alias(name) for name, wire in shape.columns.items()]
        missing = [name for name in names if not _is_in(name, shape.columns)]
        # Always, since the target may have columns that no message of the batch has.
        unset = self._unset(row, shape, missing, failure).alias(UNSET)
        reserved = [F.col(_TOLD)["change"].alias(CHANGE), self._sequence(failure).alias(SEQUENCE), unset]
        return changes.select(*values, *reserved)

    def _key_of_message(self, shape: Shape, keys: Sequence[str]) -> Column:
        """The columns of the message's key; null if it is not given."""
        columns = {name: wire for name, wire in shape.columns.items() if _is_in(name, keys)}
        if self.key is None or not columns:
            return F.lit(None)
        row = row_type(columns)
        # Two readings, since a column may have the name payload, too.
        inner = F.from_json(_KEY, T.StructType([T.StructField("payload", row)]))["payload"]
        plain = F.from_json(_KEY, row)
        found = [F.coalesce(inner.getField(n), plain.getField(n)).alias(n) for n in columns]
        return F.struct(*found)

    def _is_of_other_table(self, event: Mapping[str, Column]) -> Column:
        """Not true of what is no event, so that it is an error."""
        if self.table is None:
            return F.lit(False)
        source = event["source"]
        place = F.concat_ws(".", F.coalesce(source["schema"], source["db"]), source["table"])
        return event["op"].isNotNull() & source["table"].isNotNull() & (place != self.table)

    def _told(
        self, event: Mapping[str, Column], shape: Shape, keys: Sequence[str], failure: Failure
    ) -> Column:
        """What a message tells: an array of (change, row)."""
        op, before, after = event["op"], event["before"], event["after"]
        row = row_type(shape.columns)
        is_moved, has_key, deleted = F.lit(False), F.lit(True), []
        for name, wire in shape.columns.items():
            value = F.lit(None).cast(wire.type)
            if _is_in(name, keys):
                value = before.getField(name)
                is_moved = is_moved | _differ(value, after.getField(name), wire, failure)
                if self.key is not None:
                    value = F.coalesce(value, F.col(_KEY).getField(name))
                has_key = has_key & value.isNotNull()
            deleted.append(value.alias(name))

        def of(change: str, row: Column, is_new: Column | None = None) -> Column:
            new = F.lit(False) if is_new is None else is_new
            return F.struct(F.lit(change).alias("change"), row.alias("row"), new.alias("is_new"))

        delete = of(DELETE, F.struct(*deleted).cast(row))
        told = F.when(event[BROKEN].isNotNull() | op.isNull(), failure("it is no JSON of a change event"))
        told = told.when(op.isin("c", "r", "u") & after.isNull(), failure("it has no row after the change"))
        told = told.when((op == "d") & ~has_key, failure(_NO_KEY))
        told = told.when((op == "u") & is_moved, F.array(delete, of(UPSERT, after, F.lit(True))))
        told = told.when(op.isin("c", "r", "u"), F.array(of(UPSERT, after, op != "u")))
        told = told.when(op == "d", F.array(delete))
        told = told.when(op == "t", F.array(of(TRUNCATE, F.lit(None).cast(row))))
        # A message that the application has put into the log.
        told = told.when(op == "m", F.array().cast(T.ArrayType(_told_type(shape))))
        return told.otherwise(failure("its op is none of c, r, u, d, t and m"))

    def _sequence(self, failure: Failure) -> Column:
        if self.sequence_by is not None:
            return F.expr(self.sequence_by)
        lsn = F.col("source.lsn")
        positions = F.from_json(F.col("source.sequence"), T.ArrayType(T.StringType()))
        commit_lsn = F.get(positions, F.lit(0)).try_cast("bigint")
        # Changes have an order in the log only within a transaction; transactions have that of their commits.
        position = F.struct(F.coalesce(commit_lsn, lsn).alias("commit_lsn"), lsn.alias("lsn"))
        is_known = (F.col("source.connector") == "postgresql") & lsn.isNotNull()
        return F.when(is_known, position).otherwise(failure(_NO_SEQUENCE))

    def _unset(self, row: Column, shape: Shape, missing: Sequence[str], failure: Failure) -> Column:
        """The columns that an upsert leaves as they are. Their values in the frame mean nothing."""
        placeholder = self.unavailable_value
        found = {
            name: unavailable(row.getField(name), wire, placeholder)
            for name, wire in shape.columns.items()
            if placeholder is not None
        }
        unset = [F.when(is_unset, F.lit(name)) for name, is_unset in found.items() if is_unset is not None]
        always = F.concat(F.array(*map(F.lit, missing)).cast("array<string>"), F.col(_LACKS))
        if not unset:
            return always
        names = F.array_compact(F.array(*unset))
        # A row that is new has no value to keep: it had another key, of which the message says nothing.
        is_unknown = F.col(_TOLD)["is_new"] & (F.size(names) > 0)
        return F.when(is_unknown, failure(_UNKNOWN_VALUE)).otherwise(F.concat(names, always))


_UNKNOWN_COLUMN = (
    "it has a column that is not known: give 'schema' of Debezium with all columns, or let the messages have "
    "a schema part"
)
_WRONG_VALUE = (
    "a value is none of its column's type: give 'schema' of Debezium with the types of the messages, or let "
    "them have a schema part"
)
_UNKNOWN_VALUE = (
    "a value of the new row is missing: its key was changed, and the database does not tell large values "
    "that stay as they are. Give the source table REPLICA IDENTITY FULL"
)
_NO_KEY = (
    "the key of the deleted row is missing: let the message have the row before, or give 'key' of Debezium"
)
_NO_SEQUENCE = "it does not say its place in the log of PostgreSQL: give 'sequence_by' of Debezium"


def _check_types(frames: Sequence[DataFrame]) -> None:
    """DELTA_CHANGE_COLUMN_OF_TWO_TYPES if a union of the frames would turn values into others."""
    types: dict[str, T.DataType] = {}
    for field in (field for frame in frames for field in frame.schema.fields):
        other = types.setdefault(field.name.lower(), field.dataType)
        if not have_common_type(other, field.dataType):
            raise DeltaAnalysisException(
                error_class="DELTA_CHANGE_COLUMN_OF_TWO_TYPES",
                column_name=field.name,
                types=f"{other.simpleString()} and {field.dataType.simpleString()}",
            )


def _is_in(name: str, names: Iterable[str]) -> bool:
    return name.lower() in {other.lower() for other in names}


def _differ(a: Column, b: Column, wire: Wire, failure: Failure) -> Column:
    """Whether two values that were read differ as values of the column: 1.0 and 1.00 are one number. Those
    whose type JSON says can be compared as texts alone."""
    a, b = wire.value(a, failure), wire.value(b, failure)
    if wire.meaning is None and isinstance(wire.type, T.VariantType):
        a, b = a.cast("string"), b.cast("string")
    return a != b


def _told_type(shape: Shape) -> T.StructType:
    row = row_type(shape.columns)
    return T.StructType(
        [
            T.StructField("change", T.StringType()),
            T.StructField("row", row),
            T.StructField("is_new", T.BooleanType()),
        ]
    )


def _event(shape: Shape, failure: Failure) -> dict[str, Column]:
    """The fields of a message, which may be in its payload."""
    read = F.col(_READ)
    event = {BROKEN: read[BROKEN]}
    for name in ("op", "ts_ms", "source", "before", "after"):
        inner = read["payload"][name]
        event[name] = inner if shape.schemas else F.coalesce(inner, read[name])
    if not shape.schemas:
        rows = F.col(_ROWS)
        for name in ("before", "after"):
            row = F.coalesce(rows["payload"][name], rows[name])
            unknown = F.size(F.array_except(F.json_object_keys(event[name]), _names(shape))) > 0
            wrong = F.when(unknown, failure(_UNKNOWN_COLUMN))
            wrong = wrong.when(rows[BROKEN].isNotNull(), failure(_WRONG_VALUE))
            values = F.struct(*[row.getField(column).alias(column) for column in shape.columns])
            event[name] = wrong.when(row.isNotNull(), values)
    return event


def _rows(shape: Shape) -> Column:
    """A message without a schema part, read a second time: its rows with the types of their columns.

    In the texts of the first reading, Spark has put doubles for decimals.
    """
    row = row_type(shape.columns)
    event = T.StructType([T.StructField(name, row) for name in ("before", "after")])
    fields = [T.StructField("payload", event), *event.fields, T.StructField(BROKEN, T.StringType())]
    return F.from_json(_MESSAGE, T.StructType(fields), _JSON)


def _columns_it_lacks(shape: Shape) -> Column:
    """The columns of the target that the row after a change does not have; for messages without a schema
    part, since all of one with it have the columns of their shape."""
    none = F.array().cast("array<string>")
    if shape.schemas:
        return none
    return F.coalesce(F.array_except(_names(shape), F.json_object_keys(_text_of_row("after"))), none)


def _text_of_row(name: str) -> Column:
    read = F.col(_READ)
    return F.coalesce(read["payload"][name], read[name])


def _names(shape: Shape) -> Column:
    return F.array(*map(F.lit, shape.columns)).cast("array<string>")
