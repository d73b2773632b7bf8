"""Manifests for Presto, Athena and Redshift Spectrum: what they list, and that commits keep them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
    PostCommitHookError,
    UnsupportedFeatureError,
)
from deltaflow.log import DeltaLog, Operation
from deltaflow.log.files.data_path import complete_paths
from tests.tables import commit_file, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

DIRECTORY = "_symlink_format_manifest"
ENABLED = "delta.compatibility.symlinkFormatManifest.enabled"


def manifests(path: str) -> dict[str, list[str]]:
    """The lines of each manifest, by its folder."""
    root = Path(path, DIRECTORY)
    assert all(file.name == "manifest" for file in root.rglob("*") if file.is_file())
    return {
        str(file.parent.relative_to(root)): file.read_text().splitlines() for file in root.rglob("manifest")
    }


def files_of_partitions(path: str) -> dict[str, list[str]]:
    """The files of each partition as the log has them, by the names of their folders."""
    table = DeltaLog.for_table(path).snapshot().files
    found: dict[str, list[str]] = {}
    for file in sorted(complete_paths(path, table["path"]).to_pylist()):
        found.setdefault(str(Path(file.removeprefix(f"file:{path}/")).parent), []).append(file)
    return found


def write_rows(spark: SparkSession, path: str, rows: str, **options: str) -> None:
    frame = spark.sql(f"select * from values {rows} as t(i, p)").coalesce(1)
    mode = options.pop("mode", "append")
    frame.write.format("delta").mode(mode).options(**options).partitionBy("p").save(path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_of_an_unpartitioned_table(spark: SparkSession, path: str) -> None:
    spark.range(4, numPartitions=2).write.format("delta").save(path)
    DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    (lines,) = manifests(path).values()
    assert manifests(path) == files_of_partitions(path)
    assert all(line.startswith(f"file:{path}/part-") for line in lines)
    assert len(lines) == 2
    # what a reader of the manifest finds
    assert spark.read.parquet(*lines).count() == 4


def test_of_a_table_without_files(spark: SparkSession, path: str) -> None:
    spark.sql(f"create table delta.`{path}` (i int) using delta")
    DeltaTable.forPath(spark, path).generate("SYMLINK_format_manifest")
    assert manifests(path) == {".": []}


def test_of_partitions_with_odd_values(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a b'), (2, 'x/y=z%'), (3, null), (4, 'é')")
    DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    assert manifests(path) == files_of_partitions(path)
    assert set(manifests(path)) == {"p=a b", "p=x%2Fy%3Dz%25", "p=__HIVE_DEFAULT_PARTITION__", "p=é"}


def test_manifests_of_partitions_that_are_gone_are_removed(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')")
    table = DeltaTable.forPath(spark, path)
    table.generate("symlink_format_manifest")
    write_rows(spark, path, "(3, 'c')", mode="overwrite", replaceWhere="true")
    assert set(manifests(path)) == {"p=a", "p=b"}  # nobody asked for them to be kept
    table.generate("symlink_format_manifest")
    assert manifests(path) == files_of_partitions(path)
    assert set(manifests(path)) == {"p=c"}
    assert [entry.name for entry in Path(path, DIRECTORY).iterdir()] == ["p=c"]


def test_readers_pass_over_the_directory(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a')")
    DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    assert load(spark, path).count() == 1
    assert spark.read.parquet(path).count() == 1


def test_unknown_mode(spark: SparkSession, path: str) -> None:
    spark.range(1).write.format("delta").save(path)
    with pytest.raises(DeltaIllegalArgumentException, match="symlink_format_manifest") as caught:
        DeltaTable.forPath(spark, path).generate("hudi")
    assert caught.value.getCondition() == "DELTA_MODE_NOT_SUPPORTED"
    assert not Path(path, DIRECTORY).exists()


def test_missing_table(spark: SparkSession, path: str) -> None:
    spark.range(1).write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    shutil.rmtree(path)
    with pytest.raises(DeltaTableNotFoundError) as caught:
        table.generate("symlink_format_manifest")
    assert caught.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    assert not Path(path).exists()


@pytest.mark.breaks_protocol
def test_deletion_vectors(spark: SparkSession, path: str) -> None:
    spark.range(1).write.format("delta").save(path)
    commit = commit_file(path, 0)
    vector = '"deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1},'
    commit.write_text(commit.read_text().replace('{"add":{', '{"add":{' + vector))
    with pytest.raises(Exception, match="DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"):
        DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    assert not Path(path, DIRECTORY).exists()


def test_no_table_comes_to_have_both_manifests_and_column_mapping(spark: SparkSession, path: str) -> None:
    mode, table = "'delta.columnMapping.mode' = 'name'", f"delta.`{path}`"
    create = f"CREATE TABLE {table} (id LONG) USING delta TBLPROPERTIES"
    with pytest.raises(UnsupportedFeatureError, match="WITH_COLUMN_MAPPING"):
        spark.sql(f"{create} ({mode}, '{ENABLED}' = 'true')")
    assert not DeltaTable.isDeltaTable(spark, path)
    spark.sql(f"{create} ({mode})")
    with pytest.raises(UnsupportedFeatureError, match="WITH_COLUMN_MAPPING"):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{ENABLED}' = 'true')")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{ENABLED}' = 'true')")
    with pytest.raises(UnsupportedFeatureError, match="WITH_COLUMN_MAPPING"):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({mode})")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    assert list(manifests(path)) == ["."]


def test_commits_keep_the_manifests_of_the_partitions_that_they_touch(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')", **{ENABLED: "true"})
    assert manifests(path) == files_of_partitions(path)
    untouched = Path(path, DIRECTORY, "p=a", "manifest")
    before = untouched.stat()
    write_rows(spark, path, "(3, 'b'), (4, 'c')")
    assert manifests(path) == files_of_partitions(path)
    assert untouched.stat() == before
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert manifests(path) == files_of_partitions(path)
    assert len(manifests(path)["p=b"]) == 1
    write_rows(spark, path, "(5, 'c')", mode="overwrite", replaceWhere="p in ('b', 'c')")
    assert manifests(path) == files_of_partitions(path)
    assert set(manifests(path)) == {"p=a", "p=c"}
    assert untouched.stat() == before
    table = DeltaTable.forPath(spark, path)
    table.update("i = 5", {"i": "i + 1"})
    assert manifests(path) == files_of_partitions(path)
    table.delete("p = 'a'")
    assert manifests(path) == files_of_partitions(path)
    assert set(manifests(path)) == {"p=c"}


def test_vacuum_passes_over_them(spark: SparkSession, path: str, setting: Any) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')", **{ENABLED: "true"})
    table = DeltaTable.forPath(spark, path)
    table.delete("p = 'a'")
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.vacuum(0)
    assert not list(Path(path).glob("p=a/*.parquet"))
    assert manifests(path) == files_of_partitions(path)


def test_who_follows_the_log_alone_keeps_them(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')", **{ENABLED: "true"})
    shutil.rmtree(Path(path, DIRECTORY))
    log = DeltaLog.for_table(path, with_files=False)
    log.start_transaction().commit([], Operation("TEST"))
    assert manifests(path) == files_of_partitions(path)


def test_a_stream_keeps_them(spark: SparkSession, path: str, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.range(3).write.format("delta").save(source)
    spark.sql(f"create table delta.`{path}` (id long) using delta tblproperties ('{ENABLED}'='true')")
    stream = spark.readStream.format("delta").load(source)
    writer = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(path).awaitTermination()
    assert manifests(path) == files_of_partitions(path)
    assert len(manifests(path)["."]) > 0


def test_setting_the_property_writes_all_of_them(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')")
    spark.sql(f"alter table delta.`{path}` set tblproperties ('{ENABLED}'='true')")
    assert manifests(path) == files_of_partitions(path)


def test_a_table_that_gets_other_partition_columns(spark: SparkSession, path: str) -> None:
    spark.range(1).write.format("delta").option(ENABLED, "true").save(path)
    assert set(manifests(path)) == {"."}
    write_rows(spark, path, "(1, 'a')", mode="overwrite", overwriteSchema="true")
    assert manifests(path) == files_of_partitions(path)
    assert set(manifests(path)) == {"p=a"}


def test_what_is_committed_meanwhile_is_in_them(spark: SparkSession, path: str, monkeypatch: Any) -> None:
    """A writer that is overtaken between its commit and its manifests leaves those of the newest version."""
    from deltaflow.log.maintenance import manifests as module

    write_rows(spark, path, "(1, 'a')", **{ENABLED: "true"})
    original, overtaken = module._replace, []

    def replace(*arguments: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            write_rows(spark, path, "(3, 'a')")
        original(*arguments)

    monkeypatch.setattr(module, "_replace", replace)
    write_rows(spark, path, "(2, 'a')")
    assert overtaken
    assert manifests(path) == files_of_partitions(path)
    assert len(manifests(path)["p=a"]) == 3


def test_failure_is_told_and_the_commit_stands(spark: SparkSession, path: str) -> None:
    write_rows(spark, path, "(1, 'a')", **{ENABLED: "true"})
    shutil.rmtree(Path(path, DIRECTORY))
    Path(path, DIRECTORY).write_text("in the way")
    with pytest.raises(PostCommitHookError, match="is committed") as caught:
        write_rows(spark, path, "(2, 'b')")
    assert caught.value.getCondition() == "DELTA_POST_COMMIT_HOOK_FAILED"
    assert caught.value.version == 1
    assert load(spark, path).count() == 2
    Path(path, DIRECTORY).unlink()
    DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    assert manifests(path) == files_of_partitions(path)


def test_by_sql(spark: SparkSession, path: str, database: Path) -> None:
    write_rows(spark, path, "(1, 'a'), (2, 'b')", partitionBy="p")
    spark.sql(f"CREATE TABLE told USING delta LOCATION '{path}'")
    for table in (f"delta.`{path}`", "told", f"'{path}'", "IDENTIFIER(:t)"):
        shutil.rmtree(Path(path, "_symlink_format_manifest"), ignore_errors=True)
        spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {table}", args={"t": "told"})
        assert manifests(path) == files_of_partitions(path)
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_MODE_NOT_SUPPORTED"):
        spark.sql("GENERATE nothing FOR TABLE told")
