"""The change data feed in batch: change rows of other writers' tables, every door, and every refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog
from tests.deletion_vectors import mark_deleted, paths
from tests.feed_tables import FEED, START_MS, feed_table
from tests.goldens import ENTRIES, FEATURES, GOLDENS, SUPPORTED, missing_features, needed
from tests.plans import executed_plan, file_scans
from tests.tables import commit_file, edit_commit, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


def changes(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return load(spark, path, readChangeFeed="true", **options)


@pytest.fixture
def feed(tmp_path: Path) -> str:
    return feed_table(str(tmp_path / "feed"))


def row(id_: int, v: int, p: str, change: str, version: int) -> dict[str, Any]:
    return {"id": id_, "v": v, "p": p, "_change_type": change, "_commit_version": version}


OF_VERSIONS = {
    0: [row(i, i, "abc"[i // 2], "insert", 0) for i in range(6)],
    1: [row(1, 1, "a", "update_preimage", 1), row(1, 10, "a", "update_postimage", 1)],
    2: [row(2, 2, "b", "delete", 2), row(3, 3, "b", "delete", 2)],
    3: [row(0, 0, "a", "delete", 3)],
    4: [row(9, 9, "d", "insert", 4)],
}


def expected(first: int, last: int) -> list[str]:
    return sorted(text(found) for version in range(first, last + 1) for found in OF_VERSIONS[version])


def text(found: Any) -> str:
    values = found.asDict() if hasattr(found, "asDict") else found
    return str(sorted((name, value) for name, value in values.items() if name != "_commit_timestamp"))


def found(frame: DataFrame) -> list[str]:
    return sorted(text(row) for row in frame.collect())


def test_every_range(spark: SparkSession, feed: str) -> None:
    for first in range(5):
        for last in range(first, 5):
            frame = changes(spark, feed, startingVersion=first, endingVersion=last)
            assert found(frame) == expected(first, last), (first, last)
    assert found(changes(spark, feed, startingVersion=1, endingVersion=99)) == expected(1, 4)
    [*_, change_type, version, time] = changes(spark, feed, startingVersion=0).schema.fields
    assert (change_type.simpleString(), version.simpleString(), time.simpleString()) == (
        "_change_type:string",
        "_commit_version:bigint",
        "_commit_timestamp:timestamp",
    )


def test_every_door(spark: SparkSession, feed: str, database: Path) -> None:
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{feed}'")
    assert spark.table("t").count() == 4  # Spark keeps the relation of the name from here on
    bounds: dict[str, Any] = {"startingVersion": 1, "endingVersion": 3}
    options = {"readChangeFeed": "true", **bounds}
    other = spark.newSession()
    other.sql(f"USE {database.name}")
    for session in (spark, other):
        reader = session.read.options(**options)
        for frame in (
            reader.format("delta").load(feed),
            session.read.format("delta")
            .options(readChangeData="true", startingVersion=1, endingVersion=3)
            .load(feed),
            reader.table("t"),
            reader.table(f"{database.name}.t"),
            reader.table(f"delta.`{feed}`"),
            session.sql("SELECT * FROM table_changes('t', 1, 3)"),
            session.sql(f"SELECT * FROM table_changes('{database.name}.t', 1L, 1 + 2)"),
            session.sql(f"SELECT * FROM table_changes_by_path('{feed}', 1, 3)"),
        ):
            assert found(frame) == expected(1, 3)
        assert session.table("t").columns == ["id", "v", "p"]
    assert spark.sql("SELECT count(*) FROM table_changes('t', 0) c JOIN t ON t.id = c.id").collect() == [(6,)]
    assert spark.sql("SELECT t.id FROM t WHERE id IN (SELECT id FROM table_changes('t', 4))").collect() == [
        (9,)
    ]


def test_times(spark: SparkSession, feed: str, setting: Callable[[str, str], None]) -> None:
    setting("spark.sql.session.timeZone", "UTC")
    times = changes(spark, feed, startingVersion=0).select("_commit_version", "_commit_timestamp").distinct()
    assert dict(times.collect()) == {
        version: datetime.fromtimestamp(START_MS / 1000 + version, UTC).astimezone().replace(tzinfo=None)
        for version in range(5)
    }

    def at(seconds: float) -> str:
        return datetime.fromtimestamp(START_MS / 1000 + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    for first, last, versions in [
        (at(1), at(3), (1, 3)),
        (at(0.5), at(3.5), (1, 3)),
        ("2000-01-01", at(0), (0, 0)),
        (at(1.2), at(1.4), None),
    ]:
        of_range = expected(*versions) if versions else []
        assert found(changes(spark, feed, startingTimestamp=first, endingTimestamp=last)) == of_range
        calls = f"table_changes_by_path('{feed}', '{first}', timestamp'{last}')"
        assert found(spark.sql(f"SELECT * FROM {calls}")) == of_range
    assert found(changes(spark, feed, startingTimestamp=at(2), endingVersion=3)) == expected(2, 3)
    with pytest.raises(DeltaError, match="DELTA_TIMESTAMP_GREATER_THAN_COMMIT"):
        changes(spark, feed, startingTimestamp=at(9))
    with pytest.raises(DeltaError, match="DELTA_TIMESTAMP_GREATER_THAN_COMMIT"):
        changes(spark, feed, startingVersion=0, endingTimestamp=at(9))
    with pytest.raises(DeltaError, match="DELTA_INVALID_CDC_RANGE"):
        changes(spark, feed, startingTimestamp=at(3), endingTimestamp=at(2))
    setting("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", "true")
    assert changes(spark, feed, startingTimestamp=at(9)).collect() == []
    assert changes(spark, feed, startingVersion=9).count() == 0
    assert found(changes(spark, feed, startingVersion=1, endingTimestamp=at(9))) == expected(1, 4)


def test_what_is_refused(spark: SparkSession, feed: str, tmp_path: Path) -> None:
    for options, condition in [
        ({}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"endingVersion": 3}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"startingVersion": 0, "startingTimestamp": "2000-01-01"}, "DELTA_MULTIPLE_CDC_BOUNDARY"),
        (
            {"startingVersion": 0, "endingVersion": 1, "endingTimestamp": "2000-01-01"},
            "MULTIPLE_CDC_BOUNDARY",
        ),
        ({"startingVersion": 9}, "DELTA_CDC_START_VERSION_AFTER_LATEST"),
        ({"startingVersion": 3, "endingVersion": 2}, "DELTA_INVALID_CDC_RANGE"),
        ({"startingVersion": 0, "versionAsOf": 1}, "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
        ({"startingVersion": "x"}, "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"),
        ({"startingVersion": 0, "readChangeData": "maybe"}, "DELTA_ILLEGAL_OPTION"),
    ]:
        with pytest.raises(DeltaError, match=condition):
            changes(spark, feed, **options)
    with pytest.raises(DeltaError, match="DELTA_UNSUPPORTED_OPTION"):
        changes(spark, f"{feed}/p=a", startingVersion=0)
    with pytest.raises(DeltaError, match="PATH_NOT_FOUND"):
        changes(spark, str(tmp_path / "nothing"), startingVersion=0)
    by_path = f"table_changes_by_path('{feed}'"
    spark.range(1).createOrReplaceTempView("no_delta_table")
    for call, condition in [
        (f"{by_path})", "INCORRECT_NUMBER_OF_ARGUMENTS"),
        (f"{by_path}, 0, 1, 2)", "INCORRECT_NUMBER_OF_ARGUMENTS"),
        (f"{by_path}, null)", "DELTA_CDC_READ_NULL_RANGE_BOUNDARY"),
        (f"{by_path}, cast(null as int))", "DELTA_CDC_READ_NULL_RANGE_BOUNDARY"),
        (f"{by_path}, 1.5)", "DELTA_UNSUPPORTED_EXPRESSION"),
        (f"{by_path}, cast(rand() as int))", "DELTA_CDC_NON_CONSTANT_ARGUMENT"),
        ("table_changes_by_path(1, 2)", "DELTA_UNSUPPORTED_EXPRESSION"),
        ("table_changes('no_delta_table', 0)", "DELTA_TABLE_ONLY_OPERATION"),
    ]:
        with pytest.raises(DeltaError, match=condition):
            spark.sql(f"SELECT * FROM {call}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM table_changes('nowhere', 0)")
    # The feed was switched off, and the log lost its first commits.
    edit_commit(feed, lambda action: action.get("metaData", {}).get("configuration", {}).clear())
    with pytest.raises(DeltaError, match="DELTA_MISSING_CHANGE_DATA"):
        changes(spark, feed, startingVersion=2).collect()
    commit_file(feed, 0).unlink()
    with pytest.raises(DeltaError):
        changes(spark, feed, startingVersion=2).collect()


@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_range_that_begins_with_other_columns(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """The rows that its first version has removed have the columns of the version before."""
    path = str(tmp_path / "table")
    properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": mode}
    first = spark.sql("SELECT 1 AS id, 'a' AS p")
    first.write.format("delta").partitionBy("p").options(**properties).save(path)

    def overwritten(rows: str) -> DataFrame:
        """The changes of a version that replaces table and columns, as read from that version on."""
        writer = spark.sql(rows).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(path)
        version = DeltaLog.for_table(path).snapshot().version
        return changes(spark, path, startingVersion=version).drop("_commit_version", "_commit_timestamp")

    def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in frame.collect())

    assert rows_of(overwritten("SELECT 2 AS id")) == [(1, "delete"), (2, "insert")]
    more = overwritten("SELECT 3 AS id, 'b' AS new")
    assert rows_of(more.where("_change_type = 'delete'")) == [(2, None, "delete")]
    refused = ["SELECT 'c' AS id"]
    if mode == "none":
        assert rows_of(overwritten("SELECT 4L AS id")) == [(3, "delete"), (4, "insert")]
    else:  # a column of another type is another column, which the removed files lack
        refused.append("SELECT 4L AS id")
    for rows in refused:
        with pytest.raises(DeltaError, match="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"):
            overwritten(rows).collect()


def test_a_range_that_begins_with_another_type_of_a_partition_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    for p, options in (("'a'", {"delta.enableChangeDataFeed": "true"}), ("7", {"overwriteSchema": "true"})):
        writer = spark.sql(f"SELECT 1 AS id, {p} AS p").write.format("delta").mode("overwrite")
        writer.partitionBy("p").options(**options).save(path)
    with pytest.raises(DeltaError, match="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"):
        changes(spark, path, startingVersion=1).collect()


def test_only_what_a_query_needs_is_read(spark: SparkSession, feed: str) -> None:
    frame = changes(spark, feed, startingVersion=0)
    types = frame.select("_change_type")
    assert Counter(row[0] for row in types.collect()) == Counter(
        change["_change_type"] for rows_ in OF_VERSIONS.values() for change in rows_
    )
    schemas = {str(scan.requiredSchema().simpleString()) for scan in file_scans(types)}
    assert schemas == {"struct<>", "struct<_change_type:string>"}
    inserts = frame.where("p = 'c' AND _change_type = 'insert'").select("id")
    assert sorted(inserts.collect()) == [(4,), (5,)]
    plan = executed_plan(inserts)
    assert "PartitionFilters: [isnotnull(p" in plan
    assert {str(scan.requiredSchema().simpleString()) for scan in file_scans(inserts)} <= {
        "struct<id:bigint>",
        "struct<id:bigint,_change_type:string>",
    }
    read = [int(scan.metrics().apply("numFiles").value()) for scan in file_scans(inserts)]
    assert sorted(read) == [0, 1]
    by_version = frame.where("_commit_version = 4 OR id = 2").select("id", "_commit_version")
    assert sorted(by_version.collect()) == [(2, 0), (2, 2), (9, 4)]
    assert frame.where("_commit_version > 7").count() == 0
    assert frame.select("_metadata.file_name").where("id = 9").count() == 1
    assert frame.cache().count() == 12
    assert frame.where("_change_type LIKE 'update%'").count() == 2
    frame.unpersist()


def test_a_frame_without_an_end_goes_to_the_newest_version(spark: SparkSession, feed: str) -> None:
    open_end, fixed = (
        changes(spark, feed, startingVersion=3),
        changes(spark, feed, startingVersion=3, endingVersion=4),
    )
    assert open_end.count() == fixed.count() == 2
    deltalake.DeltaTable(feed).delete("id = 9")
    assert (open_end.count(), fixed.count()) == (3, 2)
    open_end.createOrReplaceTempView("change_rows")
    with pytest.raises(DeltaError, match="view"):
        spark.sql("INSERT INTO change_rows SELECT * FROM change_rows")
    spark.catalog.dropTempView("change_rows")


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.sampled(2)
def test_deletion_vectors_give_the_rows_in_which_they_differ(
    spark: SparkSession, tmp_path: Path, counted: bool
) -> None:
    path = str(tmp_path / "vectors")
    deltalake.write_deltalake(path, pa.table({"id": range(10)}), configuration=FEED)
    if not counted:  # then nobody knows how many rows the file has
        edit_commit(path, lambda action: action.get("add", {}).pop("stats", None))
    [file] = paths(path)
    mark_deleted(path, {file: [1, 2]})
    mark_deleted(path, {file: [1, 2, 7]}, is_inline=True)
    mark_deleted(path, {file: [2, 3]})  # as RESTORE may do
    mark_deleted(path, {file: [2, 3, 4]}, data_change=False)
    of_version = {1: {"delete": [1, 2]}, 2: {"delete": [7]}, 3: {"insert": [1, 7], "delete": [3]}, 4: {}}
    frame = changes(spark, path, startingVersion=1)
    got: dict[int, dict[str, list[int]]] = {version: {} for version in of_version}
    for change in sorted(frame.select("_commit_version", "_change_type", "id").collect()):
        got[change[0]].setdefault(change[1], []).append(change[2])
    assert got == of_version
    assert frame.count() == 6
    assert frame.where("_change_type = 'delete'").count() == 4
    assert frame.where("id = 7").count() == 2


FEEDS = [
    pytest.param(entry, id=entry["name"])
    for entry in ENTRIES
    if entry.get("kind") == "cdf" and missing_features(entry) - {"rows", "opens"} <= SUPPORTED
]


@needed
@pytest.mark.parametrize("entry", FEEDS)
@pytest.mark.sampled(2)
def test_the_reference_tables(spark: SparkSession, entry: dict[str, Any]) -> None:
    path = str(GOLDENS / entry["path"])
    for bounds, file in entry["changes"].items():
        first, last = bounds.split("-")
        wanted = pq.read_table(GOLDENS / FEATURES / file)
        frame = changes(spark, path, startingVersion=first, endingVersion=last)
        got = frame.select(*wanted.column_names).toArrow().cast(wanted.schema)
        assert _lines(got) == _lines(wanted), bounds
    for bounds, condition in entry["change_errors"].items():
        first, last = bounds.split("-")
        with pytest.raises(DeltaError) as raised:
            changes(spark, path, startingVersion=first, endingVersion=last).collect()
        assert raised.value.error_class == condition, bounds


def _lines(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))
