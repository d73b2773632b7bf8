"""PySpark's `DataFrame.mergeInto` of a Delta table: the MERGE that SQL would make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import functions as F

from deltaflow.errors import DeltaAnalysisException
from tests.tables import load, operations, tuples

pytestmark = pytest.mark.spark


@pytest.fixture
def target(spark, table) -> Iterator[str]:
    """A table with the name `t` and the ids 1, 2, 3; its path."""
    spark.sql("SELECT id, CAST(id AS STRING) v FROM VALUES (1), (2), (3) AS of(id)").write.format(
        "delta"
    ).save(table)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table}'")
    yield table
    spark.sql("DROP TABLE t")


@pytest.fixture
def source(spark):
    return spark.sql("SELECT * FROM VALUES (2, 'two'), (4, 'four') AS of(id, v)").alias("s")


def test_every_clause(spark, target, source):
    merge = source.mergeInto("t", F.expr("s.id = t.id"))
    merge.whenMatched(F.col("s.id") == 1).delete().whenMatched().update({"v": F.concat("t.v", "s.v")})
    merge.whenNotMatched(F.expr("s.id = 5")).insertAll().whenNotMatched().insert({"id": F.col("s.id")})
    merge.whenNotMatchedBySource(F.expr("t.id = 1")).delete().whenNotMatchedBySource().update(
        {"v": F.lit("none")}
    )
    merge.merge()
    assert tuples(load(spark, target)) == [(2, "2two"), (3, "none"), (4, None)]
    assert operations(target) == ["WRITE", "MERGE"]


def test_whole_rows_new_columns_and_columns_of_the_frame(spark, target, source):
    source.mergeInto(
        "t", source.id == F.col("t.id")
    ).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    more = source.withColumn("n", F.lit(7)).where("id = 2")
    more.mergeInto("t", F.expr("s.id = t.id")).withSchemaEvolution().whenMatched().updateAll().merge()
    assert tuples(load(spark, target)) == [
        (1, "1", None),
        (2, "two", 7),
        (3, "3", None),
        (4, "four", None),
    ]


def test_by_path_out_of_the_table_itself_and_in_another_session(spark, target):
    name = f"delta.`{target}`"
    rows = spark.newSession().table(name).withColumn("v", F.lit("mine")).alias("s")
    rows.mergeInto(name, F.expr(f"s.id = {name}.id AND s.id > 1")).whenMatched().updateAll().merge()
    assert tuples(load(spark, target)) == [(1, "1"), (2, "mine"), (3, "mine")]


def test_in_a_stream(spark, target, source, tmp_path):
    source.write.format("delta").save(str(tmp_path / "source"))

    def merge(batch, _):
        merging = batch.alias("s").mergeInto("t", F.expr("s.id = t.id"))
        merging.whenMatched().updateAll().whenNotMatched().insertAll().merge()

    stream = spark.readStream.format("delta").load(str(tmp_path / "source")).writeStream.foreachBatch(merge)
    checkpoint = str(tmp_path / "checkpoint")
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert tuples(load(spark, target)) == [(1, "1"), (2, "two"), (3, "3"), (4, "four")]


def test_errors_leave_the_table_alone(spark, target, source, tmp_path):
    with pytest.raises(DeltaAnalysisException, match=r"Cannot resolve `t`\.`other`"):
        source.mergeInto("t", F.expr("s.id = t.other")).whenMatched().delete().merge()
    assert operations(target) == ["WRITE"]
    # A table of another format stays Spark's.
    spark.sql(f"CREATE TABLE parquet_rows USING parquet LOCATION '{tmp_path}/rows' AS SELECT 2 id")
    try:
        with pytest.raises(UnsupportedOperationException, match="MERGE INTO TABLE"):
            source.mergeInto("parquet_rows", F.expr("s.id = parquet_rows.id")).whenMatched().delete().merge()
    finally:
        spark.sql("DROP TABLE parquet_rows")
