"""The spellings of one remote path, mount points, names that only some storages allow, and credentials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from deltaflow.errors import StoreError
from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests.tables import ids, load, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Settings
    from tests.object_store.server import ObjectStoreServer
    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def no_retention(setting: Callable[[str, str], None]) -> None:
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")


@pytest.mark.parametrize("scheme", ["s3", "s3n", "S3A"])
@pytest.mark.sampled(3)
def test_the_schemes_of_one_bucket(
    spark: SparkSession, objects: Place, scheme: str, no_retention: None
) -> None:
    path, other = objects.path("t"), f"{scheme}{objects.path('t')[3:]}"
    write(spark.range(3), path)
    write(spark.range(3, 5), other)
    spark.sql(f"INSERT INTO delta.`{other}` VALUES (5)")
    assert ids(load(spark, other)) == ids(spark.sql(f"SELECT * FROM delta.`{other}`")) == [*range(6)]
    assert DeltaTable.isDeltaTable(spark, other)
    # A MERGE whose source is its target.
    target = DeltaTable.forPath(spark, path).alias("t")
    merge = target.merge(load(spark, other).filter("id = 5").alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"id": "s.id * 10"}).execute()
    assert ids(load(spark, path)) == [0, 1, 2, 3, 4, 50]
    stream = spark.readStream.format("delta").load(other).writeStream.format("delta")
    stream = stream.option("checkpointLocation", objects.path("checkpoint")).trigger(availableNow=True)
    stream.start(f"{scheme}{objects.path('copy')[3:]}").awaitTermination()
    assert ids(load(spark, objects.path("copy"))) == [0, 1, 2, 3, 4, 50]
    DeltaTable.forPath(spark, other).vacuum(0)
    assert ids(load(spark, path)) == [0, 1, 2, 3, 4, 50]
    assert objects.versions("t") == [0, 1, 2, 3]


@pytest.mark.parametrize("scheme", ["s3", "s3n", "s3a"])
@pytest.mark.sampled(2)
def test_a_log_that_names_its_files_by_another_scheme(
    spark: SparkSession, objects: Place, scheme: str, no_retention: None
) -> None:
    path = objects.path("t")
    write(spark.range(3), path)
    [name] = objects.files("t")
    log = DeltaLog.for_table(path)
    [add] = log.snapshot().files.to_pylist()
    absolute = f"{scheme}{path[3:]}/{name}"
    lines = [
        {"remove": {"path": name, "dataChange": False, "deletionTimestamp": 0}},
        {
            "add": {
                "path": absolute,
                "partitionValues": {},
                "size": add["size"],
                "modificationTime": 0,
                "dataChange": False,
            }
        },
    ]
    store = log._files.store
    store.put_if_absent(f"{path}/_delta_log/{1:020}.json", "\n".join(map(json.dumps, lines)).encode())
    assert ids(load(spark, path)) == [0, 1, 2]
    table = DeltaTable.forPath(spark, path)
    table.vacuum(0)
    assert objects.files("t") == {name}
    table.delete("id = 0")
    assert ids(load(spark, path)) == [1, 2]


@pytest.fixture
def mounted(
    spark: SparkSession, tmp_path: Path, webhdfs: Place, objects: Place, hadoop_settings: Settings
) -> Iterator[str]:
    """The root of a view with mount points on WebHDFS and on an object store."""
    name = tmp_path.name.replace("_", "-")
    targets = {"hdfs": webhdfs.path("data"), "objects": objects.path("data")}
    settings = {f"fs.viewfs.mounttable.{name}.link./{mount}": target for mount, target in targets.items()}
    for target in targets.values():  # they have to be there
        write(spark.range(1), f"{target}/made")
    with hadoop_settings(settings):
        yield f"viewfs://{name}"


@pytest.mark.parametrize("mount", ["hdfs", "objects"])
@pytest.mark.sampled(2)
def test_mount_points(
    spark: SparkSession, mounted: str, mount: str, webhdfs: Place, objects: Place, no_retention: None
) -> None:
    path, behind = f"{mounted}/{mount}/t", {"hdfs": webhdfs, "objects": objects}[mount]
    for number in range(3):
        write(spark.range(number, number + 1), path)
    table = DeltaTable.forPath(spark, path)
    table.optimize().executeCompaction()
    table.delete("id = 2")
    clone = DeltaTable.forPath(spark, behind.path("data/t")).clone(f"{mounted}/{mount}/clone", isShallow=True)
    assert ids(clone.toDF()) == [0, 1]
    table.vacuum(0)
    assert len(behind.files("data/t")) == 1
    assert ids(load(spark, path)) == ids(load(spark, behind.path("data/t"))) == [0, 1]
    assert ids(clone.toDF()) == [0, 1]
    stream = spark.readStream.format("delta").load(path).writeStream.format("delta")
    stream = stream.option("checkpointLocation", f"{mounted}/{mount}/checkpoint").trigger(availableNow=True)
    stream.start(f"{mounted}/hdfs/out").awaitTermination()
    assert ids(load(spark, webhdfs.path("data/out"))) == [0, 1]


def test_a_vacuum_keeps_files_that_the_log_names_behind_the_mount_point(
    spark: SparkSession, mounted: str, webhdfs: Place, no_retention: None
) -> None:
    path = f"{mounted}/hdfs/t"
    write(spark.range(2), path)
    [name] = webhdfs.files("data/t")
    log = DeltaLog.for_table(path)
    [add] = log.snapshot().files.to_pylist()
    added = {"partitionValues": {}, "size": add["size"], "modificationTime": 0, "dataChange": False}
    lines = [
        {"remove": {"path": name, "dataChange": False, "deletionTimestamp": 0}},
        {"add": {"path": webhdfs.path(f"data/t/{name}"), **added}},
    ]
    log._files.store.put_if_absent(
        f"{log.path}/_delta_log/{1:020}.json", "\n".join(map(json.dumps, lines)).encode()
    )
    DeltaTable.forPath(spark, path).vacuum(0)
    assert webhdfs.files("data/t") == {name}
    assert ids(load(spark, path)) == [0, 1]


def test_names_with_a_colon(spark: SparkSession, objects: Place, no_retention: None) -> None:
    path = objects.path("t")
    write(spark.range(2), path)
    [name] = objects.files("t")
    content = objects.read(f"t/{name}")
    log = DeltaLog.for_table(path)
    [add] = log.snapshot().files.to_pylist()
    log._files.store.put_if_absent(f"{path}/a:b.parquet", content)
    added = {"partitionValues": {}, "size": add["size"], "modificationTime": 0, "dataChange": True}
    line = {"add": {"path": "a%3Ab.parquet", **added}}
    log._files.store.put_if_absent(f"{path}/_delta_log/{1:020}.json", json.dumps(line).encode())
    assert ids(load(spark, path)) == [0, 0, 1, 1]
    DeltaTable.forPath(spark, path).vacuum(0)
    assert objects.files("t") == {name, "a:b.parquet"}
    DeltaTable.forPath(spark, path).delete("id = 0")
    assert ids(load(spark, path)) == [1, 1]


def test_who_may_read_alone_reads(
    spark: SparkSession, objects: Place, objects_server: ObjectStoreServer, request: pytest.FixtureRequest
) -> None:
    path = objects.path("some/t")
    write(spark.range(3), path)
    request.addfinalizer(objects_server.denied.clear)
    request.addfinalizer(objects_server.denied_operations.clear)
    objects_server.denied_operations |= {"PutObject", "DeleteObject", "DeleteObjects", "CopyObject"}
    bucket = objects.root.removeprefix("s3a://")
    objects_server.denied |= {f"/{bucket}/", f"/{bucket}/some/"}
    DeltaLog._cache.clear()
    assert ids(load(spark, path)) == ids(spark.sql(f"SELECT * FROM delta.`{path}`")) == [0, 1, 2]
    assert DeltaTable.forPath(spark, path).history().count() == 1
    with pytest.raises(StoreError, match="denied"):
        DeltaTable.forPath(spark, path).delete()
