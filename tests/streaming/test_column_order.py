"""A table's columns keep their order, whatever the positions of its partition columns are."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.tables import load

pytestmark = pytest.mark.spark

EXPECTED = [
    Row(kind="b", id=0, part=0, value=0, last="z"),
    Row(kind="b", id=1, part=1, value=10, last="z"),
    Row(kind="b", id=2, part=0, value=20, last="z"),
]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Partitioned by two of its columns, neither of them the last."""
    path = str(tmp_path / "table")
    columns = ("'b' AS kind", "id", "id % 2 AS part", "id * 10 AS value", "'z' AS last")
    spark.range(3).selectExpr(*columns).write.format("delta").partitionBy("part", "kind").save(path)
    return path


def test_a_batch_read_has_the_columns_in_the_order_of_the_table(spark: SparkSession, table: str) -> None:
    assert load(spark, table).orderBy("id").collect() == EXPECTED


def test_a_stream_gives_every_column_its_own_values(spark: SparkSession, table: str) -> None:
    seen: list[Row] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        seen.extend(batch.collect())

    stream = spark.readStream.format("delta").load(table)
    query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(seen, key=lambda row: row.id) == EXPECTED
