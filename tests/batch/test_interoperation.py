"""Tables of other writers: read equal, and written only where that keeps what they ask for."""

from __future__ import annotations

import datetime as dt
import json
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest

from deltaflow.errors import (
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
    UnsupportedFeatureError,
)
from tests.tables import edit_commit, files_below, ids, load, rows, rows_by_deltalake

pytestmark = pytest.mark.spark


def batch(start, stop):
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "p": pa.array([f"p {i % 3}" if i % 5 else None for i in numbers]),
            "day": pa.array([dt.date(2024, 1, 1 + i % 28) for i in numbers]),
            "ts": pa.array([dt.datetime(2024, 1, 1, 0, 0, i % 60, i, tzinfo=UTC) for i in numbers]),
            "dec": pa.array([Decimal(i) / 100 for i in numbers], pa.decimal128(20, 2)),
            "x": pa.array([i / 7 if i % 4 else None for i in numbers], pa.float64()),
            "list": pa.array([[i, None] for i in numbers], pa.list_(pa.int32())),
            "st": pa.array([{"a": i, "b": str(i)} for i in numbers]),
        }
    )


def test_decimals_beyond_the_bounds_that_deltalake_writes(spark, tmp_path):
    """As bounds of decimals without a fraction it writes longs, the greatest one for what is greater."""
    path, sql = str(tmp_path / "t"), f"delta.`{tmp_path}/t`"
    numbers = [5, 10**20, -(10**37), 2**63 - 1]
    for number in numbers:
        data = pa.table({"id": [number % 7], "d": pa.array([Decimal(number)], pa.decimal128(38, 0))})
        deltalake.write_deltalake(path, data, mode="append")
    for number in numbers:
        literal = f"CAST('{number}' AS DECIMAL(38))"
        assert spark.sql(f"SELECT d FROM {sql} WHERE d = {literal}").collect() == [(Decimal(number),)]
    assert spark.sql(f"SELECT min(d), max(d) FROM {sql}").first()[:] == (-(10**37), 10**20)
    beyond = "d > 10000000000000000000BD OR d < -10000000000000000000BD"
    assert spark.sql(f"DELETE FROM {sql} WHERE {beyond}").first()[0] == 2
    assert ids(load(spark, path).selectExpr("d AS id")) == [5, 2**63 - 1]


@pytest.mark.parametrize("partition_by", [None, ["p"], ["day", "p"]])
@pytest.mark.sampled(2)
def test_tables_of_deltalake_through_their_life(spark, tmp_path, partition_by):
    path = str(tmp_path / "t")

    def same():
        assert rows(load(spark, path)) == rows_by_deltalake(path)

    deltalake.write_deltalake(path, batch(0, 20), partition_by=partition_by)
    same()
    deltalake.write_deltalake(path, batch(20, 40), mode="append")
    deltalake.DeltaTable(path).delete("id % 7 = 0")
    same()
    deltalake.DeltaTable(path).update(updates={"x": "x + 1"}, predicate="id > 30")
    deltalake.DeltaTable(path).create_checkpoint()
    same()
    deltalake.DeltaTable(path).optimize.compact()
    same()
    deltalake.DeltaTable(path).optimize.z_order(["id"])
    same()
    # Both writers take turns from here on.
    mine = load(spark, path).where("id = 1").selectExpr("id + 1000 as id", "* except (id)")
    mine.write.format("delta").mode("append").save(path)
    same()
    deltalake.DeltaTable(path).delete("id = 1001")
    same()
    deltalake.write_deltalake(path, batch(50, 60), mode="overwrite")
    same()
    load(spark, path).limit(3).write.format("delta").mode("overwrite").save(path)
    same()
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 3
    assert deltalake.DeltaTable(path).history()[0]["operation"] == "WRITE"


def rewritten(path, change):
    """The first commit of a table with its actions changed: {name: function of the action}."""

    def edit(action):
        for name, function in change.items():
            if name in action:
                function(action[name])

    edit_commit(path, edit)


def field_metadata(key, value):
    def change(metadata):
        schema = json.loads(metadata["schemaString"])
        schema["fields"][0]["metadata"][key] = value
        metadata["schemaString"] = json.dumps(schema)

    return change


def protocol(reader, writer, readers=None, writers=None):
    def change(action):
        action.update(minReaderVersion=reader, minWriterVersion=writer)
        if readers is not None:
            action["readerFeatures"] = readers
        if writers is not None:
            action["writerFeatures"] = writers

    return change


def made(spark, path, change):
    """A table of one row, its first commit changed before anybody has read it."""
    spark.range(1).write.format("delta").save(path)
    moved = path + " changed"
    Path(path).rename(moved)
    rewritten(moved, change)
    return moved


NOT_WRITTEN = {
    "generatedColumns": {"metaData": field_metadata("delta.generationExpression", "1 + 1")},
    "changeDataFeed": {
        "metaData": lambda m: m["configuration"].update({"delta.enableChangeDataFeed": "true"}),
        "protocol": protocol(1, 2),
    },
    "identityColumns": {"metaData": field_metadata("delta.identity.start", 1)},
    "writer version 8": {"protocol": protocol(1, 8)},
    "somethingNew": {"protocol": protocol(1, 7, writers=["appendOnly", "somethingNew"])},
}


@pytest.mark.parametrize("feature", NOT_WRITTEN)
def test_what_a_writer_cannot_keep_is_refused_by_name(spark, table, feature):
    path = made(spark, table, NOT_WRITTEN[feature])
    before = files_below(path)
    assert load(spark, path).count() == 1
    for mode in ("append", "overwrite"):
        with pytest.raises(UnsupportedFeatureError, match=feature) as caught:
            spark.range(1, 2).write.format("delta").mode(mode).save(path)
        assert feature in caught.value.features
        assert caught.value.getErrorClass() == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
        assert path in str(caught.value)
    assert files_below(path) == before


