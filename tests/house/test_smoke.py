"""The whole of deltaflow once, briefly: this is what runs on the oldest supported PySpark as well."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaflow
from tests.tables import ids, ids_by_deltalake, load

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return deltaflow.session(
        "smoke",
        master="local[2]",
        config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"},
    )


def test_write_append_overwrite_and_read(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    numbers = spark.range(10).selectExpr("id", "id % 2 AS odd")
    numbers.write.format("delta").partitionBy("odd").save(str(table))
    numbers.where("id < 3").write.format("delta").mode("append").save(str(table))
    assert ids_by_deltalake(table) == sorted([*range(10), 0, 1, 2])
    odd = load(spark, str(table)).where("odd = 1").select("id")
    assert ids(odd) == [1, 1, 3, 5, 7, 9]
    numbers.where("id = 7").write.format("delta").mode("overwrite").save(str(table))
    assert ids_by_deltalake(table) == [7]


def test_a_stream_out_of_a_table_and_into_another(spark: SparkSession, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"

    def run_to_the_end() -> None:
        stream = spark.readStream.format("delta").load(str(source))
        query = (
            stream.writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(copy))
        )
        query.awaitTermination()

    spark.range(5).write.format("delta").save(str(source))
    run_to_the_end()
    assert ids_by_deltalake(copy) == [0, 1, 2, 3, 4]
    spark.range(5, 8).write.format("delta").mode("append").save(str(source))
    run_to_the_end()
    assert ids_by_deltalake(copy) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_an_error_of_ours_arrives_as_itself(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(deltaflow.errors.DeltaTableNotFoundError) as missing:
        load(spark, str(tmp_path / "nowhere")).collect()
    assert "nowhere" in str(missing.value)
    assert "py4j" not in str(missing.value)
