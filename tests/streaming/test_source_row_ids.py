"""Row ids of streams out of tables with row tracking: fields of `_metadata`, as in batch queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from tests.tables import load, tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

IDS = ("id", "_metadata.row_id", "_metadata.row_commit_version")


@pytest.mark.parametrize("properties", ["", ", 'delta.enableDeletionVectors' = 'true'"])
@pytest.mark.sampled(2)
def test_a_stream_has_the_row_ids_of_a_batch_query(
    streams: Any, table: str, checkpoint: str, sink: str, properties: str
) -> None:
    spark, name = streams.spark, f"delta.`{table}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, v INT) USING delta TBLPROPERTIES "
        f"('delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name'{properties})"
    )
    spark.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(0, 4, 1, 1)")
    spark.sql(f"UPDATE {name} SET v = 1 WHERE id = 1")

    def read(**options: object) -> DataFrame:
        source: DataFrame = streams.read(table, ignoreChanges=True, **options)
        return source.where("_metadata.row_id IS NOT NULL").select(*IDS)

    streams.copy(read(), sink, checkpoint)
    before = tuples(load(spark, table).select(*IDS))
    assert tuples(load(spark, sink)) == before
    assert dict(row[:2] for row in before) == {id_: id_ for id_ in range(4)}
    # Commits: new rows, and rows that a change has written again.
    spark.sql(f"INSERT INTO {name} VALUES (4, 0), (5, 0)")
    spark.sql(f"UPDATE {name} SET v = 2 WHERE id IN (0, 4)")
    streams.copy(read(), sink, checkpoint)
    now = {row[0]: row for row in tuples(load(spark, table).select(*IDS))}
    assert {row for row in tuples(load(spark, sink)) if row[2] == 4} == {now[0], now[4]}
    assert now[0][1] == 0
    assert {row[1] for row in tuples(load(spark, sink)) if row[0] == 4} == {now[4][1]}
    # The same by a table's name, with a filter of the source, and the whole of _metadata.
    whole = streams.read(table, sourceFilter="id > 4", maxFilesPerTrigger=1).select("*", "_metadata")
    seen: list[Any] = []
    other = f"{checkpoint}-2"
    streams.ended(streams.foreach(whole, other, lambda batch, _: seen.extend(batch.collect())))
    assert [(row.id, row["_metadata"].row_id, row["_metadata"].row_commit_version) for row in seen] == [
        now[5]
    ]
    assert seen[0]["_metadata"].file_path.endswith(".parquet")


def test_a_stream_without_row_ids(streams: Any, table: str, checkpoint: str) -> None:
    spark, name = streams.spark, f"delta.`{table}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    with pytest.raises(AnalysisException, match="_metadata"):
        streams.read(table).select("_metadata.row_id")
    defined = streams.read(table)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    assert streams.batches(defined, checkpoint) == {0: [1]}
    found = streams.batches(streams.read(table).select("_metadata.row_id"), f"{checkpoint}-2")
    assert found == {0: [0]}
    # A file of a commit from before has no ids.
    early = streams.read(table, startingVersion=0)
    assert streams.batches(early, f"{checkpoint}-3") == {0: [1]}
    failing = streams.foreach(
        early.select("_metadata.row_id"), f"{checkpoint}-4", lambda batch, _: batch.collect()
    )
    error = streams.failed(failing)
    assert "has no row ids: it was added before row tracking was enabled" in error
    assert "Leave _metadata.row_id" in error
    # Row tracking that is gone when the query starts.
    asked = streams.read(table).select("_metadata.row_id")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')")
    gone = streams.foreach(asked, f"{checkpoint}-5", lambda batch, _: batch.collect())
    assert streams.failure(gone).code == "DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS"


def test_a_stream_by_name(streams: Any, tmp_path: Path, checkpoint: str) -> None:
    spark = streams.spark
    spark.sql(
        f"CREATE TABLE tracked_rows (id BIGINT) USING delta LOCATION '{tmp_path}/named' "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    try:
        spark.sql("INSERT INTO tracked_rows VALUES (7)")
        by_reader = spark.readStream.table("tracked_rows").select("_metadata.row_id")
        assert streams.batches(by_reader, checkpoint) == {0: [0]}
    finally:
        spark.sql("DROP TABLE tracked_rows")
