"""How many requests reads and micro-batches make on storages where each costs time and money.

The log of a loaded table costs a listing; a micro-batch of the sink costs a listing, the put of a commit (on
HDFS a hidden file and its rename), the checksum file, and of each data file what Spark's writer needs and its
footer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from deltaflow.log import DeltaLog
from deltaflow.log.maintenance import log_cleanup
from tests.tables import load, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

LISTING = {"webhdfs": {"LISTSTATUS_BATCH": 1}, "objects": {"ListObjectsV2": 1}}
"""One look for newer versions."""
COMMIT = {"webhdfs": {"CREATE": 2, "RENAME": 1}, "objects": {"PutObject": 2}}
"""The put of a commit and of its checksum file."""
DATA_FILE = {
    "webhdfs": {"CREATE": 1, "GETFILESTATUS": 1, "OPEN": 1},
    "objects": {"PutObject": 1, "HeadObject": 2, "ListObjectsV2": 1, "GetObject": 1},
}
"""Spark's write of a file, its look at the file, and the read of the footer. S3A's create looks first."""


@pytest.fixture(params=["webhdfs", "objects"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def total(*parts: dict[str, int]) -> Counter[str]:
    return sum((Counter(part) for part in parts), Counter())


def test_a_read_of_an_unchanged_table(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(spark.range(3), path)
    frame = load(spark, path)
    assert frame.count() == 3
    place.counted()
    assert frame.count() == 3
    assert place.counted() == LISTING[place.name]


def test_an_append(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    for _ in range(2):
        write(spark.range(3), path)
    place.counted()
    write(spark.range(3), path)
    assert place.counted() == total(LISTING[place.name], COMMIT[place.name], DATA_FILE[place.name])


@pytest.mark.sampled(2)
def test_a_micro_batch_of_the_sink(
    spark: SparkSession, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    local = tmp_path_factory.mktemp("local")
    source = str(local / "source")
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", "1")

    def requests_of(batches: int) -> Counter[str]:
        for _ in range(batches):
            write(spark.range(3), source)
        place.counted()
        sink = stream.load(source).writeStream.format("delta").trigger(availableNow=True)
        sink.option("checkpointLocation", str(local / "checkpoint")).start(place.path("t")).awaitTermination()
        return place.counted()

    for _ in range(2):
        requests_of(1)
    few, more = requests_of(1), requests_of(3)
    more.subtract(few)
    once = total(LISTING[place.name], COMMIT[place.name], DATA_FILE[place.name])
    assert +more == total(once, once)


def test_a_source_without_new_data(
    spark: SparkSession, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write(spark.range(3), place.path("t"))
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    stream = spark.readStream.format("delta").load(place.path("t")).writeStream.format("noop")
    query = stream.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        place.counted()
        for _ in range(3):
            query.processAllAvailable()
        counted = place.counted()
    finally:
        query.stop()
    [operation] = counted
    assert operation in LISTING[place.name]


def test_opening_a_table(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    for _ in range(5):
        write(spark.range(3), path, **{"delta.checkpointInterval": "3"})
    DeltaLog._cache.clear()
    place.counted()
    load(spark, path)
    # The hint of the checkpoint, a listing from there on, the checkpoint, and the commit after it.
    expected = {
        "webhdfs": {"OPEN": 3, "LISTSTATUS_BATCH": 1},
        "objects": {"GetObject": 3, "HeadObject": 2, "ListObjectsV2": 1},
    }
    assert place.counted() == expected[place.name]


def test_the_footers_of_many_new_files(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    for _ in range(2):
        write(spark.range(1).selectExpr("id", "id AS part"), path, partition_by=["part"])
    place.counted()
    write(spark.range(40).selectExpr("id", "id AS part"), path)
    counted = place.counted()
    once = total(LISTING[place.name], COMMIT[place.name])
    for _ in range(40):
        once.update(DATA_FILE[place.name])
    assert counted == once


def test_a_clean_up_of_the_log(spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleanup, "KEPT_MS", -60_000)
    path = place.path("t")
    for _ in range(4):
        write(spark.range(3), path, **{"delta.checkpointInterval": "3"})
    log = DeltaLog.for_table(path)
    log.snapshot()
    place.counted()
    log.truncate_history(-60_000)
    assert place.versions("t") == [3]
    # Commits and checksum files of three versions, which an object store deletes by one request.
    deletions = {name: number for name, number in place.counted().items() if name.startswith("D")}
    assert deletions == {"webhdfs": {"DELETE": 6}, "objects": {"DeleteObjects": 1}}[place.name]
