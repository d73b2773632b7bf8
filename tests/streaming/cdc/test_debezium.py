"""Debezium's messages as changes: operations, types, placeholders, new columns, and what is no message."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import uuid
from decimal import Decimal

import pytest
from pyspark.errors import StreamingQueryException

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.streaming.cdc import Debezium, apply_changes
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import Current
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.side_tables import Write
from deltaflow.streaming.cdc.target import Target
from tests.streaming.cdc.messages import array, decimal, event, field, unscaled, with_schema
from tests.tables import load, tuples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

PLACEHOLDER = "__debezium_unavailable_value"
ID, NAME = field("id", "int32"), field("name", "string")
NOTHING = Current(None, lambda: None, ("id",))


def read(spark, messages, envelope=None, current=NOTHING):
    """The frame of changes of messages."""
    frame = spark.createDataFrame([(message,) for message in messages], "value STRING")
    return (envelope or Debezium()).changes(frame, current)


def changes(spark, messages, envelope=None, current=NOTHING):
    """(change, commit_lsn, lsn, id, name) of each change."""
    frame = read(spark, messages, envelope, current)
    rows = frame.selectExpr("_change", "_sequence.commit_lsn", "_sequence.lsn", "id", "name")
    return [tuple(row) for row in rows.collect()]


def applier(table, envelope=None, scd_type=1):
    return Applier(
        target=Target(table, None),
        envelope=envelope or Debezium(),
        data_columns=DataColumns(["id"]),
        scd_type=scd_type,
        ignore_null_updates=False,
        horizon_ms=86_400_000,
    )


def apply(spark, applier, batch_id, messages):
    frame = spark.createDataFrame([(message,) for message in messages], "value STRING")
    applier.apply(frame, Write("query", batch_id))


# ------------------------------------------------------------------------------------------------ operations


@pytest.mark.parametrize("schema_part", [True, False])
def test_what_each_operation_is(spark, schema_part):
    events = [
        event("r", {"id": 1, "name": "a"}, lsn=7),
        event("c", {"id": 2, "name": "b"}, lsn=8, commit_lsn=20),
        event("u", {"id": 2, "name": "c"}, lsn=9, commit_lsn=20),
        event("u", {"id": 4, "name": "d"}, {"id": 3, "name": "d"}, lsn=10, commit_lsn=20),
        event("u", {"id": 5, "name": "e"}, {"id": 5, "name": "x"}, lsn=11, commit_lsn=20),
        event("d", None, {"id": 2, "name": None}, lsn=12, commit_lsn=20),
        event("t", lsn=13, commit_lsn=30),
        event("m", lsn=14, commit_lsn=40),
    ]
    envelope = Debezium() if schema_part else Debezium(schema="id INT, name STRING")
    messages = [with_schema([ID, NAME], e) if schema_part else json.dumps(e) for e in events]
    found = changes(spark, [*messages, None, "", " null "], envelope)
    assert found == [
        ("upsert", 7, 7, 1, "a"),
        ("upsert", 20, 8, 2, "b"),
        ("upsert", 20, 9, 2, "c"),
        ("delete", 20, 10, 3, None),
        ("upsert", 20, 10, 4, "d"),
        ("upsert", 20, 11, 5, "e"),
        ("delete", 20, 12, 2, None),
        ("truncate", 30, 13, None, None),
    ]


@pytest.mark.long
def test_later_transactions_are_newer_though_their_changes_are_older_in_the_log(spark, table):
    """Two transactions at once: the first to commit deletes the row, the other has inserted it anew."""
    messages = [
        with_schema([ID, NAME], e)
        for e in (
            event("c", {"id": 1, "name": "a"}, lsn=10, commit_lsn=5),
            event("d", None, {"id": 1}, lsn=40, commit_lsn=20),
            event("c", {"id": 1, "name": "b"}, lsn=30, commit_lsn=50),
        )
    ]
    apply(spark, applier(table), 0, messages[::-1])
    assert tuples(load(spark, table).select("id", "name")) == [(1, "b")]


@pytest.mark.long
def test_other_databases_need_a_sequence(spark):
    mysql = {
        "connector": "mysql",
        "lsn": None,
        "sequence": None,
        "schema": None,
        "file": "bin.000002",
        "pos": 4,
    }
    messages = [json.dumps(event("c", {"id": 1, "name": "a"}, **mysql, row=1))]
    given = Debezium(schema="id INT, name STRING", sequence_by="struct(source.file, source.pos, source.row)")
    assert [tuple(row._sequence) for row in read(spark, messages, given).collect()] == [("bin.000002", 4, 1)]
    with pytest.raises(Exception, match="give 'sequence_by' of Debezium"):
        read(spark, messages, Debezium(schema="id INT, name STRING")).collect()


def test_a_delete_without_the_row_before_takes_the_key_of_the_message(spark):
    rows = [
        (json.dumps(event("d")), json.dumps({"schema": {}, "payload": {"id": 1}})),
        (json.dumps(event("d")), json.dumps({"id": 2})),
    ]
    frame = spark.createDataFrame(rows, "value STRING, key STRING").selectExpr(
        "value", "CAST(key AS BINARY) key"
    )
    found = Debezium(key="key", schema="id INT, name STRING").changes(frame, NOTHING)
    assert tuples(found.select("_change", "id")) == [("delete", 1), ("delete", 2)]


def test_a_key_column_with_the_name_payload(spark):
    """The key of a message without a schema part looks like one with it."""
    keys = [{"payload": "5"}, {"schema": {}, "payload": {"payload": "6"}}]
    rows = [(json.dumps(event("d")), json.dumps(key)) for key in keys]
    frame = spark.createDataFrame(rows, "value STRING, key STRING")
    envelope = Debezium(key="key", schema="payload STRING, name STRING", table="public.people")
    found = envelope.changes(frame, Current(None, lambda: None, ("payload",)))
    assert [row.payload for row in found.collect()] == ["5", "6"]


def test_messages_of_other_tables(spark):
    messages = [
        with_schema([ID, NAME], event("c", {"id": 1, "name": "a"})),
        with_schema([ID, field("price", "int32")], event("c", {"id": 1, "price": 2}, table="goods")),
    ]
    assert changes(spark, messages, Debezium(table="public.people")) == [("upsert", 100, 100, 1, "a")]
    assert read(spark, messages, Debezium(table="public.others")) is None
    with pytest.raises(DeltaAnalysisException, match=r"public\.goods, public\.people.*table='public\.goods'"):
        read(spark, messages)
    without = [json.dumps(event("c", {"id": 1, "name": "a"}, table=name)) for name in ("people", "goods")]
    with pytest.raises(DeltaAnalysisException, match=r"public\.goods, public\.people"):
        read(spark, without, Debezium(schema="id INT, name STRING"))


# ----------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        ("text", "1.0", "1.00"),
        ("scale and number", {"scale": 1, "value": "Cg=="}, {"scale": 2, "value": "ZA=="}),
        ("nanoseconds", 1_000, 1_100),
    ],
)
@pytest.mark.sampled(3)
def test_a_key_that_is_written_otherwise(spark, table, form, old, new):
    """It has not moved: the change is no delete and a row with the key that it deletes."""
    if form != "nanoseconds":
        spark.sql(f"CREATE TABLE delta.`{table}` (id DECIMAL(10, 2), name STRING) USING delta")
    of_table = applier(table, Debezium(decimals="string") if form == "text" else None)
    first = event("c", {"id": old, "name": "a"}, lsn=1)
    second = event("u", {"id": new, "name": "b"}, {"id": old, "name": None}, lsn=2)
    for number, told in enumerate((first, second)):
        moment = field("id", "int64", "io.debezium.time.NanoTimestamp")
        message = with_schema([moment, NAME], told) if form == "nanoseconds" else json.dumps(told)
        apply(spark, of_table, number, [message])
    assert tuples(load(spark, table).select("name")) == [("b",)]


@pytest.mark.long
def test_numbers_without_a_schema_part_keep_their_digits(spark):
    """As decimal.format=NUMERIC has them, and as decimal.handling.mode=string has them."""
    envelope = Debezium(schema="x DECIMAL(38, 10), n TINYINT", decimals="string")
    numbers = ["12345678901234567890.1234567891", '"-12345678901234567890.1234567891"', "3", "null"]
    told = json.dumps(event("c", {"x": "X", "n": 127}, lsn=1))
    found = read(spark, [told.replace('"X"', number) for number in numbers], envelope).select("x", "n")
    exact, negative = Decimal("12345678901234567890.1234567891"), Decimal("-12345678901234567890.1234567891")
    assert found.collect() == [(exact, 127), (negative, 127), (Decimal(3), 127), (None, 127)]
    for wrong in ({"n": 128}, {"n": -129}, {"x": "1e28"}, {"x": "abc"}):
        told = json.dumps(event("c", {"x": "1", "n": 1} | wrong, lsn=1))
        with pytest.raises(Exception, match="DELTA_CHANGE_RECORD_UNREADABLE"):
            read(spark, [told], envelope).collect()


def test_types_by_the_schema_part(spark, settings):
    """Values at the ends of what each type can hold."""
    debezium, connect = "io.debezium.time", "org.apache.kafka.connect.data"
    instant = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
    micros = int(instant.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000 + 123456
    variable = field("v", "struct", "io.debezium.data.VariableScaleDecimal") | {
        "fields": [field("scale", "int32"), field("value", "bytes")]
    }
    point = field("point", "struct", "io.debezium.data.geometry.Point") | {
        "fields": [field("x", "double"), field("wkb", "bytes")]
    }
    small, large = "9" * 18, "9" * 38
    cases = [
        (field("byte", "int8"), -128, "tinyint", -128),
        (field("short", "int16"), 32767, "smallint", 32767),
        (field("long", "int64"), -(2**63), "bigint", -(2**63)),
        (field("real", "float"), "-Infinity", "float", float("-inf")),
        (field("double", "double"), 0.1, "double", 0.1),
        (field("bool", "boolean"), True, "boolean", True),
        (field("uuid", "string", "io.debezium.data.Uuid"), "3", "string", "3"),
        (field("bytes", "bytes"), base64.b64encode(b"\0\xff").decode(), "binary", bytearray(b"\0\xff")),
        (field("empty", "bytes"), "", "binary", bytearray()),
        (field("bits", "bytes", "io.debezium.data.Bits", length=9), "BQE=", "binary", bytearray(b"\5\1")),
        (decimal("d1", 12, 3), unscaled("-0.001"), "decimal(12,3)", Decimal("-0.001")),
        (decimal("d2", 18, 0), unscaled(f"-{small}"), "decimal(18,0)", Decimal(f"-{small}")),
        (
            decimal("d3", 19, 0),
            unscaled("9223372036854775808"),
            "decimal(19,0)",
            Decimal("9223372036854775808"),
        ),
        (decimal("d4", 38, 0), unscaled(large), "decimal(38,0)", Decimal(large)),
        (decimal("d5", 38, 0), unscaled(f"-{large}"), "decimal(38,0)", Decimal(f"-{large}")),
        (decimal("d6", 38, 37), unscaled(f"-{large}"), "decimal(38,37)", Decimal(f"-9.{large[1:]}")),
        (decimal("d7", 20, 2), "AA==", "decimal(20,2)", Decimal("0.00")),
        (variable | {"field": "v1"}, {"scale": 4, "value": unscaled("-12")}, "string", "-0.0012"),
        (variable | {"field": "v2"}, {"scale": 0, "value": unscaled(large)}, "string", large),
        (variable | {"field": "v3"}, {"scale": -2, "value": unscaled("12")}, "string", "1200"),
        (field("date1", "int32", f"{debezium}.Date"), -719162, "date", datetime.date(1, 1, 1)),
        (field("date2", "int32", f"{connect}.Date"), 19782, "date", datetime.date(2024, 2, 29)),
        (field("date3", "string", f"{debezium}.IsoDate"), "2024-02-29Z", "date", datetime.date(2024, 2, 29)),
        (field("ts1", "int64", f"{debezium}.MicroTimestamp"), micros, "timestamp_ntz", instant),
        (
            field("ts5", "int64", f"{debezium}.MicroTimestamp"),
            253_402_300_799_999_999,
            "timestamp_ntz",
            datetime.datetime.max,
        ),
        (
            field("ts2", "int64", f"{debezium}.Timestamp"),
            -1,
            "timestamp_ntz",
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        ),
        (
            field("ts3", "int64", f"{debezium}.NanoTimestamp"),
            -1,
            "timestamp_ntz",
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        ),
        (
            field("ts4", "string", f"{debezium}.IsoTimestamp"),
            "2024-02-29T12:30:15.123456Z",
            "timestamp_ntz",
            instant,
        ),
        (
            field("zoned", "string", f"{debezium}.ZonedTimestamp"),
            "2024-02-29T12:30:15.123456Z",
            "timestamp",
            None,
        ),
        (field("time1", "int32", f"{debezium}.Time"), 1, "string", "00:00:00.001000"),
        (field("time2", "int64", f"{debezium}.MicroTime"), 86_400_000_000, "string", "24:00:00.000000"),
        (field("time3", "int64", f"{debezium}.NanoTime"), 45_296_000_007_000, "string", "12:34:56.000007"),
        (field("time4", "int64", f"{debezium}.MicroTime"), 3_020_399_000_000, "string", "838:59:59.000000"),
        (field("time5", "int64", f"{debezium}.MicroTime"), -5, "string", "-00:00:00.000005"),
        (field("interval", "string", f"{debezium}.Interval"), "P1Y", "string", "P1Y"),
        (field("micros", "int64", f"{debezium}.MicroDuration"), 5, "bigint", 5),
        (array("ints", field("", "int32")), [1, None], "array<int>", [1, None]),
        (array("dates", field("", "int32", f"{debezium}.Date")), [0, None], "array<date>", None),
        (
            array("decimals", decimal("", 5, 2)),
            [unscaled("-1.25")],
            "array<decimal(5,2)>",
            [Decimal("-1.25")],
        ),
        (
            {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
            {"a": None},
            "map<string,string>",
            {"a": None},
        ),
        (point, {"x": 1.5, "wkb": "AA=="}, "struct<x:double,wkb:binary>", None),
    ]
    columns = [ID, *[case[0] for case in cases]]
    full = {"id": 1} | {case[0]["field"]: case[1] for case in cases}
    empty = {"id": 2} | {case[0]["field"]: None for case in cases}
    messages = [with_schema(columns, event("c", row)) for row in (full, empty)]
    with settings(
        {
            "spark.sql.session.timeZone": "America/New_York",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.legacy.interval.enabled": "true",
            "spark.sql.legacy.timeParserPolicy": "LEGACY",
        }
    ):
        frame = read(spark, messages)
        types = dict(frame.dtypes)
        assert {case[0]["field"]: types[case[0]["field"]] for case in cases} == {
            case[0]["field"]: case[2] for case in cases
        }
        rows = frame.selectExpr("*", "unix_micros(zoned) AS zoned_micros").drop("zoned").collect()
    first = rows[0].asDict()
    assert first.pop("zoned_micros") == micros
    assert first["dates"] == [datetime.date(1970, 1, 1), None]
    assert (first["point"].x, first["point"].wkb) == (1.5, bytearray(b"\0"))
    expected = {case[0]["field"]: case[3] for case in cases if case[3] is not None}
    assert {name: first[name] for name in expected} == expected
    assert not any(rows[1].asDict()[case[0]["field"]] for case in cases if case[0]["field"] != "zoned")


@pytest.mark.long
def test_types_without_a_schema_part_are_those_of_the_target(spark):
    messages = [
        json.dumps(
            event(
                "c",
                {
                    "id": 1,
                    "day": 0,
                    "at": 1_000,
                    "amount": unscaled("-1.50"),
                    "free": {"scale": 1, "value": "Aw=="},
                },
            )
        ),
        json.dumps({"payload": event("c", {"id": 2, "day": "1970-01-02", "at": "1970-01-01T00:00:01Z"})}),
        json.dumps(event("c", {"id": 3})),
    ]
    schema = "id INT, day DATE, at TIMESTAMP_NTZ, amount DECIMAL(5,2), free DECIMAL(5,2)"
    target = spark.createDataFrame([], schema)
    found = read(
        spark, messages, Debezium(timestamps="millis"), Current(target.schema, lambda: target, ("id",))
    )
    second = datetime.datetime(1970, 1, 1, 0, 0, 1)
    assert [tuple(row) for row in found.select("id", "day", "at", "amount", "free").collect()] == [
        (1, datetime.date(1970, 1, 1), second, Decimal("-1.50"), Decimal("0.30")),
        (2, datetime.date(1970, 1, 2), second, None, None),
        (3, None, None, None, None),
    ]
    texts = [
        json.dumps(event("c", {"id": 1, "amount": "1.5"})),
        json.dumps(event("c", {"id": 2, "amount": 2.5})),
    ]
    found = read(spark, texts, Debezium(schema="id INT, amount DECIMAL(5,2)", decimals="string"))
    assert [row.amount for row in found.collect()] == [Decimal("1.50"), Decimal("2.50")]


@pytest.mark.long
def test_a_column_of_decimals_takes_numbers_of_any_scale(spark):
    """In PostgreSQL's columns of `numeric` each number has its own scale; they are texts in a new table."""
    variable = field("v", "struct", "io.debezium.data.VariableScaleDecimal") | {
        "fields": [field("scale", "int32"), field("value", "bytes")]
    }
    messages = [
        with_schema([ID, variable], event("c", {"id": 1, "v": {"scale": 1, "value": unscaled("12")}}))
    ]
    target = spark.createDataFrame([], "id INT, V DECIMAL(10,3)")
    assert [row.v for row in read(spark, messages).collect()] == ["1.2"]
    found = read(spark, messages, current=Current(target.schema, lambda: target, ("id",)))
    assert [row.v for row in found.collect()] == [Decimal("1.200")]


