"""Which version a frame reads: the newest at each execution, or the one of its options."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from deltaflow.errors import (
    CorruptLogError,
    DeltaAnalysisException,
    DeltaError,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
    VersionNotFoundError,
)
from tests.plans import executed_plan
from tests.tables import actions, commit_file, ids, load, versions, write, write_commit

pytestmark = pytest.mark.spark


def append_ids(spark, table, *numbers):
    write(spark.createDataFrame([(n,) for n in numbers], "id long"), table)


def set_schema(table, change, *, keep_files=True):
    """Commits a change of the table's schema, as another implementation makes it."""
    committed = versions(table)
    [*_, metadata] = [found for version in committed for found in actions(table, "metaData", version)]
    schema = json.loads(metadata["schemaString"])
    change(schema["fields"], metadata)
    metadata["schemaString"] = json.dumps(schema)
    lines = [{"metaData": metadata}]
    if not keep_files:
        lines += [
            {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}
            for version in committed
            for add in actions(table, "add", version)
        ]
    write_commit(table, committed[-1] + 1, *lines)


def field(name, type_name="long", nullable=True):
    return {"name": name, "type": type_name, "nullable": nullable, "metadata": {}}


def test_each_execution_reads_the_newest_version(spark, table):
    append_ids(spark, table, 1)
    frame = load(spark, table)
    filtered, counted = frame.where("id > 0"), frame.groupBy().count()
    append_ids(spark, table, 2)
    assert ids(frame) == ids(filtered) == [1, 2]
    assert (frame.count(), counted.first()["count"]) == (2, 2)
    append_ids(spark, table, 3)
    assert (frame.count(), filtered.count()) == (3, 3)
    assert len(frame.select("id").inputFiles()) == 3
    frame.createOrReplaceTempView("newest")
    append_ids(spark, table, 4)
    assert spark.sql("SELECT count(*) AS n FROM newest").first().n == 4


def test_one_execution_reads_one_version(spark, tmp_path, monkeypatch):
    """Another writer commits whenever the newest version is looked up, and no query sees two versions."""
    from deltaflow.log import DeltaLog

    table = str(tmp_path / "raced")
    append_ids(spark, table, 1)
    frame = load(spark, table)
    frame.createOrReplaceTempView("raced")
    snapshot, looks = DeltaLog.snapshot, []

    def look(self):
        found = snapshot(self)
        if self.path == table:
            looks.append(found.version)
            [add] = actions(table, "add", 0)
            copy = shutil.copy(Path(table, add["path"]), f"{table}/{found.version}.parquet")
            write_commit(table, found.version + 1, {"add": {**add, "path": copy}})
        return found

    monkeypatch.setattr(DeltaLog, "snapshot", look)
    joined = frame.alias("a").crossJoin(frame.alias("b")).crossJoin(load(spark, table).alias("c"))
    looks.clear()
    rows = len(joined.collect())
    assert rows == (looks[0] + 1) ** 3
    both = spark.sql(
        "SELECT (SELECT count(*) FROM raced) AS n, count(hash(id)) AS m, "
        "(SELECT sum(id) FROM raced WHERE id IN (SELECT id FROM raced)) AS s FROM raced"
    ).first()
    assert both.n == both.m == both.s


@pytest.mark.parametrize("make", ["newSession", "cloneSession"])
def test_sessions_made_later_have_the_rules(spark, table, make):
    append_ids(spark, table, 1)
    if make == "newSession":
        session = spark.newSession()
    else:
        session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    frame = load(session, table)
    plan = executed_plan(frame.groupBy().count())
    assert "LocalTableScan" in plan
    append_ids(spark, table, 2)
    assert ids(frame) == [1, 2]


def test_columns_added_since_the_load_are_not_shown(spark, table):
    append_ids(spark, table, 1)
    frame = load(spark, table)
    set_schema(table, lambda fields, _: fields.insert(0, field("more")))
    spark.range(2, 3).selectExpr("id * 10 AS more", "id").coalesce(1).write.format("delta").mode(
        "append"
    ).save(table)
    assert frame.columns == ["id"]
    assert ids(frame) == [1, 2]
    assert ids(frame.where("id = 2")) == [2]
    assert load(spark, table).columns == ["more", "id"]


