"""Partitions by timestamps without a zone, as deltalake writes them: every door means the same instants."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import ConcurrentAppendException
from deltaflow.log import set_observer
from tests.tables import actions, commit_file, ids, load

pytestmark = pytest.mark.spark

MIDNIGHT = "2024-01-01 00:00:00"
# Of the others two are midnight to who takes the session's time for UTC, or UTC for the session's.
TEXTS = [MIDNIGHT, "2024-01-01 08:00:00", "2023-12-31 16:00:00", "2024-01-01 05:30:00", "2023-12-31 18:30:00"]
REPLACED = [2, 3, 4, 5, 6, 9]
REMOVED = [2, 3, 4, 5, 6]


@pytest.fixture(params=["America/Los_Angeles", pytest.param("Asia/Kolkata", marks=pytest.mark.long)])
def zone(setting: Callable[[str, str], None], request: pytest.FixtureRequest) -> str:
    setting("spark.sql.session.timeZone", request.param)
    return request.param


@pytest.fixture
def zoneless(tmp_path: Path, zone: str) -> str:
    """ids 1 to 5, one a partition of `TEXTS`, and id 6 without a time; in a folder that Spark can name."""
    path = str(tmp_path / "zoneless")
    times = [dt.datetime.fromisoformat(text).replace(tzinfo=UTC) for text in TEXTS]
    data = pa.table(
        {
            "id": pa.array(range(1, 7), pa.int32()),
            "n": pa.array([0] * 6, pa.int32()),
            "ts": pa.array([*times, None], pa.timestamp("us", "UTC")),
        }
    )
    deltalake.write_deltalake(path, data, partition_by=["ts"])
    commit = commit_file(path, 0)
    assert f'"ts":"{MIDNIGHT}.000000"' in commit.read_text()
    return path


def instant(text: str, zone: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def times(frame: DataFrame) -> dict[int, dt.datetime | None]:
    return {row["id"]: row["ts"] for row in frame.select("id", "ts").toArrow().to_pylist()}


def expected(zone: str) -> dict[int, dt.datetime | None]:
    return {1 + i: instant(text, zone) for i, text in enumerate(TEXTS)} | {6: None}


def new_row(spark: SparkSession, time: str = MIDNIGHT) -> DataFrame:
    return spark.sql(f"SELECT 9 AS id, 1 AS n, TIMESTAMP'{time}' AS ts")


def test_a_scan(spark, zoneless, zone):
    assert times(load(spark, zoneless)) == expected(zone)
    assert ids(load(spark, zoneless).where(f"ts = TIMESTAMP'{MIDNIGHT}'")) == [1]
    assert ids(spark.sql(f"SELECT id FROM delta.`{zoneless}` WHERE ts = '{MIDNIGHT}'")) == [1]
    assert ids(load(spark, f"{zoneless}/ts={MIDNIGHT}")) == [1]
    assert ids(load(spark, f"{zoneless}/ts={instant(MIDNIGHT, zone):%Y-%m-%dT%H:%M:%SZ}")) == [1]
    stream = spark.readStream.format("delta").load(zoneless).where(f"ts = TIMESTAMP'{MIDNIGHT}'")
    query = stream.writeStream.format("memory").queryName("zoneless").trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert ids(spark.table("zoneless")) == [1]


def dynamic_option(spark: SparkSession, path: str) -> None:
    options = {"partitionOverwriteMode": "dynamic"}
    new_row(spark).write.format("delta").mode("overwrite").options(**options).save(path)


def dynamic_insert(spark: SparkSession, path: str) -> None:
    new_row(spark).createOrReplaceTempView("new_row")
    spark.sql(f"INSERT OVERWRITE delta.`{path}` SELECT * FROM new_row")


def replace_where(spark: SparkSession, path: str) -> None:
    new_row(spark).write.format("delta").mode("overwrite").option("replaceWhere", f"ts = '{MIDNIGHT}'").save(
        path
    )


def insert_replace_where(spark: SparkSession, path: str) -> None:
    new_row(spark).createOrReplaceTempView("new_row")
    spark.sql(f"INSERT INTO delta.`{path}` REPLACE WHERE ts = TIMESTAMP'{MIDNIGHT}' SELECT * FROM new_row")


def update(spark: SparkSession, path: str) -> None:
    spark.sql(f"UPDATE delta.`{path}` SET id = 9, n = 1 WHERE ts = TIMESTAMP'{MIDNIGHT}'")


def merge(spark: SparkSession, path: str) -> None:
    DeltaTable.forPath(spark, path).alias("t").merge(
        new_row(spark).alias("s"), "t.ts = s.ts"
    ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@pytest.mark.parametrize(
    "run", [dynamic_option, dynamic_insert, replace_where, insert_replace_where, update, merge]
)
@pytest.mark.sampled(3)
def test_an_operation_that_replaces_a_partition(spark, settings, zoneless, zone, run):
    with settings({"spark.sql.sources.partitionOverwriteMode": "dynamic"} if run is dynamic_insert else {}):
        run(spark, zoneless)
    there = expected(zone)
    assert times(load(spark, zoneless)) == {9: there.pop(1), **there}
    # What was written has a zone: it is the same to a session in another.
    assert ids(load(spark, zoneless)) == REPLACED


def delete(spark: SparkSession, path: str) -> None:
    spark.sql(f"DELETE FROM delta.`{path}` WHERE ts = TIMESTAMP'{MIDNIGHT}'")


def delete_by_table(spark: SparkSession, path: str) -> None:
    DeltaTable.forPath(spark, path).delete(F.col("ts") == F.lit(MIDNIGHT).cast("timestamp"))


def delete_by_data_too(spark: SparkSession, path: str) -> None:
    spark.sql(f"DELETE FROM delta.`{path}` WHERE ts = TIMESTAMP'{MIDNIGHT}' AND id > 0")


def delete_by_merge(spark: SparkSession, path: str) -> None:
    DeltaTable.forPath(spark, path).alias("t").merge(
        new_row(spark).alias("s"), "t.ts = s.ts"
    ).whenMatchedDelete().execute()


@pytest.mark.parametrize("run", [delete, delete_by_table, delete_by_data_too, delete_by_merge])
@pytest.mark.sampled(3)
def test_an_operation_that_removes_a_partition(spark, zoneless, zone, run):
    run(spark, zoneless)
    there = expected(zone)
    del there[1]
    assert times(load(spark, zoneless)) == there


def test_partitions_are_listed_by_their_instants(spark, zoneless, zone):
    of_midnight = f"{instant(MIDNIGHT, zone):%Y-%m-%dT%H%%3A%M%%3A%S}.000000Z"
    # The same instant once more, with its zone.
    new_row(spark).write.format("delta").mode("append").save(zoneless)
    shown = [row[0] for row in spark.sql(f"SHOW PARTITIONS delta.`{zoneless}`").collect()]
    assert len(shown) == 6
    assert f"ts={of_midnight}" in shown
    one = spark.sql(f"SHOW PARTITIONS delta.`{zoneless}` PARTITION (ts = '{MIDNIGHT}')").collect()
    assert [row[0] for row in one] == [f"ts={of_midnight}"]
    none = spark.sql(f"SHOW PARTITIONS delta.`{zoneless}` PARTITION (ts = 'someday')").collect()
    assert none == []


def test_a_partition_of_both_forms_is_one(spark, zoneless, zone):
    new_row(spark).write.format("delta").mode("append").save(zoneless)
    assert ids(load(spark, zoneless).where(f"ts = '{MIDNIGHT}'")) == [1, 9]
    dynamic_option(spark, zoneless)
    assert ids(load(spark, zoneless)) == REPLACED
    delete(spark, zoneless)
    assert ids(load(spark, zoneless)) == REMOVED


def test_optimize_of_a_partition(spark, zoneless, zone, settings):
    for _ in range(2):
        new_row(spark).write.format("delta").mode("append").save(zoneless)
    # The column stays what it is where a setting changes what SQL calls a timestamp.
    with settings({"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        DeltaTable.forPath(spark, zoneless).optimize().where(f"ts = '{MIDNIGHT}'").executeCompaction()
    [added] = actions(zoneless, "add")
    removed = {remove["partitionValues"]["ts"] for remove in actions(zoneless, "remove")}
    assert removed == {added["partitionValues"]["ts"]}
    assert load(spark, zoneless).where(f"ts = '{MIDNIGHT}'").count() == 3
    spark.sql(f"OPTIMIZE delta.`{zoneless}` WHERE ts = TIMESTAMP'2024-01-01 08:00:00'")
    assert times(load(spark, zoneless).where("id < 9")) == expected(zone)


def test_clones_restores_and_vacuum(spark, tmp_path, zoneless, zone, settings):
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, zoneless).clone(clone, isShallow=True)
    delete(spark, zoneless)
    dynamic_option(spark, clone)
    assert ids(load(spark, zoneless)) == REMOVED
    assert ids(load(spark, clone)) == REPLACED
    DeltaTable.forPath(spark, zoneless).restoreToVersion(0)
    assert times(load(spark, zoneless)) == expected(zone)
    replace_where(spark, zoneless)
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        DeltaTable.forPath(spark, clone).vacuum(0)
        DeltaTable.forPath(spark, zoneless).vacuum(0)
    there = expected(zone)
    assert times(load(spark, zoneless)) == {9: there.pop(1), **there}


def test_a_conversion_reads_folders_as_spark_does(spark, tmp_path, zone):
    path = str(tmp_path / "parquet")
    rows = spark.sql(f"SELECT 1 AS id, 0 AS n, TIMESTAMP'{MIDNIGHT}' AS ts UNION ALL SELECT 2, 0, NULL")
    rows.write.partitionBy("ts").parquet(path)
    spark.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (ts TIMESTAMP)")
    assert times(load(spark, path)) == {1: instant(MIDNIGHT, zone), 2: None}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert times(load(spark, path)) == {1: instant(MIDNIGHT, zone), 2: None}


def files_of_manifests(path: str) -> set[str]:
    root = Path(path, "_symlink_format_manifest")
    return {line for file in root.rglob("manifest") for line in file.read_text().splitlines()}


def test_manifests_list_the_files_of_the_table(spark, zoneless, zone):
    spark.sql(
        f"ALTER TABLE delta.`{zoneless}` "
        "SET TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')"
    )
    for run in (dynamic_option, delete, dynamic_option, replace_where):
        run(spark, zoneless)
        in_table = {file.removeprefix("file:") for file in load(spark, zoneless).inputFiles()}
        listed = {file.removeprefix("file:") for file in files_of_manifests(zoneless)}
        assert {Path(file).name for file in listed} == {Path(file).name for file in in_table}
    assert ids(load(spark, zoneless)) == REPLACED


@contextlib.contextmanager
def rival(act: Callable[[], None]) -> Iterator[None]:
    """Acts when the next commit is about to be put."""
    pending = iter([True])

    def observe(event: str, facts: dict[str, object]) -> None:
        if event == "commit prepared" and next(pending, False):
            act()

    set_observer(observe)
    try:
        yield
    finally:
        set_observer(None)


@pytest.mark.parametrize("run", [dynamic_option, delete, update, merge, replace_where])
@pytest.mark.sampled(3)
def test_a_rival_in_the_same_partition_is_a_conflict(spark, settings, zoneless, zone, run):
    spark.sql(f"ALTER TABLE delta.`{zoneless}` SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    with rival(lambda: append_zoneless(zoneless, MIDNIGHT)), pytest.raises(ConcurrentAppendException):
        run(spark, zoneless)


@pytest.mark.parametrize("run", [dynamic_option, delete, update, replace_where])
@pytest.mark.sampled(3)
def test_a_rival_in_another_partition_is_none(spark, settings, zoneless, zone, run):
    other = f"{instant(MIDNIGHT, zone):%Y-%m-%d %H:%M:%S}"  # the same to who takes texts for UTC
    spark.sql(f"ALTER TABLE delta.`{zoneless}` SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    with rival(lambda: append_zoneless(zoneless, other)):
        run(spark, zoneless)
    expected_ids = sorted([*(REMOVED if run is delete else REPLACED), 7])
    assert ids(load(spark, zoneless)) == expected_ids


def append_zoneless(path: str, text: str) -> None:
    """Another writer's row 7, whose partition has no zone."""
    time = dt.datetime.fromisoformat(text).replace(tzinfo=UTC)
    row = pa.table(
        {
            "id": pa.array([7], pa.int32()),
            "n": pa.array([0], pa.int32()),
            "ts": pa.array([time], pa.timestamp("us", "UTC")),
        }
    )
    deltalake.write_deltalake(path, row, mode="append")


def with_value(path: str, copy: Path, old: str, new: str) -> str:
    """A copy of a table, with another text for a partition value in its first commit."""
    shutil.copytree(path, copy)
    commit = commit_file(copy, 0)
    lines = commit.read_text().replace(f'"{old}"', json.dumps(new))
    commit.write_text(lines)
    return str(copy)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-01-01T00:00:00.000000Z", True),
        ("2024-01-01T00:00:00Z", True),
        ("2024-01-01 00:00:00+0000", True),
        ("2024-01-01 00:00:00", False),
        ("2024-01-01T00:00:00.0", False),
        ("2024-01-01", False),
    ],
)
@pytest.mark.sampled(3)
def test_every_form_of_a_value(spark, tmp_path, zoneless, zone, text, utc):
    path = with_value(zoneless, tmp_path / "copy", f"{MIDNIGHT}.000000", text)
    moment = instant(MIDNIGHT, "UTC" if utc else zone)
    assert times(load(spark, path))[1] == moment
    row = spark.createDataFrame([(9, 1, moment)], "id int, n int, ts timestamp")
    row.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    others: Sequence[int] = [i for i, time in expected(zone).items() if i > 1 and time != moment]
    assert ids(load(spark, path)) == sorted([9, *others])