NOT_READ = {
    "catalogManaged": protocol(3, 7, ["catalogManaged"], ["catalogManaged"]),
    "somethingNew": protocol(3, 7, ["somethingNew", "timestampNtz"], ["somethingNew", "timestampNtz"]),
    "reader version 4": protocol(4, 7, [], []),
}


@pytest.mark.parametrize("feature", NOT_READ)
def test_what_a_reader_cannot_do_is_refused_by_name(spark, table, feature):
    path = made(
        spark,
        table,
        {"protocol": NOT_READ[feature]},
    )
    for use in (
        lambda: load(spark, path),
        lambda: spark.range(1).write.format("delta").mode("append").save(path),
        lambda: spark.range(1).write.format("delta").mode("overwrite").save(path),
    ):
        with pytest.raises(UnsupportedFeatureError, match=feature) as caught:
            use()
        assert caught.value.features == (feature,)


def test_a_table_that_only_takes_appends(spark, tmp_path, sound):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    before = files_below(path)
    with pytest.raises(DeltaUnsupportedOperationException) as caught:
        spark.range(2).write.format("delta").mode("overwrite").save(path)
    assert caught.value.getErrorClass() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert files_below(path) == before
    spark.range(2).write.format("delta").mode("append").save(path)
    assert ids(load(spark, path)) == [0, 1, 1]


def test_not_null_columns_of_deltalake(spark, tmp_path):
    path = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    deltalake.write_deltalake(path, pa.table({"id": [1]}, schema=schema))
    spark.range(2, 3).write.format("delta").mode("append").save(path)
    with pytest.raises(DeltaInvariantViolationException, match="violated for column: id") as caught:
        spark.sql("select cast(null as bigint) as id").write.format("delta").mode("append").save(path)
    assert caught.value.getErrorClass() == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert ids(load(spark, path)) == [1, 2]


def test_files_from_before_a_column_was_added(spark, tmp_path):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1], "p": ["a"]}), partition_by=["p"])
    wider = pa.table({"id": [2], "p": ["a"], "new": ["x"]})
    deltalake.write_deltalake(path, wider, mode="append", schema_mode="merge")
    read = load(spark, path)
    assert rows(read) == rows_by_deltalake(path)
    assert read.where("new is null").count() == 1
    spark.range(3, 4).selectExpr("id", "'b' p", "'y' new").write.format("delta").mode("append").save(path)
    assert rows(load(spark, path)) == rows_by_deltalake(path)


def test_timestamps_without_a_zone(spark, tmp_path, settings):
    path = str(tmp_path / "t")
    moments = pa.array([dt.datetime(2024, 1, 1, 2, 3, 4, 5), None], pa.timestamp("us"))
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "ts": moments, "p": moments}), partition_by=["p"])
    for zone in ("America/Los_Angeles", "UTC"):
        with settings({"spark.sql.session.timeZone": zone}):
            assert rows(load(spark, path)) == rows_by_deltalake(path)
    load(spark, path).write.format("delta").mode("append").save(path)
    assert rows(load(spark, path)) == rows_by_deltalake(path)
    assert load(spark, path).where("p = '2024-01-01 02:03:04.000005'").count() == 2


def test_files_elsewhere(spark, tmp_path):
    """PROTOCOL.md, "Add File": a path may be absolute, as in shallow clones."""
    source = str(tmp_path / "a b%")
    data = spark.createDataFrame([(1, "x y"), (2, "100%")], "id int, p string")
    data.write.format("delta").partitionBy("p").save(source)
    clone = tmp_path / "clone"
    (clone / "_delta_log").mkdir(parents=True)
    commit = Path("_delta_log", f"{0:020}.json")
    (clone / commit).write_text(Path(source, commit).read_text())
    for number, start in enumerate(
        (f"file://{quote(source)}/", f"file:{quote(source)}/", f"{quote(source)}/")
    ):
        path = str(tmp_path / f"clone {number}")
        Path(path, "_delta_log").mkdir(parents=True)
        Path(path, commit).write_text((clone / commit).read_text())
        rewritten(path, {"add": lambda add, start=start: add.update(path=start + add["path"])})
        read = load(spark, path)
        assert rows(read) == rows(data)
        assert read.where("p = '100%'").count() == 1


def test_elements_without_nulls(spark, tmp_path):
    path = str(tmp_path / "t")
    arrow_type = pa.list_(pa.field("element", pa.int32(), nullable=False))
    deltalake.write_deltalake(path, pa.table({"a": pa.array([[1, 2]], arrow_type)}))
    before = sorted(Path(path, "_delta_log").rglob("*"))
    with pytest.raises(DeltaInvariantViolationException, match="violated for column: a"):
        spark.createDataFrame([([1, None],)], "a array<int>").write.format("delta").mode("append").save(path)
    assert sorted(Path(path, "_delta_log").rglob("*")) == before
    spark.range(1).selectExpr("array(3, 4) as a").write.format("delta").mode("append").save(path)
    assert rows(load(spark, path)) == rows_by_deltalake(path)


def test_constraints_of_deltalake(spark, tmp_path):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1]}))
    deltalake.DeltaTable(path).alter.add_constraint({"positive": "id > 0"})
    assert load(spark, path).count() == 1
    spark.range(2, 3).write.format("delta").mode("append").save(path)
    with pytest.raises(DeltaInvariantViolationException, match=r"positive \(id > 0\).*\n - id : 0"):
        spark.range(2).write.format("delta").mode("append").save(path)
    assert deltalake.DeltaTable(path).version() == 2
