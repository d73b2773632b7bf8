"""OPTIMIZE, VACUUM, RESTORE, CLONE, CONVERT and GENERATE on every file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltaflow.errors import StoreError
from deltaflow.store import store_for
from deltaflow.tables import DeltaTable
from tests.tables import ids, load, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2), pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def rewritten(spark: SparkSession, place: Place) -> DeltaTable:
    """A table of four files, which compaction has made one of."""
    path = place.path("t")
    for number in range(4):
        write(spark.range(number, number + 1), path)
    table = DeltaTable.forPath(spark, path)
    table.optimize().executeCompaction()
    return table


@pytest.fixture
def no_retention(setting: Callable[[str, str], None]) -> None:
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")


def test_optimize(rewritten: DeltaTable, place: Place) -> None:
    assert rewritten.detail().collect()[0].numFiles == 1
    assert ids(rewritten.toDF()) == [*range(4)]
    rewritten.optimize().executeZOrderBy("id")
    assert ids(rewritten.toDF()) == [*range(4)]


def test_vacuum_deletes_what_no_version_needs(
    rewritten: DeltaTable, place: Place, spark: SparkSession, no_retention: None
) -> None:
    write(spark.range(9), place.path("t/inner/other"))
    before = place.files("t")
    listed = spark.sql(f"VACUUM delta.`{place.path('t')}` RETAIN 0 HOURS DRY RUN").collect()
    assert place.files("t") == before
    assert len(listed) == 4
    lite = rewritten.vacuum(0, lite=True, dryRun=True).collect()
    assert {row.path for row in lite} == {row.path for row in listed}
    frame = spark.createDataFrame(
        [(row.path, row.size, False, 0) for row in lite],
        "path string, length bigint, isDir boolean, modificationTime bigint",
    )
    found = rewritten.vacuum(0, inventory=frame, dryRun=True)
    assert sorted(found.collect()) == sorted(rewritten.vacuum(0, dryRun=True).collect())
    rewritten.vacuum(0, lite=True)
    left = place.files("t")
    rewritten.vacuum(0)
    assert place.files("t") == left
    assert len([name for name in left if "/" not in name]) == 1
    assert [name for name in left if name.startswith("inner/other/")]
    assert ids(rewritten.toDF()) == [*range(4)]
    assert ids(load(spark, place.path("t/inner/other"))) == [*range(9)]


def test_a_lost_file_is_removed_from_the_log(place: Place, spark: SparkSession) -> None:
    for start in (0, 2):
        write(spark.range(start, start + 2).coalesce(1), place.path("t"))
    table = DeltaTable.forPath(spark, place.path("t"))
    assert table.repair().collect() == []
    store, root = store_for(place.path("t"))
    lost = min(name for name in place.files("t") if name.endswith(".parquet"))
    store.delete(f"{root}/{lost}")
    [row] = table.repair().collect()
    assert (row.dataFilePath.rpartition("/")[2], row.numRows) == (lost, 2)
    assert table.toDF().count() == 2


@pytest.mark.sampled(4)
def test_restore_looks_for_files(
    rewritten: DeltaTable, place: Place, spark: SparkSession, no_retention: None
) -> None:
    rewritten.restoreToVersion(1)
    assert ids(rewritten.toDF()) == [0, 1]
    rewritten.restoreToVersion(4)
    rewritten.vacuum(0)
    with pytest.raises(StoreError) as raised:
        rewritten.restoreToVersion(1)
    assert raised.value.error_class == "DELTA_FILE_NOT_FOUND_DETAILED"
    assert raised.value.file is not None
    assert raised.value.file.startswith(place.path("t"))


def test_a_clone_reads_the_files_of_its_source(
    rewritten: DeltaTable, place: Place, spark: SparkSession
) -> None:
    clone = rewritten.clone(place.path("clone"), isShallow=True)
    assert ids(clone.toDF()) == [*range(4)]
    assert place.files("clone") == set()
    clone.delete("id = 0")
    write(spark.range(7, 8), place.path("clone"))
    assert ids(clone.toDF()) == [1, 2, 3, 7]
    assert ids(rewritten.toDF()) == [*range(4)]


@pytest.mark.parametrize(("of", "to"), [("webhdfs", "local"), ("local", "objects"), ("objects", "webhdfs")])
@pytest.mark.sampled(4)
def test_a_clone_in_another_file_system(
    request: pytest.FixtureRequest, spark: SparkSession, of: str, to: str, no_retention: None
) -> None:
    source, target = (request.getfixturevalue(name) for name in (of, to))
    table_of_source, path = source.path("a b"), target.path("clone")
    write(spark.range(4).selectExpr("id", "id % 2 AS part"), table_of_source, partition_by=["part"])
    before = source.files("a b")
    clone = DeltaTable.forPath(spark, table_of_source).clone(path, isShallow=True)
    assert ids(clone.toDF()) == [*range(4)]
    assert target.files("clone") == set()
    clone.delete("id = 3")
    clone.update("id = 2", {"id": "20"})
    assert ids(clone.toDF()) == [0, 1, 20]
    clone.restoreToVersion(0)
    clone.vacuum(0)
    assert ids(clone.toDF()) == [*range(4)]
    # Deep: the same files, byte for byte.
    deep = DeltaTable.forPath(spark, table_of_source).clone(target.path("deep"))
    assert len(target.files("deep")) == len(before)
    spark.sql(
        f"ALTER TABLE delta.`{table_of_source}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    DeltaTable.forPath(spark, table_of_source).delete("id = 0")
    text = f"CREATE OR REPLACE TABLE delta.`{target.path('deep')}` CLONE delta.`{table_of_source}`"
    assert spark.sql(text).first().num_copied_files == 0
    assert ids(deep.toDF()) == [1, 2, 3]
    deep.vacuum(0)
    assert ids(deep.toDF()) == [1, 2, 3]


@pytest.mark.sampled(4)
def test_convert(spark: SparkSession, place: Place) -> None:
    path = place.path("plain")
    spark.range(6).selectExpr("id", "id % 2 AS part").coalesce(1).write.partitionBy("part").parquet(path)
    before = place.files("plain")
    table = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "part BIGINT")
    assert ids(table.toDF()) == [*range(6)]
    table.delete("id = 5")
    assert ids(table.toDF()) == [*range(5)]
    assert before < place.files("plain")


def test_convert_the_output_of_a_stream(spark: SparkSession, place: Place) -> None:
    write(spark.range(5), place.path("source"))
    stream = spark.readStream.format("delta").load(place.path("source")).writeStream.format("parquet")
    stream = stream.option("checkpointLocation", place.path("checkpoint")).trigger(availableNow=True)
    stream.start(place.path("plain")).awaitTermination()
    spark.range(100).write.mode("append").parquet(place.path("plain"))  # the stream's log does not name it
    assert ids(DeltaTable.convertToDelta(spark, f"parquet.`{place.path('plain')}`").toDF()) == [*range(5)]


def test_manifests(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(spark.range(4).selectExpr("id", "id % 2 AS part"), path, partition_by=["part"])
    table = DeltaTable.forPath(spark, path)
    table.generate("symlink_format_manifest")
    manifests = {
        name: place.read(name).decode().split()
        for name in place.names()
        if "_symlink_format_manifest" in name and not name.endswith(".crc")
    }
    assert sorted(manifests) == [f"t/_symlink_format_manifest/part={part}/manifest" for part in (0, 1)]
    listed = sorted(line for lines in manifests.values() for line in lines)
    prefix = f"file:{path}" if place.name == "local" else path
    assert listed == sorted(f"{prefix}/{name}" for name in place.files("t"))
    table.delete("part = 0")
    table.generate("symlink_format_manifest")
    assert [name for name in place.names() if "manifest/part=0" in name] == []