# -------------------------------------------------------------------------- columns that are not told, or new


@pytest.mark.long
def test_placeholders_leave_columns_as_they_are(spark, table):
    """Every form that the placeholder has in PostgreSQL's connector."""
    encoded = base64.b64encode(PLACEHOLDER.encode()).decode()
    of_uuid = str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode()).digest(), version=3))
    columns = {
        "text": (field("text", "string"), "a", PLACEHOLDER),
        "bytes": (field("bytes", "bytes"), "AAA=", encoded),
        "texts": (array("texts", field("", "string")), ["a"], [PLACEHOLDER]),
        "blobs": (array("blobs", field("", "bytes")), ["AAA="], [encoded]),
        "ints": (array("ints", field("", "int32")), [1], list(PLACEHOLDER.encode())),
        "longs": (array("longs", field("", "int64")), [1], list(PLACEHOLDER.encode())),
        "uuids": (array("uuids", field("", "string", "io.debezium.data.Uuid")), ["b"], [of_uuid]),
        "hstore": (
            {"field": "hstore", "type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
            {"a": "b"},
            {PLACEHOLDER: PLACEHOLDER},
        ),
        "n": (field("n", "int32"), 1, 2),
    }
    fields = [ID, *[column[0] for column in columns.values()]]
    before = {"id": 1} | {name: column[1] for name, column in columns.items()}
    after = {"id": 1} | {name: column[2] for name, column in columns.items()}
    engine = applier(table)
    apply(spark, engine, 0, [with_schema(fields, event("c", before, lsn=1))])
    told = list(columns)
    rows = [load(spark, table).select(*told).first()]
    apply(spark, engine, 1, [with_schema(fields, event("u", after, lsn=2))])
    rows.append(load(spark, table).select(*told).first())
    assert rows[1].asDict() == rows[0].asDict() | {"n": 2}
    assert rows[0].text == "a"
    # A row whose key has changed is a new one, whose large values nobody knows.
    for new in (event("c", after, lsn=2), event("u", after, before | {"id": 0}, lsn=2)):
        with pytest.raises(Exception, match=r"REPLICA IDENTITY FULL.*Record: \{\"before\""):
            read(spark, [with_schema(fields, new)]).collect()


@pytest.mark.parametrize("placeholder", [PLACEHOLDER, None])
@pytest.mark.long
def test_schema_additions(spark, table, placeholder):
    """Messages of two schemas in one batch; a column that a message does not have is left as it is."""
    added = [ID, NAME, field("age", "int32")]
    engine = applier(table, Debezium(unavailable_value=placeholder))
    apply(
        spark, engine, 0, [with_schema([ID, NAME], event("c", {"id": i, "name": "a"}, lsn=i)) for i in (1, 2)]
    )
    batch = [
        with_schema([ID, NAME], event("u", {"id": 1, "name": "b"}, lsn=3)),
        with_schema(added, event("u", {"id": 2, "name": "b", "age": 7}, lsn=4)),
        with_schema([ID, field("age", "int32")], event("u", {"id": 2, "age": 8}, lsn=5)),
    ]
    apply(spark, engine, 1, batch)
    apply(spark, engine, 2, [with_schema([ID, NAME], event("c", {"id": 3, "name": "c"}, lsn=6))])
    rows = load(spark, table).select("id", "name", "age")
    assert tuples(rows) == [(1, "b", None), (2, "b", 8), (3, "c", None)]


@pytest.mark.long
@pytest.mark.parametrize("tracked", [None, ["name"]])
def test_a_column_that_later_messages_lack_in_a_history(spark, table, tracked):
    """It keeps its value, also where no values are unavailable."""
    engine = applier(table, Debezium(unavailable_value=None), scd_type=2)
    object.__setattr__(engine, "data_columns", DataColumns(["id"], track_history=tracked))
    wide, narrow = {"id": 1, "name": "a", "age": 7}, {"id": 1, "name": "b"}
    apply(spark, engine, 0, [with_schema([ID, NAME, field("age", "int32")], event("c", wide, lsn=1))])
    apply(spark, engine, 1, [with_schema([ID, NAME], event("u", narrow, lsn=2))])
    found = load(spark, table).selectExpr("id", "name", "age", "__START_AT.lsn")
    assert tuples(found) == [(1, "a", 7, 1), (1, "b", 7, 2)]


@pytest.mark.long
def test_a_column_whose_name_gets_another_case(spark, table):
    """It is the same column, also where one batch has messages of both names."""
    engine, upper = applier(table), field("Name", "string")
    apply(spark, engine, 0, [with_schema([ID, upper], event("c", {"id": 1, "Name": "a"}, lsn=1))])
    both = [
        with_schema([ID, upper], event("c", {"id": 2, "Name": "b"}, lsn=2)),
        with_schema([ID, NAME], event("u", {"id": 1, "name": "a2"}, lsn=3)),
    ]
    apply(spark, engine, 1, both)
    assert tuples(load(spark, table).select("id", "name")) == [(1, "a2"), (2, "b")]


@pytest.mark.long
def test_columns_that_a_message_without_schema_part_lacks(spark, table):
    """They keep their values, as those that a schema part lacks: the target may have columns of its own."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING, age INT) USING delta")
    engine = applier(table)
    apply(spark, engine, 0, [json.dumps(event("c", {"id": i, "name": "a", "age": 7}, lsn=i)) for i in (1, 2)])
    lacking = event("u", {"id": 1, "name": "b"}, lsn=3), event("u", {"id": 2, "age": None}, lsn=4)
    apply(spark, engine, 1, [json.dumps(lacking[0]), json.dumps({"payload": lacking[1]})])
    assert tuples(load(spark, table).select("id", "name", "age")) == [(1, "b", 7), (2, "a", None)]


@pytest.mark.long
def test_columns_that_the_table_computes(spark, table):
    """Messages without a schema part do not have them; a key that they have is none of these."""
    key = "id BIGINT GENERATED BY DEFAULT AS IDENTITY"
    computed = "size INT GENERATED ALWAYS AS (length(name)), n BIGINT GENERATED ALWAYS AS IDENTITY"
    spark.sql(f"CREATE TABLE delta.`{table}` ({key}, name STRING, {computed}) USING delta")
    engine = applier(table)
    apply(spark, engine, 0, [json.dumps(event("c", {"id": i, "name": "a"}, lsn=i)) for i in (1, 2)])
    numbers = tuples(load(spark, table).select("id", "n"))
    apply(spark, engine, 1, [json.dumps({"payload": event("u", {"id": 1, "name": "abc"}, lsn=3)})])
    assert tuples(load(spark, table).select("id", "name", "size")) == [(1, "abc", 3), (2, "a", 1)]
    assert tuples(load(spark, table).select("id", "n")) == numbers
    told = {"id": 1, "name": "abcd"}
    with pytest.raises(Exception, match="a column that is not known"):  # JSON's names have one case
        apply(spark, engine, 2, [json.dumps(event("u", told | {"SIZE": 4}, lsn=4))])
    apply(spark, engine, 2, [json.dumps(event("u", told | {"size": 4}, lsn=4))])
    assert tuples(load(spark, table).select("id", "size")) == [(1, 4), (2, 1)]
    apply(spark, engine, 3, [json.dumps(event("d", None, {"id": 2}, lsn=5))])
    assert tuples(load(spark, table).select("id", "size")) == [(1, 4)]


@pytest.mark.long
def test_a_batch_that_tells_nothing(spark, table):
    """No table is made, and none is changed."""
    engine = applier(table)
    apply(spark, engine, 0, [None, "null"])
    assert not Target(table, None).snapshot(spark)
    apply(spark, engine, 1, [with_schema([ID, NAME], event("c", {"id": 1, "name": "a"}))])
    apply(spark, engine, 2, [None, with_schema([ID, NAME], event("m"))])
    assert tuples(load(spark, table).select("id", "name")) == [(1, "a")]


# ------------------------------------------------------------------------------------------- what is no event


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("no JSON {", "no JSON of a change event. .*Record: no JSON {"),
        ('{"id": 1}', "no JSON of a change event"),
        ('"text"', "no JSON of a change event"),
        ("[]", "no JSON of a change event"),
        (event("x", {"id": 1, "name": "a"}), "its op is none of c, r, u, d, t and m"),
        (event("c"), "it has no row after the change"),
        (event("d"), "key of the deleted row is missing"),
        (event("d", None, {"id": None, "name": "a"}), "key of the deleted row is missing"),
        (event("c", {"id": "one", "name": "a"}), "no JSON of a change event"),
    ],
)
@pytest.mark.sampled(12)
def test_records_that_are_no_changes(spark, record, reason):
    """They are errors that show the record, also beside good ones."""
    good = with_schema([ID, NAME], event("c", {"id": 1, "name": "a"}))
    message = record if isinstance(record, str) else with_schema([ID, NAME], record)
    with pytest.raises(Exception, match=r"DELTA_CHANGE_RECORD_UNREADABLE.*" + reason) as raised:
        read(spark, [good, message]).collect()
    assert "Record: " in str(raised.value)


@pytest.mark.long
@pytest.mark.parametrize("schema_part", [True, False])
def test_values_that_are_none_of_their_type(spark, settings, schema_part):
    """They are errors, and neither null nor another value, whatever the session's settings."""
    debezium = "io.debezium.time"
    cases = [
        (
            field("v", "string", f"{debezium}.ZonedTimestamp"),
            "TIMESTAMP",
            "infinity",
            "a value is no timestamp",
        ),
        (
            field("v", "int64", f"{debezium}.Timestamp"),
            "TIMESTAMP_NTZ",
            2**63 - 10**9,
            "a value is no timestamp",
        ),
        (field("v", "int32"), "INT", 2**31, "no JSON of a change event|none of its column's type"),
        (field("v", "boolean"), "BOOLEAN", 1, "no JSON of a change event|none of its column's type"),
    ]
    if schema_part:
        cases.append((decimal("v", 10, 0), "", 1234, "no JSON of a change event"))
    if not schema_part:
        cases.append((None, "DATE", 2**31, "a value is no date"))
        cases.append((None, "DECIMAL(20,0)", 1234, r"a value is no decimal\(20,0\)"))
    for column, kind, value, reason in cases:
        message = event("c", {"id": 1, "v": value})
        envelope = Debezium(schema=f"id INT, v {kind}", timestamps="millis")
        text = json.dumps(message)
        if schema_part:
            envelope, text = Debezium(), with_schema([ID, column], message)
        off = {"spark.sql.ansi.enabled": "false"}
        with settings(off), pytest.raises(Exception, match=rf"(?:{reason}).*Record: .*{value}"):
            read(spark, [text], envelope).collect()


def test_a_message_that_cannot_be_read_is_of_no_other_shape(spark, settings):
    """Without partial results Spark's JSON reader loses what follows a wrong value: here the schema part."""
    others = [with_schema([ID], event("c", {"id": 2}))]
    wrong = json.loads(with_schema([ID, NAME], event("c", {"id": 2**40, "name": "a"})))
    wrong = json.dumps({"payload": wrong["payload"], "schema": wrong["schema"]})
    with (
        settings({"spark.sql.json.enablePartialResults": "false"}),
        pytest.raises(Exception, match="no JSON of a change event"),
    ):
        read(spark, [*others, wrong]).collect()


@pytest.mark.long
def test_a_column_whose_type_is_altered(spark):
    """In one batch, too, no value is read as one of another type."""

    def of_types(*columns):
        messages = [with_schema([ID, c], event("c", {"id": 1, c["field"]: v})) for c, v in columns]
        return [row["v"] for row in read(spark, messages).collect()]

    number = (field("v", "int32"), 5)
    wider = (field("v", "int64"), 2**40), (decimal("v", 12, 2), unscaled("1.25"))
    assert of_types(number, wider[0]) == [5, 2**40]
    assert of_types(number, wider[1]) == [Decimal("5.00"), Decimal("1.25")]
    for other in ((field("V", "string"), "007"), (field("v", "double"), 0.5), (decimal("v", 38, 30), "AA==")):
        with pytest.raises(
            DeltaAnalysisException, match=r"column [vV] of different types, int and"
        ) as raised:
            of_types(number, other)
        assert raised.value.getCondition() == "DELTA_CHANGE_COLUMN_OF_TWO_TYPES"


@pytest.mark.long
def test_keys_of_decimals_without_a_schema_part(spark):
    one, two = (unscaled(text) for text in ("1.00", "2.00"))
    events = [
        event("c", {"id": one, "name": "a"}),
        event("u", {"id": two, "name": "a"}, {"id": one, "name": None}),
        event("u", {"id": two, "name": "b"}, {"id": two, "name": None}),
        event("d", None, {"id": two, "name": None}),
    ]
    found = changes(spark, map(json.dumps, events), Debezium(schema="id DECIMAL(5,2), name STRING"))
    assert [(row[0], str(row[3]), row[4]) for row in found] == [
        ("upsert", "1.00", "a"),
        ("delete", "1.00", None),
        ("upsert", "2.00", "a"),
        ("upsert", "2.00", "b"),
        ("delete", "2.00", None),
    ]


@pytest.mark.long
def test_columns_that_are_not_known(spark):
    unknown = json.dumps(event("c", {"id": 1, "name": "a", "age": 3}))
    with pytest.raises(Exception, match=r"a column that is not known.*Record: .*age"):
        read(spark, [unknown], Debezium(schema="id INT, name STRING")).collect()
    with pytest.raises(DeltaAnalysisException, match=r"Debezium\(schema="):
        read(spark, [unknown])
    wide = with_schema([ID, decimal("d", 50, 2)], event("c", {"id": 1}))
    with pytest.raises(DeltaAnalysisException, match=r"column d .*decimal\.handling\.mode=string"):
        read(spark, [wide])


def test_a_filter_of_the_stream_leads_past_a_record_that_is_no_change(spark, table, tmp_path):
    folder, checkpoint = tmp_path / "landed", str(tmp_path / "checkpoint")
    folder.mkdir()

    def run(landed):
        envelope = Debezium(schema="id INT, name STRING", table="public.people")
        writer = apply_changes(landed, table, keys="id", envelope=envelope)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    landed = spark.readStream.text(str(folder))
    messages = [json.dumps(event("c", {"id": number, "name": "a"}, lsn=number)) for number in (1, 2)]
    (folder / "1").write_text("\n".join([messages[0], "broken", messages[1]]))
    with pytest.raises(StreamingQueryException, match=r"DELTA_CHANGE_RECORD_UNREADABLE.*broken"):
        run(landed)
    run(landed.where("value <> 'broken'"))
    assert tuples(load(spark, table).select("id", "name")) == [(1, "a"), (2, "a")]


def test_arguments_are_checked():
    with pytest.raises(DeltaIllegalArgumentException, match=r"'people' for 'table'.*Give schema\.people"):
        Debezium(table="people")
    with pytest.raises(DeltaIllegalArgumentException, match="'hours' for 'timestamps'"):
        Debezium(timestamps="hours")
    with pytest.raises(DeltaIllegalArgumentException, match="'exact' for 'decimals'"):
        Debezium(decimals="exact")
