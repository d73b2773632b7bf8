"""Tables whose data files have to hold the partition columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from tests.tables import actions, load, tuples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mode", ["none", "id"])
@pytest.mark.sampled(2)
def test_every_door_keeps_them(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (p STRING, id BIGINT, d DATE) USING delta PARTITIONED BY (p, d) TBLPROPERTIES "
        f"('delta.enableMaterializePartitionColumnsFeature' = 'true', 'delta.columnMapping.mode' = '{mode}')"
    )
    assert "materializePartitionColumns" in actions(path, "protocol", 0)[0]["writerFeatures"]
    rows = [("a b", 1, "2020-01-01"), ("a b", 2, None), (None, 3, "2020-01-02"), ("", 4, None)]
    frame = spark.createDataFrame(rows, "p STRING, id BIGINT, d STRING").selectExpr("p", "id", "date(d) d")
    frame.write.format("delta").mode("append").save(path)
    for add in actions(path, "add", 1):
        # The log has their values, so that no statistics repeat them.
        assert len(json.loads(add["stats"])["nullCount"]) == 1
    spark.sql(f"UPDATE {table} SET id = id + 10 WHERE id = 1")
    spark.sql(f"INSERT INTO {table} VALUES ('a b', 5, NULL)")
    spark.sql(f"OPTIMIZE {table}")
    source = str(tmp_path / "source")
    spark.sql("SELECT 'c' AS p, 6L AS id, DATE'2020-01-03' AS d").write.format("delta").save(source)
    stream = spark.readStream.format("delta").load(source).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).option("optimizeWrite", "true")
    stream.trigger(availableNow=True).start(path).awaitTermination()
    found = load(spark, path)
    wanted = [("a b", 11, "2020-01-01"), ("a b", 2, None), ("a b", 5, None), (None, 3, "2020-01-02")]
    wanted += [(None, 4, None), ("c", 6, "2020-01-03")]
    assert tuples(found.selectExpr("p", "id", "string(d) d")) == sorted(wanted, key=repr)
    in_files = []
    for file in Path(path).rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            # One file alone, without the names of its folders.
            columns = pq.ParquetFile(file).read().to_pydict().values()
            in_files += [(p, i, None if d is None else str(d)) for p, i, d in zip(*columns, strict=True)]
    assert set(in_files) >= set(wanted)
    spark.sql(f"ALTER TABLE {table} DROP FEATURE materializePartitionColumns")
    for asked in (False, True):
        spark.sql(
            f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.writePartitionColumnsToParquet' = '{asked}')"
        )
        spark.sql(f"INSERT INTO {table} VALUES ('a b', 7, NULL)")
        [add] = actions(path, "add")
        assert len(pq.ParquetFile(Path(path, unquote(add["path"]))).schema_arrow) == (3 if asked else 1)
