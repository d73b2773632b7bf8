"""Streams into an existing table: casts by name, new columns, constraints, a restart after an error."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.tables import actions, read_by_deltalake, versions

pytestmark = pytest.mark.spark


@pytest.fixture
def source(streams: Any, table: str) -> Any:
    """The ids 0 to 3 as a stream of one batch."""
    streams.append(table, 0, 4)
    return streams.read(table)


@pytest.fixture
def quarantine(tmp_path: Path) -> str:
    """A path for a quarantine, with nothing there."""
    return str(tmp_path / "quarantine")


def make(path: str, *fields: pa.Field) -> None:
    """A table without rows."""
    deltalake.DeltaTable.create(path, pa.schema(fields))


def check_stopped(streams: Any, query: Any, code: str, state: str, words: str, sink: str) -> None:
    """Checks the error of the query, and that the table has not changed."""
    failure = streams.failure(query)
    assert (failure.code, failure.state) == (code, state)
    assert words in failure.message
    assert not deltalake.DeltaTable(sink).file_uris()


def test_casts_by_name(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    inner = pa.struct([("a", pa.int16()), ("b", pa.string())])
    make(
        sink,
        pa.field("id", pa.int64()),
        pa.field("n", pa.int32()),
        pa.field("s", inner),
        pa.field("l", pa.list_(pa.int64())),
    )
    frame = source.selectExpr(
        "array(CAST(id AS INT)) AS l",
        "CAST(id AS INT) AS ID",
        "named_struct('B', 'b', 'A', id) AS S",
        "id + 1 AS N",
    )
    streams.copy(frame, sink, checkpoint)
    expected = [{"id": i, "n": i + 1, "s": {"a": i, "b": "b"}, "l": [i]} for i in range(4)]
    assert read_by_deltalake(sink) == expected
    assert not actions(sink, "metaData", 1)


def test_a_value_that_does_not_fit(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    """It stops the stream; without it the stream goes on."""
    make(sink, pa.field("id", pa.int64()), pa.field("n", pa.int8()))
    frame = source.selectExpr("id", "id * 100 AS n")
    with pytest.raises(StreamingQueryException, match=r"CAST_OVERFLOW_IN_TABLE_INSERT"):
        streams.ended(streams.write(frame, sink, checkpoint))
    assert read_by_deltalake(sink) == []
    streams.copy(frame.where("n < 128"), sink, checkpoint)
    assert read_by_deltalake(sink) == [{"id": 0, "n": 0}, {"id": 1, "n": 100}]
    assert versions(sink) == [0, 1]


def test_texts_of_values(streams: Any, source: Any, sink: str, checkpoint: str, quarantine: str) -> None:
    """As in delta-spark, strings are cast to the types of the table, nested ones too."""
    inner = pa.struct([("a", pa.int16()), ("b", pa.string())])
    make(
        sink,
        pa.field("id", pa.int64()),
        pa.field("d", pa.date32()),
        pa.field("s", inner),
        pa.field("l", pa.list_(pa.int32())),
    )
    frame = source.selectExpr(
        "named_struct('B', 'b', 'A', CAST(id AS STRING)) AS S",
        "CAST(id AS STRING) AS ID",
        "concat('2020-01-0', id) AS d",
        "array(CAST(id AS STRING), NULL) AS l",
    )
    # 2020-01-00 is no date.
    with pytest.raises(StreamingQueryException, match=r"CAST_INVALID_INPUT"):
        streams.ended(streams.write(frame, sink, checkpoint))
    assert read_by_deltalake(sink) == []
    streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    assert read_by_deltalake(sink) == [
        {"id": i, "d": date(2020, 1, i), "s": {"a": i, "b": "b"}, "l": [i, None]} for i in (1, 2, 3)
    ]
    [refused] = read_by_deltalake(quarantine)
    assert refused["row"]["ID"] == "0"
    assert refused["reason"].endswith("STRING into the DATE type column d. Value: 2020-01-00")


def test_casts_of_a_query_with_state(
    streams: Any, table: str, source: Any, sink: str, checkpoint: str
) -> None:
    make(sink, pa.field("id", pa.int16()), pa.field("count", pa.int32()))
    counts = source.groupBy((F.col("id") % 2).alias("ID")).count()
    streams.copy(counts, sink, checkpoint, mode="complete")
    streams.append(table, 4, 7)
    streams.copy(counts, sink, checkpoint, mode="complete")
    assert read_by_deltalake(sink) == [{"id": 0, "count": 4}, {"id": 1, "count": 3}]


@pytest.mark.covers("mergeSchema", "DELTA_METADATA_MISMATCH")
@pytest.mark.parametrize("by", ["option", "session"])
def test_new_columns(streams: Any, table: str, sink: str, checkpoint: str, settings: Any, by: str) -> None:
    streams.append(table, 0, 2)
    make(sink, pa.field("id", pa.int64()))
    wider = streams.read(table).selectExpr("id", "id * 2 AS Twice", "named_struct('x', id) AS s")
    query = streams.write(wider, sink, checkpoint)
    check_stopped(streams, query, "DELTA_METADATA_MISMATCH", "42KDG", "mergeSchema", sink)
    if by == "option":
        streams.copy(wider, sink, checkpoint, mergeSchema="true")
    else:
        with settings({"spark.databricks.delta.schema.autoMerge.enabled": "true"}):
            streams.copy(wider, sink, checkpoint)
    assert read_by_deltalake(sink) == [{"id": i, "Twice": 2 * i, "s": {"x": i}} for i in range(2)]
    # Fewer columns fit as well, and change nothing.
    streams.append(table, 2, 3)
    streams.copy(streams.read(table), sink, checkpoint)
    assert read_by_deltalake(sink)[2] == {"id": 2, "Twice": None, "s": None}
    assert not actions(sink, "metaData", 2)


def test_new_columns_change_no_type(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    make(sink, pa.field("id", pa.int8()))
    streams.copy(
        source.selectExpr("CAST(id AS INT) AS id", "id AS new"), sink, checkpoint, mergeSchema="true"
    )
    schema = deltalake.DeltaTable(sink).schema()
    assert [(field.name, field.type.type) for field in schema.fields] == [("id", "byte"), ("new", "long")]
    assert read_by_deltalake(sink) == [{"id": i, "new": i} for i in range(4)]


@pytest.mark.covers("DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS")
@pytest.mark.parametrize(
    ("column", "code", "sqlstate"),
    [
        ("id > 1 AS id", "DELTA_FAILED_TO_MERGE_FIELDS", "22005"),
        ("id AS other", "DELTA_METADATA_MISMATCH", "42KDG"),
    ],
)
def test_types_and_names_that_do_not_fit(
    streams: Any, source: Any, sink: str, checkpoint: str, column: str, code: str, sqlstate: str
) -> None:
    make(sink, pa.field("id", pa.int64()))
    query = streams.write(source.selectExpr(column), sink, checkpoint)
    check_stopped(streams, query, code, sqlstate, "does not match that of the table", sink)


@pytest.mark.covers("overwriteSchema")
def test_another_schema_in_complete_mode(
    streams: Any, table: str, source: Any, sink: str, checkpoint: str
) -> None:
    make(sink, pa.field("id", pa.string()), pa.field("old", pa.int64()))
    counts = source.groupBy((F.col("id") % 2).alias("id")).count()
    query = streams.write(counts, sink, checkpoint, mode="complete")
    check_stopped(streams, query, "DELTA_METADATA_MISMATCH", "42KDG", "overwriteSchema", sink)
    streams.copy(counts, sink, checkpoint, mode="complete", overwriteSchema="true")
    streams.append(table, 4, 5)
    streams.copy(counts, sink, checkpoint, mode="complete", overwriteSchema="true")
    assert read_by_deltalake(sink) == [{"id": 0, "count": 3}, {"id": 1, "count": 2}]
    assert not actions(sink, "metaData", 2)
    # Only there: an append never takes what is in the table away.
    appended = streams.write(
        streams.read(table).selectExpr("array(id) AS id"), sink, f"{checkpoint}2", overwriteSchema="true"
    )
    assert streams.failure(appended).code == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert len(read_by_deltalake(sink)) == 2


@pytest.mark.covers("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_MISSING_NOT_NULL_COLUMN_VALUE")
def test_not_null(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    make(sink, pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()))
    some = source.selectExpr("IF(id = 2, NULL, id) AS id", "id AS n")
    query = streams.write(some, sink, checkpoint)
    check_stopped(streams, query, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "23502", "id", sink)
    query = streams.write(source.selectExpr("id AS n"), sink, checkpoint)
    check_stopped(streams, query, "DELTA_MISSING_NOT_NULL_COLUMN_VALUE", "23502", "id", sink)
    streams.copy(some.where("id IS NOT NULL"), sink, checkpoint)
    assert [row["id"] for row in read_by_deltalake(sink)] == [0, 1, 3]


@pytest.mark.covers("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
@pytest.mark.parametrize("stateful", [False, True])
def test_check(streams: Any, source: Any, sink: str, checkpoint: str, stateful: bool) -> None:
    """The violation names the value. Without the constraint the stream goes on with its state."""
    make(sink, pa.field("id", pa.int64()))
    deltalake.DeltaTable(sink).alter.add_constraint({"small": "id < 3"})
    frame = source.dropDuplicates(["id"]) if stateful else source
    query = streams.write(frame, sink, checkpoint)
    check_stopped(streams, query, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "23001", "id : 3", sink)
    deltalake.DeltaTable(sink).alter.drop_constraint("small")
    streams.copy(frame, sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 2, 3]


def test_properties_of_a_new_table(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    streams.copy(source, sink, checkpoint, **{"delta.appendOnly": "true"})
    assert deltalake.DeltaTable(sink).metadata().configuration == {"delta.appendOnly": "true"}


@pytest.mark.covers("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE")
def test_identity_columns_without_their_feature_are_refused_by_name(
    streams: Any, source: Any, sink: str, checkpoint: str
) -> None:
    make(sink, pa.field("id", pa.int64()), pa.field("n", pa.int64()))
    [metadata] = actions(sink, "metaData", 0)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][1]["metadata"] = {"delta.identity.start": 1, "delta.identity.step": 1}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    streams.add_version(
        sink, {"protocol": protocol}, {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    )
    failure = streams.failure(streams.write(source, sink, checkpoint))
    assert (failure.code, failure.state) == ("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "56038")
    assert "identityColumns" in failure.message
    assert versions(sink) == [0, 1]
