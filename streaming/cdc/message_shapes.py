"""Which columns Debezium's messages have: by their schema parts, or by those that are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException
from deltaflow.streaming.cdc.connect_types import (
    Numbers,
    Wire,
    as_type,
    row_type,
    wire_of_schema,
    wire_of_type,
)
from deltaflow.streaming.cdc.data_columns import is_computed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

BROKEN = "\0broken"
"""The field for the text of a message that is no JSON."""
_STRINGS = (
    "connector name db schema table snapshot txId sequence gtid file commit_lsn change_lsn scn commit_scn"
)
_LONGS = "ts_ms ts_us lsn server_id pos event_serial_no ssn"
_INTEGERS = "row redo_thread ord"
SOURCE = T.StructType(
    [
        T.StructField(name, data_type)
        for names, data_type in (
            (_STRINGS, T.StringType()),
            (_LONGS, T.LongType()),
            (_INTEGERS, T.IntegerType()),
        )
        for name in names.split()
    ]
)
"""What Debezium's connectors tell of the place of a change, in the database and in its log."""
_PLACE = T.StructType([field for field in SOURCE.fields if field.name in ("db", "schema", "table")])


@dataclass(frozen=True)
class Shape:
    """Messages whose rows have the same columns."""

    columns: Mapping[str, Wire]
    schemas: Sequence[str]
    """The schema parts of these messages; none for messages that have none."""
    others: Sequence[str] | None
    """The schema parts of all other messages of the batch; None if all messages have this shape."""

    @property
    def message(self) -> T.StructType:
        """What Spark's JSON reader takes a message for. Without a schema part it may still have a payload."""
        row = row_type(self.columns) if self.schemas else T.StringType()
        types = {"op": T.StringType(), "ts_ms": T.LongType(), "source": SOURCE, "before": row, "after": row}
        event = T.StructType([T.StructField(name, data_type) for name, data_type in types.items()])
        fields = [T.StructField("schema", T.StringType()), T.StructField("payload", event)]
        if not self.schemas:
            fields += event.fields
        return T.StructType([*fields, T.StructField(BROKEN, T.StringType())])

    def is_other(self, read: Column) -> Column:
        """Whether a message that was read has another shape; that without schemas has what no other has."""
        if self.others is None:
            return F.lit(False)
        part = read["schema"]
        if self.schemas:
            # A message that cannot be read may have lost its schema part on the way: it is an error then.
            return F.coalesce(~part.isin(*self.schemas), read[BROKEN].isNull())
        return F.coalesce(part.isin(*self.others), F.lit(False))


@dataclass(frozen=True)
class Shapes:
    """Finds the shapes of the messages of a batch; the fields are those of `Debezium`."""

    table: str | None
    schema: T.StructType | None
    ticks_per_second: int
    decimals_are_bytes: bool

    def of(self, messages: DataFrame, target: T.StructType | None, keys: Sequence[str]) -> list[Shape]:
        """The shapes of the messages, the only column of the frame; none if there are no messages to read.

        `target` are the columns of the target. Messages without a schema part have them, but for those beside
        `keys` that the table computes itself, if no message has them. One job, and none if `schema` and
        `table` are given.

        Raises:
            DeltaAnalysisException: the columns of the messages are unknown, or they are of several tables.
        """
        if self.schema is not None:
            if self.table is None:
                self._check_one_table([head for head in self._heads(messages, ()) if head.is_event])
            return [self._without_schema_part(self.schema, None)]
        columns = [] if target is None else target.fields
        lower = {key.lower() for key in keys}
        computed = [field.name.lower() for field in columns if is_computed(field)]
        computed = [name for name in computed if name not in lower]
        found = self._heads(messages, computed)
        events = [head for head in found if head.is_event and self._is_wanted(head.place)]
        self._check_one_table(events)
        by_row: dict[str, list[str]] = {}
        for head in events:
            if head.schema is not None:
                by_row.setdefault(_row_after(head.schema), []).append(head.schema)
        all_schemas = {head.schema for head in found if head.is_event and head.schema is not None}
        without = [head for head in events if head.schema is None]
        rest = without or [head for head in found if not head.is_event]
        is_only_one = len(by_row) + bool(rest) == 1 and all_schemas == {
            s for row in by_row.values() for s in row
        }
        others = None if is_only_one else sorted(all_schemas)
        shapes = [Shape(_columns_of_row(row, target), schemas, others) for row, schemas in by_row.items()]
        if without and target is None:
            raise DeltaAnalysisException(error_class="DELTA_CHANGE_COLUMNS_UNKNOWN")
        if rest:
            left_out = set(computed).difference(*[head.told for head in without])
            given = T.StructType([field for field in columns if field.name.lower() not in left_out])
            shapes.append(self._without_schema_part(given, others))
        return shapes

    def _heads(self, messages: DataFrame, computed: Sequence[str]) -> list[Row]:
        """Of all messages the different (schema part, whether it is an event, place, told columns).

        Of the columns that the table computes itself, in lower case, those are told that the row after a
        change has.
        """
        event = T.StructType([T.StructField("op", T.StringType()), T.StructField("source", _PLACE)])
        if computed:
            event = event.add("after", T.StringType())
        whole = [T.StructField("schema", T.StringType()), T.StructField("payload", event), *event.fields]
        read = F.from_json(F.col(messages.columns[0]), T.StructType(whole))
        told = F.array().cast("array<string>")
        if computed:
            names = F.json_object_keys(F.coalesce("read.payload.after", "read.after"))
            names = F.transform(names, F.lower)
            told = F.coalesce(F.array_intersect(F.array(*map(F.lit, computed)), names), told)
        heads = messages.select(read.alias("read")).select(
            F.col("read.schema").alias("schema"),
            F.coalesce("read.payload.op", "read.op").isNotNull().alias("is_event"),
            F.coalesce("read.payload.source", "read.source").alias("place"),
            told.alias("told"),
        )
        return heads.distinct().collect()

    def _is_wanted(self, place: Row | None) -> bool:
        if self.table is None or place is None or place.table is None:
            return True
        return self.table == f"{place.schema or place.db}.{place.table}"

    def _check_one_table(self, events: Sequence[Row]) -> None:
        tables = {f"{e.place.schema or e.place.db}.{e.place.table}" for e in events if e.place is not None}
        if len(tables) > 1:
            raise DeltaAnalysisException(
                error_class="DELTA_CHANGES_OF_SEVERAL_TABLES",
                tables=", ".join(sorted(tables)),
                example=min(tables),
            )

    def _without_schema_part(self, columns: T.StructType, others: Sequence[str] | None) -> Shape:
        numbers = Numbers(self.ticks_per_second, self.decimals_are_bytes)
        wires = {field.name: wire_of_type(field.dataType, numbers, field.name) for field in columns.fields}
        return Shape(wires, (), others)


def _row_after(schema: str) -> str:
    """Of a schema part, as JSON, the columns of the row after a change."""
    fields = {field.get("field"): field for field in json.loads(schema).get("fields", ())}
    return json.dumps(fields.get("after", {}).get("fields", []), sort_keys=True)


def _columns_of_row(fields: str, target: T.StructType | None) -> dict[str, Wire]:
    wanted = {} if target is None else {field.name.lower(): field.dataType for field in target.fields}
    columns = {}
    for field in json.loads(fields):
        name = field["field"]
        wire = wire_of_schema(field, name)
        found = wanted.get(name.lower())
        columns[name] = wire if found is None else as_type(wire, found)
    return columns
