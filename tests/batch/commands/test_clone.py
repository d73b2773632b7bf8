"""SHALLOW CLONE: a table of its own over the files of another one, which nothing done to it touches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from pyspark.errors import AnalysisException

from deltaflow import DeltaTable
from deltaflow.batch.commands.clone import CLONED
from deltaflow.errors import DeltaError, VersionNotFoundError
from deltaflow.log import DeltaLog
from deltaflow.spark.sql.statements import NamedTable, run_statement
from tests.plans import files_read
from tests.tables import actions, commit_file, ids, load, rows, rows_by_deltalake, set_time, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

Rows = list[Any]


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A partitioned table of two versions, with names that a URI has to encode. Clones take its four files
    three at once."""
    monkeypatch.setattr("deltaflow.batch.commands.clone._FILES_AT_ONCE", 3)
    path = str(tmp_path / "so urce%é")
    for start in (0, 4):
        rows = spark.range(start, start + 4).selectExpr("id", "concat('p ', id % 2) p").coalesce(1)
        writer = rows.write.format("delta").mode("append").partitionBy("p")
        writer.option("delta.dataSkippingNumIndexedCols", "1").save(path)
    return path


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


def digest(path: str) -> dict[str, str]:
    """All that is in a directory."""
    files = (file for file in Path(path).rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def condition_of(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value.getCondition())


def statement(spark: SparkSession, source: str, target: str, **fields: Any) -> Rows:
    """What the SQL statement does, of which `fields` are the parts."""
    table = NamedTable(f"delta.`{source}`", source)
    fields.setdefault("isShallow", True)
    fields["target"] = target.replace("`", "").split(".", 1)
    return run_statement(spark, "Clone", table, fields).collect()


def test_by_path(spark: SparkSession, source: str, target: str) -> None:
    before, original = digest(source), DeltaLog.for_table(source).snapshot()
    table = DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    assert digest(source) == before
    assert rows(table.toDF()) == rows(load(spark, source))
    adds = actions(target, "add")
    assert all(add["path"].startswith("file:/") and "%25" in add["path"] for add in adds)
    assert sorted(unquote(add["path"]) for add in adds) == sorted(
        f"file:{file}" for file in Path(source).rglob("*.parquet")
    )
    assert [file.name for file in Path(target).iterdir()] == ["_delta_log"]
    (info,), (metadata,) = actions(target, "commitInfo"), actions(target, "metaData")
    assert info["operation"] == "CLONE"
    assert info["operationParameters"] == {"source": f"delta.`{source}`", "sourceVersion": 1}
    assert info["operationMetrics"] == {
        "sourceTableSize": str(original.size_in_bytes),
        "sourceNumOfFiles": "4",
        "numRemovedFiles": "0",
        "numCopiedFiles": "0",
        "removedFilesSize": "0",
        "copiedFilesSize": "0",
    }
    assert metadata["id"] != original.table_id
    assert metadata["schemaString"] == original.metadata.schema_string
    assert metadata["partitionColumns"] == ["p"]
    assert metadata["configuration"] == {"delta.dataSkippingNumIndexedCols": "1"}


def test_the_row_of_the_statement(spark: SparkSession, source: str, target: str) -> None:
    (row,) = statement(spark, source, f"delta.`{target}`")
    size = DeltaLog.for_table(source).snapshot().size_in_bytes
    assert row.asDict() == dict(zip(CLONED.names, (size, 4, 0, 0, 0, 0), strict=True))


def test_what_is_done_to_a_clone_leaves_the_source(spark: SparkSession, source: str, target: str) -> None:
    before = digest(source)
    table = DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    # data skipping and partitions
    assert table.toDF().where("id = 5 and p = 'p 1'").count() == 1
    late = table.toDF().where("id > 4")
    assert len(late.collect()) > 0
    assert files_read(late) == 2
    spark.range(8, 9).selectExpr("id", "'p 0' p").write.format("delta").mode("append").save(target)
    assert table.toDF().count() == 9
    table.delete("id = 1")
    assert ids(table.toDF()) == [0, 2, 3, 4, 5, 6, 7, 8]
    table.delete("p = 'p 1'")
    table.update("id = 0", {"id": "id + 100"})
    table.optimize().executeCompaction()
    assert ids(table.toDF()) == [2, 4, 6, 8, 100]
    assert spark.read.format("delta").option("versionAsOf", 0).load(target).count() == 8
    overwrite = spark.range(1).selectExpr("id", "'p 0' p").write.format("delta").mode("overwrite")
    overwrite.option("replaceWhere", "id = 4").option("mergeSchema", "true")
    overwrite.option("replaceWhere", "p = 'p 0'").save(target)
    assert table.toDF().count() == 1
    assert digest(source) == before
    assert load(spark, source).count() == 8


def test_vacuum_of_a_clone(spark: SparkSession, source: str, target: str, setting: Any) -> None:
    if not hasattr(DeltaTable, "vacuum"):
        pytest.skip("DeltaTable has no vacuum")
    before = digest(source)
    table = DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    spark.range(1).selectExpr("id", "'p 0' p").write.format("delta").mode("overwrite").save(target)
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.vacuum(0)
    assert digest(source) == before
    assert table.toDF().count() == 1


def test_a_stream_reads_a_clone(spark: SparkSession, source: str, target: str, tmp_path: Path) -> None:
    DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    stream = spark.readStream.format("delta").load(target)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for total in (8, 9):
        writer = stream.writeStream.format("delta").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(out).awaitTermination()
        assert load(spark, out).count() == total
        spark.range(1).selectExpr("id", "'p 0' p").write.format("delta").mode("append").save(target)


def test_a_clone_of_a_clone_and_its_checkpoint(spark: SparkSession, source: str, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    clone = DeltaTable.forPath(spark, source).clone(first, isShallow=True)
    spark.range(1).selectExpr("id", "'p 0' p").write.format("delta").mode("append").save(first)
    DeltaLog.for_table(first).checkpoint()
    table = clone.clone(second, isShallow=True)
    places = {
        Path(unquote(f)).parent.parent
        for f in DeltaLog.for_table(second).snapshot().files["path"].to_pylist()
    }
    assert {str(place).removeprefix("file:") for place in places} == {source, first}
    assert table.toDF().count() == 9


def test_versions_and_times(spark: SparkSession, source: str, tmp_path: Path) -> None:
    table = DeltaTable.forPath(spark, source)
    assert table.cloneAtVersion(0, str(tmp_path / "a"), isShallow=True).toDF().count() == 4
    for version, day in zip(versions(source), (1, 3), strict=True):
        set_time(commit_file(source, version), day * 86_400_000)
    DeltaLog._cache.clear()
    assert table.cloneAtTimestamp("1970-01-03", str(tmp_path / "b"), isShallow=True).toDF().count() == 4
    for target, call in (
        ("c", lambda place: table.cloneAtVersion(7, place, isShallow=True)),
        ("d", lambda place: table.cloneAtTimestamp("1970-01-01", place, isShallow=True)),
    ):
        with pytest.raises(VersionNotFoundError):
            call(str(tmp_path / target))
        assert not (tmp_path / target).exists()


def test_properties_and_protocol(spark: SparkSession, source: str, target: str) -> None:
    properties = {"delta.appendOnly": "true", "sql": "y", "delta.feature.domainMetadata": "supported"}
    DeltaTable.forPath(spark, source).clone(target, isShallow=True, properties=properties)
    (metadata,), (protocol,) = actions(target, "metaData"), actions(target, "protocol")
    assert metadata["configuration"] == {
        "delta.dataSkippingNumIndexedCols": "1",
        "delta.appendOnly": "true",
        "sql": "y",
    }
    assert "domainMetadata" in protocol["writerFeatures"]


@pytest.mark.parametrize("is_shallow", [True, False])
def test_a_feed_is_not_begun_beside_columns_with_its_names(
    spark: SparkSession, target: str, tmp_path: Path, is_shallow: bool
) -> None:
    path = str(tmp_path / "source")
    spark.range(1).selectExpr("id", "'a' _change_type").write.format("delta").save(path)
    feed = {"delta.enableChangeDataFeed": "true"}
    with pytest.raises(DeltaError) as error:
        DeltaTable.forPath(spark, path).clone(target, is_shallow, properties=feed)
    assert condition_of(error) == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
    assert not Path(target).exists()


def test_defaults_of_the_session_are_not_taken(
    spark: SparkSession, source: str, target: str, setting: Any
) -> None:
    setting("spark.databricks.delta.properties.defaults.appendOnly", "true")
    DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    assert "delta.appendOnly" not in actions(target, "metaData")[0]["configuration"]


def test_what_applications_committed_is_not_taken(spark: SparkSession, source: str, target: str) -> None:
    rows = spark.range(1).selectExpr("id", "'p 0' p").write.format("delta").mode("append")
    rows.option("txnAppId", "app").option("txnVersion", 3).save(source)
    DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    assert DeltaLog.for_table(source).snapshot().txn_version("app") == 3
    assert DeltaLog.for_table(target).snapshot().txn_version("app") is None


def test_by_name(spark: SparkSession, source: str, database: Path, target: str) -> None:
    table = DeltaTable.forPath(spark, source).clone("made", isShallow=True)
    assert table.toDF().count() == spark.table("made").count() == 8
    assert (database / "made" / "_delta_log").is_dir()
    described = {row.col_name: row.data_type for row in spark.sql("describe extended made").collect()}
    assert (described["Type"], described["Provider"]) == ("MANAGED", "delta")
    spark.sql("insert into made values (9, 'p 1')")
    assert DeltaTable.forName(spark, "made").cloneAtVersion(0, "again", True).toDF().count() == 8
    statement(spark, source, "elsewhere", location=target)
    assert spark.table("elsewhere").count() == 8
    assert Path(target, "_delta_log").is_dir()
    before = digest(source)
    spark.sql("drop table made")
    assert digest(source) == before


@pytest.mark.parametrize(
    ("target", "fields", "condition"),
    [
        ("there", {}, "DELTA_TABLE_ALREADY_EXISTS"),
        ("there", {"replace": True}, "DELTA_UNSUPPORTED_NON_EMPTY_CLONE"),
        ("other", {}, "DELTA_NOT_A_DELTA_TABLE"),
        ("missing", {"replace": True, "mustExist": True}, "DELTA_CANNOT_REPLACE_MISSING_TABLE"),
        ("no_database.t", {}, "SCHEMA_NOT_FOUND"),
        ("missing", {"location": "not/absolute"}, "DELTA_INVALID_CLONE_PATH"),
        ("there", {"location": "/elsewhere", "replace": True}, "DELTA_TABLE_LOCATION_MISMATCH"),
        ("delta.`/a`", {"location": "/b"}, "DELTA_CLONE_AMBIGUOUS_TARGET"),
        ("delta.`{folder}`", {}, "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"),
        ("missing", {"properties": {"delta.nonsense": "1"}}, "DELTA_UNKNOWN_CONFIGURATION"),
    ],
)
@pytest.mark.sampled(3)
def test_refused(
    spark: SparkSession, source: str, database: Path, target: str, fields: dict[str, Any], condition: str
) -> None:
    spark.sql("create table there using delta as select 1 id")
    spark.sql("create table other using parquet as select 1 id")
    before = digest(str(database))
    with pytest.raises((AnalysisException, DeltaError)) as error:
        statement(spark, source, target.format(folder=database), **fields)
    assert condition_of(error) == condition
    assert digest(str(database)) == before
    assert {row.tableName for row in spark.sql("show tables").collect()} == {"there", "other"}


def test_replacing_an_empty_table(spark: SparkSession, source: str, database: Path) -> None:
    spark.sql("create table t (x int) using delta tblproperties ('gone' = 'yes')")
    path = str(database / "t")
    before = DeltaLog.for_table(path).snapshot().metadata
    assert spark.table("t").count() == 0
    assert statement(spark, source, "t", ifNotExists=True) == []
    DeltaTable.forPath(spark, source).clone("t", isShallow=True, replace=True)
    assert spark.table("t").count() == 8
    (metadata,) = actions(path, "metaData")
    assert metadata["id"] == before.id
    assert metadata["configuration"] == {"delta.dataSkippingNumIndexedCols": "1"}


def test_arguments(spark: SparkSession, source: str, target: str) -> None:
    table = DeltaTable.forPath(spark, source)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: table.clone(1, True), "target needs to be a string"),  # type: ignore[arg-type]
        (lambda: table.clone(target, "yes"), "isShallow needs to be a boolean"),  # type: ignore[arg-type]
        (lambda: table.clone(target, True, 1), "replace needs to be a boolean"),  # type: ignore[arg-type]
        (lambda: table.clone(target, True, True, []), "properties needs to be a dict"),  # type: ignore[arg-type]
        (lambda: table.clone(target, True, True, {"a": 1}), "All property values including 1"),  # type: ignore[dict-item]
        (lambda: table.cloneAtVersion("1", target, True), "version needs to be an int"),  # type: ignore[arg-type]
        (lambda: table.cloneAtTimestamp(1, target, True), "timestamp needs to be a string"),  # type: ignore[arg-type]
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    assert not Path(target).exists()


def test_the_other_implementation_reads_clones(spark: SparkSession, source: str, target: str) -> None:
    table = DeltaTable.forPath(spark, source).clone(target, isShallow=True)
    table.delete("id = 1")
    assert rows_by_deltalake(target) == rows(table.toDF())


def test_of_a_parquet_directory(spark: SparkSession, target: str, tmp_path: Path) -> None:
    path = str(tmp_path / "so urce%")
    spark.range(4).selectExpr("id", "concat('p ', id % 2) p").write.partitionBy("p").parquet(path)
    before = digest(path)
    spark.sql(f"CREATE TABLE delta.`{target}` SHALLOW CLONE parquet.`{path}`")
    table = DeltaTable.forPath(spark, target)
    assert sorted(map(tuple, table.toDF().collect())) == [(i, f"p {i % 2}") for i in range(4)]
    (info,) = actions(target, "commitInfo")
    assert info["operationParameters"] == {"source": f"parquet.`{path}`", "sourceVersion": -1}
    table.delete("id = 1")
    assert table.toDF().count() == 3
    assert digest(path) == before
    with pytest.raises(AnalysisException) as error:
        spark.sql(f"CREATE TABLE delta.`{target}-2` SHALLOW CLONE json.`{path}`")
    assert condition_of(error) == "DELTA_CLONE_UNSUPPORTED_SOURCE"


def test_by_sql(spark: SparkSession, source: str, target: str, database: Path) -> None:
    frame = spark.sql(
        f"CREATE TABLE made SHALLOW CLONE delta.`{source}` VERSION AS OF :v TBLPROPERTIES ('mine' = '1') "
        f"LOCATION '{target}'",
        args={"v": 0},
    )
    assert frame.schema == CLONED
    assert len(frame.collect()) == 1
    of_source = spark.read.format("delta").option("versionAsOf", 0).load(source)
    assert sorted(spark.table("made").collect()) == sorted(of_source.collect())
    [row] = spark.sql("DESCRIBE DETAIL made").collect()
    assert (row.location, row.properties["mine"]) == (f"file:{target}", "1")
    assert spark.sql(f"CREATE TABLE IF NOT EXISTS made SHALLOW CLONE delta.`{source}`").collect() == []
    spark.sql(f"CREATE OR REPLACE TABLE again SHALLOW CLONE '{source}'")
    assert sorted(spark.table("again").collect()) == sorted(load(spark, source).collect())
    for text in (
        "CREATE TABLE made SHALLOW CLONE {s}",
        "REPLACE TABLE lacking SHALLOW CLONE {s}",
        "CREATE TABLE third SHALLOW CLONE nothing",
    ):
        with pytest.raises((AnalysisException, DeltaError)):
            spark.sql(text.format(s=f"delta.`{source}`"))
    assert {row.tableName for row in spark.sql("SHOW TABLES").collect()} == {"made", "again"}
