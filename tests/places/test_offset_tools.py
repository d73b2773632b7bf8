"""Checkpoints on every file system that the offset tools change, in the session's process and in one without
Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rebuilding import plan_rebuilding
from deltaflow.log.streams.rewind import plan_rewind
from tests.places.test_streams import run
from tests.tables import ids, load, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.object_store.server import ObjectStoreServer
    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


def copied(spark: SparkSession, place: Place, sink: str, checkpoint: str) -> list[int]:
    """The ids in the sink after a stream has written there what the table `source` has."""
    source = spark.readStream.format("delta")
    source = source.option("schemaTrackingLocation", place.path(f"{checkpoint}/schemas"))
    run(source.load(place.path("source")), place.path(sink), place.path(checkpoint))
    return ids(load(spark, place.path(sink)))


@pytest.mark.long
def test_a_checkpoint_is_rewound_forked_and_rebuilt(spark: SparkSession, place: Place) -> None:
    source, sink, checkpoint = (place.path(name) for name in ("source", "sink", "checkpoint"))
    for start in (0, 2):
        write(spark.range(start, start + 2), source)
        copied(spark, place, "sink", "checkpoint")
    backup = plan_rewind(checkpoint, source, version=1, sink=sink).apply()
    assert copied(spark, place, "sink", "checkpoint") == [0, 1, 2, 2, 3, 3]
    assert backup is not None
    plan_fork(backup, place.path("forked")).apply()
    write(spark.range(4, 6), source)
    assert copied(spark, place, "second", "forked") == [4, 5]
    plan_rebuilding(place.path("rebuilt"), place.path("second")).apply()
    write(spark.range(6, 8), source)
    assert copied(spark, place, "second", "rebuilt") == [4, 5, 6, 7]


@pytest.mark.long
def test_a_checkpoint_is_forked_without_spark(
    spark: SparkSession, objects: Place, objects_server: ObjectStoreServer
) -> None:
    write(spark.range(2), objects.path("source"))
    copied(spark, objects, "sink", "checkpoint")
    # fsspec names the buckets by "s3:", Spark by "s3a:".
    checkpoint, forked = (objects.path(name).replace("s3a:", "s3:") for name in ("checkpoint", "forked"))
    subprocess.run(
        [sys.executable, "-m", "deltaflow.cli", "offsets", "fork", checkpoint, forked, "--yes"],
        env={**os.environ, **objects_server.storage_options()},
        check=True,
        timeout=120,
    )
    write(spark.range(2, 4), objects.path("source"))
    assert copied(spark, objects, "second", "forked") == [2, 3]