def test_a_new_partitioning_is_read(spark, tmp_path):
    table = str(tmp_path / "t")
    spark.range(2).selectExpr("id", "id AS p").write.format("delta").save(table)
    frame = load(spark, table)

    def repartition(fields, metadata):
        metadata["partitionColumns"] = ["p"]

    set_schema(table, repartition, keep_files=False)
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").mode("append").save(table)
    assert ids(frame.where("p = 1")) == [1, 3]
    assert frame.columns == ["id", "p"]


@pytest.mark.parametrize(
    "change",
    [
        lambda fields, _: fields.pop(),
        lambda fields, _: fields[1].update(type="string"),
        lambda fields, _: fields[1].update(name="V"),
        lambda fields, _: fields[0].update(nullable=True),
    ],
    ids=["dropped", "retyped", "renamed", "nullable"],
)
def test_a_schema_that_no_longer_fits(spark, tmp_path, change):
    table = str(tmp_path / "t")
    spark.range(2).selectExpr("id", "id AS v").write.format("delta").save(table)
    set_schema(table, lambda fields, _: fields[0].update(nullable=False), keep_files=False)
    frame = load(spark, table)
    old = spark.read.format("delta").option("versionAsOf", 0).load(table)
    set_schema(table, change)
    with pytest.raises(DeltaAnalysisException) as caught:
        frame.collect()
    assert caught.value.getCondition() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    assert caught.value.getSqlState() == "KD007"
    assert "bigint" in str(caught.value)
    assert table in str(caught.value)
    assert ids(old) == [0, 1]


def test_a_table_that_was_made_anew(spark, table):
    append_ids(spark, table, 1)
    frame = load(spark, table)
    shutil.rmtree(table)
    with pytest.raises(DeltaTableNotFoundError):
        frame.collect()
    append_ids(spark, table, 2)
    with pytest.raises(CorruptLogError, match="replaced by another table"):
        frame.select("id").collect()
    assert ids(load(spark, table)) == [2]


@pytest.fixture(scope="module")
def history(spark, tmp_path_factory):
    """Three versions with one row each, of 2024-01-01, 02 and 03, at noon UTC."""
    table = tmp_path_factory.mktemp("history") / "table"
    for version in range(3):
        append_ids(spark, table, version)
    for version in range(3):
        noon = dt.datetime(2024, 1, 1 + version, 12, tzinfo=dt.UTC).timestamp()
        os.utime(commit_file(table, version), (noon, noon))
    return str(table)


@pytest.mark.parametrize(
    ("options", "suffix", "last"),
    [
        ({"versionAsOf": "1"}, "", 1),
        ({"VERSIONASOF": 0}, "", 0),
        ({}, "@v1", 1),
        ({}, "@V2", 2),
        ({"timestampAsOf": "2024-01-02 12:00:00"}, "", 1),
        ({"timestampAsOf": "2024-01-02 11:59:59.999"}, "", 0),
        ({"timestampAsOf": "2024-01-03"}, "", 1),
        ({"timestampAsOf": "2024-01-02T12:00:00Z"}, "", 1),
        ({"timestampAsOf": "2024-01-02 13:00:00+02:00"}, "", 0),
        ({}, "@20240102120000000", 1),
        ({}, "@20240102115959999", 0),
    ],
)
@pytest.mark.sampled(3)
def test_time_travel(spark, history, options, suffix, last):
    frame = spark.read.format("delta").options(**options).load(history + suffix)
    assert ids(frame) == list(range(last + 1))
    assert frame.count() == last + 1


def test_the_time_zone_of_the_session(spark, history):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    for options, suffix in (
        ({"timestampAsOf": "2024-01-02 21:00:00"}, ""),
        ({}, "@20240102210000000"),
    ):
        assert session.read.format("delta").options(**options).load(history + suffix).count() == 2


