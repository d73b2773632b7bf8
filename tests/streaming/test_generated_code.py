"""Spark compiles the code of a stream once: no batch brings a value into it that another batch has not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streaming.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BATCHES = 3


def compiled(spark: SparkSession) -> int:
    """How many classes the JVM has compiled for Spark's plans."""
    metrics = spark.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


@pytest.mark.parametrize("generated", ["(id + 1)", "IDENTITY"])
@pytest.mark.sampled(2)
def test_later_batches_compile_nothing(
    spark: SparkSession, streams: Streams, tmp_path: Path, generated: str
) -> None:
    source, table = f"{tmp_path}/source", f"{tmp_path}/table"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, g BIGINT GENERATED ALWAYS AS {generated}) USING delta"
    )
    compiled_by_runs = []
    for first in (0, BATCHES):
        for number in range(first, first + BATCHES):
            streams.append(source, 10 * number, 10 * number + 10)
        before = compiled(spark)
        streams.copy(streams.read(source, maxFilesPerTrigger=1), table, f"{tmp_path}/checkpoint")
        compiled_by_runs.append(compiled(spark) - before)
    assert compiled_by_runs[0] > compiled_by_runs[1] == 0
