"""CONVERT TO DELTA: which directories become which tables, and that nothing else happens to them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from deltaflow import DeltaTable
from deltaflow.errors import CommitOutcomeUnknownError, DeltaAnalysisException, DeltaError, StoreError
from deltaflow.log import DeltaLog
from deltaflow.log.observer import set_observer
from deltaflow.store import LocalLogStore
from deltaflow.store.local_directory import LocalDataDirectory
from tests.tables import actions, load, rows, rows_by_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

Rows = list[Any]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture(autouse=True)
def no_observer() -> Iterator[None]:
    yield
    set_observer(None)


def convert(spark: SparkSession, path: str, partitions: Any = None) -> DeltaTable:
    return DeltaTable.convertToDelta(spark, f"parquet.`{path}`", partitions)


def files_beside_the_log(path: str) -> dict[str, tuple[str, int]]:
    """Every file outside of the log, with its hash and the time of its last change."""
    return {
        str(file.relative_to(path)): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in Path(path).rglob("*")
        if file.is_file() and "_delta_log" not in file.parts
    }


def put(path: str, name: str, **columns: Any) -> Path:
    """A Parquet file that pyarrow writes."""
    file = Path(path, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def condition_of(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value.getCondition())


def test_without_partitions(
    spark: SparkSession,
    path: str,
) -> None:
    spark.range(10, numPartitions=2).selectExpr("id", "cast(id as string) s").write.parquet(path)
    before, expected = files_beside_the_log(path), rows(spark.read.parquet(path))
    table = convert(spark, path)
    assert files_beside_the_log(path) == before
    assert rows(table.toDF()) == rows_by_deltalake(path) == expected
    (info,) = actions(path, "commitInfo")
    assert info["operation"] == "CONVERT"
    assert info["operationParameters"] == {
        "numFiles": 2,
        "partitionedBy": "[]",
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    assert info["operationMetrics"] == {"numConvertedFiles": "2"}
    stats = [json.loads(add["stats"]) for add in actions(path, "add")]
    assert sum(of_file["numRecords"] for of_file in stats) == 10
    assert min(of_file["minValues"]["id"] for of_file in stats) == 0
    assert max(of_file["maxValues"]["s"] for of_file in stats) == "9"
    # it is a table like others
    spark.range(1).selectExpr("id", "'x' s").write.format("delta").mode("append").save(path)
    assert table.toDF().count() == 11


def test_inferred_partitions(spark: SparkSession, path: str) -> None:
    query = """select * from values
        (1, 7, 'a b/c=%', timestamp'2024-03-01 12:00:00.5', date'2024-01-05', 1.50),
        (2, null, null, null, null, null), (3, -1, 'é', timestamp'1999-12-31 00:00:00', date'1970-01-01',
        2.25) as t(i, n, s, ts, d, x)"""
    spark.sql(query).write.partitionBy("n", "s", "ts", "d", "x").parquet(path)
    read = spark.read.parquet(path)
    table = convert(spark, path).toDF()
    assert table.schema == read.schema
    assert rows(table) == rows(read) == rows_by_deltalake(path)
    assert table.where("ts = timestamp'2024-03-01 12:00:00.5' and n = 7").count() == 1


def test_inference_of_types_may_be_off(spark: SparkSession, path: str, setting: Any) -> None:
    spark.range(2).selectExpr("id", "id p").write.partitionBy("p").parquet(path)
    setting("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    assert convert(spark, path).toDF().schema["p"].dataType == StringType()


@pytest.mark.parametrize(
    "given",
    [
        "p string, q int",
        StructType([StructField("p", StringType()), StructField("q", IntegerType())]),
        "P string, Q int",
        "p varchar(2), q int",
    ],
    ids=["DDL", "StructType", "in other case", "varchar"],
)
def test_given_partitions(spark: SparkSession, path: str, given: Any) -> None:
    spark.range(4).selectExpr("id", "id p", "id * 2 q").write.partitionBy("p", "q").parquet(path)
    table = convert(spark, path, given).toDF()
    assert {row.id: tuple(row[1:]) for row in table.collect()} == {i: (str(i), 2 * i) for i in range(4)}
    names = ["P", "Q"] if given == "P string, Q int" else ["p", "q"]
    assert table.columns == ["id", *names]
    assert actions(path, "commitInfo")[0]["operationParameters"]["partitionedBy"] == json.dumps(
        names, separators=(",", ":")
    )


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ("p int", "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        ("p int, q int, r int", "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        ("q int, p int", "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"),
        ("p int, q int", "DELTA_FAILED_CAST_PARTITION_VALUE"),
        ("p int, q array<int>", None),
    ],
)
def test_wrong_partitions(spark: SparkSession, path: str, given: str, condition: str | None) -> None:
    spark.range(2).selectExpr("id", "id p", "'x' q").write.partitionBy("p", "q").parquet(path)
    with pytest.raises(AnalysisException) as error:
        convert(spark, path, given)
    assert condition is None or condition_of(error) == condition
    assert not Path(path, "_delta_log").exists()


def test_files_in_other_folders(spark: SparkSession, path: str) -> None:
    put(path, "p=1/a.parquet", i=[1])
    put(path, "b.parquet", i=[2])
    with pytest.raises(DeltaAnalysisException, match=r"b\.parquet|a\.parquet") as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"
    assert not Path(path, "_delta_log").exists()


def test_a_folder_with_a_colon(spark: SparkSession, path: str) -> None:
    """Hive escapes it, other writers do not; Spark reads both."""
    put(path, "p=12:30/a.parquet", i=[1])
    put(path, "p=12%3A45/b.parquet", i=[2])
    table = convert(spark, path).toDF()
    assert (
        sorted(table.collect()) == sorted(spark.read.parquet(path).collect()) == [(1, "12:30"), (2, "12:45")]
    )
    assert table.where("p = '12:30'").collect() == [(1, "12:30")]


def test_schemas_are_merged(spark: SparkSession, path: str) -> None:
    put(path, "1.parquet", a=pa.array([1], pa.int8()), b=["x"])
    put(path, "2.parquet", c=[2.5], b=["y"], a=pa.array([300], pa.int16()))
    put(path, "3.parquet", b=["z"])
    table = convert(spark, path).toDF()
    assert table.schema.simpleString() == "struct<a:smallint,b:string,c:double>"
    assert rows(table) == rows_by_deltalake(path)
    assert table.where("a is null").select("b").collect() == [("z",)]
    assert table.where("a = 300").count() == 1


def test_columns_in_other_case(spark: SparkSession, path: str, settings: Any) -> None:
    """They have no statistics. A session that minds the case reads them, too, and rewrites what it reads."""
    put(path, "1.parquet", a=[1])
    put(path, "2.parquet", A=[2])
    table = convert(spark, path)
    assert sorted(row.a for row in table.toDF().where("a is not null").collect()) == [1, 2]
    assert table.toDF().where("a > 1").count() == 1
    with settings({"spark.sql.caseSensitive": "true"}):
        assert table.toDF().where("a > 1").count() == 1
        table.optimize().executeCompaction()
    assert sorted(row.a for row in table.toDF().collect()) == [1, 2]


def test_no_mapping_by_id(spark: SparkSession, path: str, settings: Any) -> None:
    """The files have no ids: each column would be null, or no reader could read them."""
    put(path, "1.parquet", a=[1])
    mode = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    with settings({mode: "id"}), pytest.raises(DeltaError) as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING"
    assert not Path(path, "_delta_log").exists()
    with settings({mode: "name"}):
        assert rows(convert(spark, path).toDF()) == [{"a": 1}]


def test_schemas_that_do_not_merge(spark: SparkSession, path: str) -> None:
    put(path, "1.parquet", a=[1])
    put(path, "2.parquet", a=["x"])
    with pytest.raises(DeltaAnalysisException, match=r"2\.parquet") as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_FAILED_MERGE_SCHEMA_FILE"
    assert not Path(path, "_delta_log").exists()


def test_old_timestamps(spark: SparkSession, path: str, setting: Any) -> None:
    setting("spark.sql.parquet.outputTimestampType", "INT96")
    spark.sql("select id, timestamp'2024-03-01 12:00:00' t from range(2)").coalesce(1).write.parquet(path)
    table = convert(spark, path).toDF()
    assert {row.t for row in table.collect()} == {dt.datetime(2024, 3, 1, 12)}
    (add,) = actions(path, "add")
    stats = json.loads(add["stats"])
    assert list(stats["maxValues"]) == ["id"]
    assert stats["nullCount"] == {"id": 0, "t": 0}


def test_types(spark: SparkSession, path: str) -> None:
    put(
        path,
        "1.parquet",
        u=pa.array([1], pa.uint32()),
        local=pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us")),
        x=[Decimal("1.25")],
        raw=[b"x"],
        s=[{"a": [1, 2]}],
    )
    table = convert(spark, path).toDF()
    assert table.schema == spark.read.parquet(path).schema
    assert rows(table) == rows(spark.read.parquet(path))
    assert "timestampNtz" in (DeltaLog.for_table(path).snapshot().protocol.writer_features or ())


def test_a_type_that_a_table_cannot_have(spark: SparkSession, path: str) -> None:
    put(path, "1.parquet", t=pa.array([dt.time(12)], pa.time64("us")))
    with pytest.raises((AnalysisException, DeltaError)):
        convert(spark, path)
    assert not Path(path, "_delta_log").exists()


def test_what_readers_do_not_see_is_no_part(spark: SparkSession, path: str) -> None:
    put(path, "_p=1/a.parquet", i=[1])
    for name in ("_SUCCESS", "_metadata", ".a.parquet.crc", "_temporary/0/b.parquet", ".hidden/c.parquet"):
        Path(path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(path, name).write_text("not Parquet")
    assert convert(spark, path).toDF().collect() == [(1, 1)]


def test_a_file_that_is_not_parquet(spark: SparkSession, path: str) -> None:
    put(path, "a.parquet", i=[1])
    Path(path, "b.csv").write_text("i\n1\n")
    with pytest.raises(DeltaAnalysisException, match=r"b\.csv") as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_FAILED_READ_FILE_FOOTER"
    assert not Path(path, "_delta_log").exists()


def test_nothing_there(spark: SparkSession, path: str) -> None:
    with pytest.raises(DeltaAnalysisException) as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_PATH_DOES_NOT_EXIST"
    assert not Path(path).exists()
    Path(path).mkdir()
    with pytest.raises(DeltaAnalysisException) as error:
        convert(spark, path)
    assert condition_of(error) == "DELTA_EMPTY_DIRECTORY"
    assert list(Path(path).iterdir()) == []


@pytest.mark.parametrize(
    ("identifier", "condition"),
    [
        ("`{path}`", "DELTA_MISSING_PROVIDER_FOR_CONVERT"),
        ("json.`{path}`", "DELTA_CONVERT_NON_PARQUET_TABLE"),
        ("no_such_table", "TABLE_OR_VIEW_NOT_FOUND"),
        ("a_view", "DELTA_OPERATION_NOT_ALLOWED"),
        ("delta.`{path}`", "DELTA_MISSING_DELTA_TABLE"),
    ],
)
def test_other_identifiers(spark: SparkSession, path: str, identifier: str, condition: str) -> None:
    put(path, "a.parquet", i=[1])
    spark.read.parquet(path).createOrReplaceTempView("a_view")
    with pytest.raises(AnalysisException) as error:
        DeltaTable.convertToDelta(spark, identifier.format(path=path))
    assert condition_of(error) == condition
    assert [file.name for file in Path(path).iterdir()] == ["a.parquet"]


def test_a_delta_table_stays(spark: SparkSession, path: str) -> None:
    spark.range(2).write.format("delta").save(path)
    before = DeltaLog.for_table(path).snapshot()
    put(path, "stranger.parquet", id=[7])
    for identifier in (f"parquet.`{path}`", f"delta.`{path}`"):
        table = DeltaTable.convertToDelta(spark, identifier)
        assert table.toDF().count() == 2
    assert DeltaLog.for_table(path).snapshot().version == before.version == 0


def test_a_part_of_a_delta_table(spark: SparkSession, path: str) -> None:
    """Two tables that own the same files would vacuum those that the other one needs."""
    spark.range(4).selectExpr("id", "id % 2 p").write.format("delta").partitionBy("p").save(path)
    with pytest.raises(DeltaAnalysisException, match=f"in the Delta table {path}") as error:
        convert(spark, f"{path}/p=1")
    assert condition_of(error) == "DELTA_OPERATION_NOT_ALLOWED"
    link = Path(path).with_name("link")
    link.symlink_to(f"{path}/p=1")
    with pytest.raises(DeltaAnalysisException, match=f"link lies in the Delta table {path}"):
        convert(spark, str(link))
    assert not Path(path, "p=1", "_delta_log").exists()


def test_files_of_a_streaming_sink(spark: SparkSession, path: str, tmp_path: Path, setting: Any) -> None:
    setting("spark.sql.streaming.fileSink.log.compactInterval", "2")
    source = str(tmp_path / "source")
    for _ in range(4):
        spark.range(2).coalesce(1).write.format("delta").mode("append").save(source)
        stream = spark.readStream.format("delta").load(source).selectExpr("id", "id p")
        writer = stream.writeStream.format("parquet").partitionBy("p").trigger(availableNow=True)
        options = {"checkpointLocation": str(tmp_path / "checkpoint")}
        writer.options(**options).start(path).awaitTermination()
    put(path, "p=0/left-by-a-failed-batch.parquet", id=[7])
    assert any(name.endswith(".compact") for name in os.listdir(Path(path, "_spark_metadata")))
    assert convert(spark, path, "p long").toDF().groupBy("id", "p").count().orderBy("id").collect() == [
        (0, 0, 4),
        (1, 1, 4),
    ]


def test_a_table_of_the_catalog(spark: SparkSession, database: Path) -> None:
    spark.sql(
        "create table t (id long comment 'key', s varchar(3), p int) using parquet partitioned by (p) "
        "tblproperties ('team' = 'me')"
    )
    spark.sql("insert into t values (1, 'abc', 1), (2, 'x', 2)")
    assert spark.table("t").count() == 2  # Spark keeps the plan of a table that it has read
    path = str(database / "t")
    put(path, "p=9/unknown-to-the-catalog.parquet", id=[9])
    table = DeltaTable.convertToDelta(spark, "t", "p int")
    assert sorted(map(tuple, table.toDF().collect())) == [(1, "abc", 1), (2, "x", 2)]
    (info,) = actions(path, "commitInfo")
    assert info["operationParameters"]["catalogTable"] == f"`spark_catalog`.`{database.name}`.`t`"
    (metadata,) = actions(path, "metaData")
    assert metadata["configuration"] == {"team": "me"}
    assert spark.table("t").schema["id"].metadata == {"comment": "key"}
    assert spark.sql("describe table extended t").where("col_name = 'Provider'").first().data_type == "delta"
    spark.sql("insert into t values (3, 'y', 3)")
    assert spark.table("t").where("p = 3").count() == 1
    assert DeltaTable.convertToDelta(spark, "t").toDF().count() == 3
    assert DeltaLog.for_table(path).snapshot().version == 1


def test_partition_columns_against_the_catalog(spark: SparkSession, database: Path) -> None:
    spark.sql("create table t using parquet partitioned by (p) as select 1 id, 2 p")
    with pytest.raises(DeltaAnalysisException) as error:
        DeltaTable.convertToDelta(spark, "t", "p string")
    assert condition_of(error) == "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER"
    spark.sql("create table none (id int, p int) using parquet partitioned by (p)")
    with pytest.raises(DeltaAnalysisException) as error:
        DeltaTable.convertToDelta(spark, "none")
    assert condition_of(error) == "DELTA_CONVERSION_NO_PARTITION_FOUND"
    assert not list(database.rglob("_delta_log"))


def test_an_entry_whose_directory_is_a_delta_table(spark: SparkSession, database: Path, setting: Any) -> None:
    """As it is after a conversion that ended between its commit and the catalog."""
    spark.sql("create table t using parquet tblproperties ('a' = 'b') as select 1 id")
    path = str(database / "t")
    convert(spark, path)
    spark.sql(f"alter table delta.`{path}` set tblproperties ('c' = 'd')")
    with pytest.raises(DeltaAnalysisException) as error:
        DeltaTable.convertToDelta(spark, "t")
    assert condition_of(error) == "DELTA_CONVERT_METASTORE_METADATA_MISMATCH"
    setting("spark.databricks.delta.convert.metadataCheck.enabled", "false")
    assert DeltaTable.convertToDelta(spark, "t").toDF().collect() == [(1,)]
    (metadata,) = actions(path, "metaData")
    assert metadata["configuration"] == {"a": "b", "c": "d"}
    assert DeltaTable.forName(spark, "t").toDF().count() == 1


def test_an_unknown_outcome_is_not_hidden_by_what_is_left(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(4).write.parquet(path)

    def put(self: LocalLogStore, place: str, data: bytes) -> None:
        raise StoreError("The connection broke.")

    def delete(self: LocalDataDirectory, directory: str) -> bool:
        raise StoreError("The storage is gone.")

    monkeypatch.setattr(LocalLogStore, "put_if_absent", put)
    monkeypatch.setattr(LocalLogStore, "failed_put_never_lands", False)
    monkeypatch.setattr(LocalDataDirectory, "delete_if_empty", delete)
    with pytest.raises(CommitOutcomeUnknownError, match="The connection broke"):
        convert(spark, path)


def test_one_of_two_conversions_wins(spark: SparkSession, path: str) -> None:
    """Both have read the directory when the first commits."""
    spark.range(4).write.parquet(path)
    both, outcomes = threading.Barrier(2, timeout=60), []
    set_observer(lambda point, _: both.wait() if point == "commit prepared" else None)

    def run() -> None:
        try:
            convert(spark, path)
            outcomes.append("converted")
        except DeltaError as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[1] == "converted"
    assert outcomes.count("converted") == 1
    assert load(spark, path).count() == 4
    assert DeltaLog.for_table(path).snapshot().version == 0


def test_a_failed_put_leaves_nothing(spark: SparkSession, path: str) -> None:
    spark.range(4).write.parquet(path)
    before = files_beside_the_log(path)

    def fail(point: str, _: Any) -> None:
        if point == "commit prepared":
            Path(path, "_delta_log").mkdir()  # as far as the put may have come
            raise OSError("no space left")

    set_observer(fail)
    with pytest.raises(OSError, match="no space"):
        convert(spark, path)
    set_observer(None)
    assert files_beside_the_log(path) == before
    assert not Path(path, "_delta_log").exists()
    assert convert(spark, path).toDF().count() == 4


def test_a_killed_conversion_is_run_again(spark: SparkSession, path: str) -> None:
    """With what a SIGKILL leaves before the commit has its name: the directory, and a temporary file."""
    spark.range(4).write.parquet(path)
    before = files_beside_the_log(path)
    left = Path(path, "_delta_log", f".{0:020}.json.0123.tmp")
    left.parent.mkdir()
    left.write_text('{"commitInfo":')
    assert spark.read.parquet(path).count() == 4
    assert convert(spark, path).toDF().count() == 4
    assert files_beside_the_log(path) == before


def test_many_files_cost_no_crossing_each(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many calls of the JVM for two hundred files as for two."""
    from py4j.clientserver import ClientServerConnection

    calls: list[str] = []
    original = ClientServerConnection.send_command

    def counted(self: Any, command: str, *arguments: Any) -> Any:
        calls.append(command)
        return original(self, command, *arguments)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    counts = []
    for number, folder in ((2, f"{path}-2"), (200, f"{path}-200")):
        for i in range(number):
            put(folder, f"p={i % 10}/{i}.parquet", i=[i])
        calls.clear()
        convert(spark, folder)
        counts.append(sum("\nd\n" not in call and not call.startswith("m") for call in calls))
    assert counts[1] <= counts[0] + 5


def test_by_sql(spark: SparkSession, path: str, database: Path) -> None:
    spark.range(4).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(path)
    text = f"CONVERT TO DELTA parquet.`{path}` NO STATISTICS PARTITIONED BY (p BIGINT)"
    assert spark.sql(text).collect() == []
    assert load(spark, path).dtypes == [("id", "bigint"), ("p", "bigint")]
    assert all("stats" not in add or add["stats"] is None for add in actions(path, "add"))
    spark.sql("CREATE TABLE parq USING parquet AS SELECT 1 AS a")
    spark.sql("CONVERT TO DELTA IDENTIFIER(:t)", args={"t": "parq"})
    assert DeltaTable.forName(spark, "parq").toDF().collect() == [(1,)]
    assert [row.operation for row in spark.sql("DESCRIBE HISTORY parq").collect()] == ["CONVERT"]
