"""Functions that are defined in SQL, in the conditions and values of DELETE, UPDATE and MERGE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltaflow.errors import DeltaError
from tests.tables import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture(autouse=True)
def doubled(spark: SparkSession) -> Iterator[None]:
    spark.sql("CREATE TEMPORARY FUNCTION doubled(a BIGINT) RETURNS BIGINT RETURN a + a")
    yield
    spark.sql("DROP TEMPORARY FUNCTION doubled")


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.sampled(2)
def test_conditions_and_values(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(8).selectExpr("id", "id AS v").write.format("delta")
    rows.option("delta.enableDeletionVectors", vectors).save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE doubled(id) = 14")
    spark.sql(f"UPDATE delta.`{path}` SET v = doubled(doubled(v)) WHERE doubled(id) > 8")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 4L AS id UNION ALL SELECT 20L) s ON doubled(t.id) = s.id "
        "WHEN MATCHED AND doubled(s.id) = 8 THEN UPDATE SET v = doubled(t.v) + doubled(s.id) "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (doubled(s.id), s.id)"
    )
    found = [tuple(row) for row in load(spark, path).orderBy("id").collect()]
    assert found == [(0, 0), (1, 1), (2, 12), (3, 3), (4, 4), (5, 20), (6, 24), (40, 20)]


def test_an_argument_that_differs_each_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    spark.range(2).write.format("delta").save(path)
    with pytest.raises(DeltaError, match="defined in SQL"):
        spark.sql(f"UPDATE delta.`{path}` SET id = doubled(CAST(rand() * 100 AS BIGINT))")
    assert load(spark, path).count() == 2