@pytest.mark.parametrize(
    ("options", "suffix", "error_type", "condition"),
    [
        ({"versionAsOf": 3}, "", VersionNotFoundError, "DELTA_VERSION_NOT_FOUND"),
        ({}, "@v3", VersionNotFoundError, "DELTA_VERSION_NOT_FOUND"),
        ({"versionAsOf": "x"}, "", DeltaIllegalArgumentException, "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"),
        ({"versionAsOf": ""}, "", DeltaIllegalArgumentException, "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"),
        ({"timestampAsOf": "soon"}, "", DeltaIllegalArgumentException, "DELTA_TIMESTAMP_INVALID"),
        ({}, "@20241301000000000", DeltaIllegalArgumentException, "DELTA_INVALID_TIMESTAMP_FORMAT"),
        (
            {"timestampAsOf": "2023-12-31"},
            "",
            VersionNotFoundError,
            "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        ),
        ({"timestampAsOf": "2024-01-04"}, "", VersionNotFoundError, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        (
            {"versionAsOf": 1, "timestampAsOf": "2024-01-02"},
            "",
            DeltaIllegalArgumentException,
            "DELTA_ONEOF_IN_TIMETRAVEL",
        ),
        (
            {"versionAsOf": 1},
            "@v1",
            DeltaIllegalArgumentException,
            "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        ),
    ],
)
@pytest.mark.sampled(3)
def test_time_travel_that_goes_nowhere(spark, history, options, suffix, error_type, condition):
    with pytest.raises(error_type) as caught:
        spark.read.format("delta").options(**options).load(history + suffix)
    assert caught.value.getCondition() == condition


def test_a_table_whose_own_name_ends_so(spark, tmp_path):
    append_ids(spark, tmp_path / "t", 1)
    append_ids(spark, tmp_path / "t@v0", 2)
    assert ids(load(spark, tmp_path / "t@v0")) == [2]
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled", "false")
    with pytest.raises(DeltaTableNotFoundError):
        load(session, tmp_path / "t@v00")


def test_a_fixed_version_stays(spark, table):
    append_ids(spark, table, 1)
    old = load(spark, f"{table}@v0")
    append_ids(spark, table, 2)
    assert old.count() == 1
    assert ids(old.union(load(spark, table))) == [1, 1, 2]


@pytest.fixture(scope="module")
def months(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("months") / "table")
    spark.range(12).selectExpr(
        "id", "cast(id % 3 AS int) AS month", "if(id = 3, null, concat('a b/', id % 2)) AS kind"
    ).write.format("delta").partitionBy("month", "kind").save(path)
    return path


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("month=1", [1, 4, 7, 10]),
        ("month=1/", [1, 4, 7, 10]),
        ("month=01", [1, 4, 7, 10]),
        ("month=1/kind=a b%2F0", [4, 10]),
        ("month=0/kind=__HIVE_DEFAULT_PARTITION__", [3]),
        ("kind=a b%2F1", [1, 5, 7, 9, 11]),
        ("month=7", []),
    ],
)
@pytest.mark.sampled(3)
def test_a_path_inside_a_table_reads_its_partition(spark, months, folder, expected, caplog):
    with caplog.at_level(logging.WARNING):
        frame = load(spark, f"{months}/{folder}")
    assert ids(frame) == expected
    assert frame.count() == len(expected)
    assert frame.where("id > 4").count() == len([n for n in expected if n > 4])
    assert frame.columns == ["id", "month", "kind"]
    assert "not recommended" in caplog.text
    assert months in caplog.text


def test_a_link_to_a_partition_reads_it(spark, months, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(f"{months}/month=1")
    assert ids(load(spark, str(link))) == [1, 4, 7, 10]
    assert ids(load(spark, f"{link}/kind=a b%2F0")) == [4, 10]


def test_a_path_inside_a_table_is_another_frame(spark, months):
    assert not load(spark, f"{months}/month=1").sameSemantics(load(spark, months))
    assert load(spark, f"{months}/month=1@v0").count() == 4


def test_a_path_inside_a_table_of_numbers(spark, table):
    """NaN equals itself, and -0.0 equals 0.0, as in Spark."""
    rows = spark.sql("SELECT * FROM VALUES (1, double('NaN')), (2, -0.0D), (3, 0.5D) AS t (id, p)")
    rows.write.format("delta").partitionBy("p").save(table)
    assert [ids(load(spark, f"{table}/p={p}")) for p in ("NaN", "0.0", "0.5")] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("folder", "condition"),
    [
        ("id=1", "DELTA_NON_PARTITION_COLUMN_SPECIFIED"),
        ("month=1/x", "DELTA_INVALID_PARTITION_PATH"),
        ("month=*", "DELTA_INVALID_PARTITION_PATH"),
        ("_delta_log", "DELTA_INVALID_PARTITION_PATH"),
    ],
)
def test_a_path_inside_a_table_that_is_no_partition(spark, months, folder, condition):
    with pytest.raises(DeltaError) as caught:
        load(spark, f"{months}/{folder}")
    assert caught.value.getCondition() == condition
