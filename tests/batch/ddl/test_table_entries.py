"""ALTER TABLE … RENAME TO and SET LOCATION: what Spark's catalog says of a table; its log stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog
from tests.tables import ids, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def cached_frames(spark: SparkSession) -> int:
    size: int = spark.sparkContext._jsc.getPersistentRDDs().size()
    return size


@pytest.fixture
def external(spark: SparkSession, database: Path, table: str) -> str:
    """The path of an external table that is named `e`."""
    spark.range(3).write.format("delta").save(table)
    spark.sql(f"CREATE TABLE e USING delta LOCATION '{table}'")
    return table


class TestRename:
    def test_a_managed_table_moves_with_its_log(self, spark: SparkSession, database: Path) -> None:
        spark.range(3).write.format("delta").saveAsTable("t")
        spark.sql("INSERT INTO t VALUES (3)")
        table_id = DeltaLog.for_table(str(database / "t")).snapshot().table_id
        spark.sql("ALTER TABLE t RENAME TO u")
        assert not (database / "t").exists()
        assert DeltaLog.for_table(str(database / "u")).snapshot().table_id == table_id
        assert not spark.catalog.tableExists("t")
        assert ids(spark.table("u")) == [0, 1, 2, 3]
        assert spark.sql("SELECT * FROM u VERSION AS OF 0").count() == 3
        spark.sql("INSERT INTO u VALUES (4)")
        spark.sql("DELETE FROM u WHERE id = 0")
        assert ids(spark.table("u")) == [1, 2, 3, 4]
        # The old name is free for another table, of which nothing is known from before.
        spark.range(7, 8).write.format("delta").saveAsTable("t")
        assert ids(spark.table("t")) == [7]
        assert ids(spark.table("u")) == [1, 2, 3, 4]
        spark.sql("DROP TABLE u")
        assert not (database / "u").exists()

    def test_an_external_table_stays_where_it_is(self, spark: SparkSession, external: str) -> None:
        spark.sql("ALTER TABLE e RENAME TO u")
        assert not spark.catalog.tableExists("e")
        assert DeltaLog.for_table(external).latest_version() == 0
        spark.sql("INSERT INTO u VALUES (3)")
        assert load(spark, external).count() == 4
        spark.sql("DROP TABLE u")
        assert DeltaLog.for_table(external).latest_version() == 1

    @pytest.mark.parametrize("named", ["IDENTIFIER('e')", "spark_catalog.{db}.e", "{db}.e"])
    def test_other_ways_to_say_the_name(
        self, spark: SparkSession, external: str, database: Path, named: str
    ) -> None:
        new = f"{database.name}.u" if "{db}" in named else "u"
        spark.sql(f"ALTER TABLE {named.format(db=database.name)} RENAME TO {new}")
        assert ids(spark.table("u")) == [0, 1, 2]

    def test_what_is_cached_is_let_go(self, spark: SparkSession, external: str) -> None:
        before = cached_frames(spark)
        spark.catalog.cacheTable("e")
        assert ids(spark.table("e")) == [0, 1, 2]
        spark.sql("ALTER TABLE e RENAME TO u")
        assert cached_frames(spark) <= before
        spark.sql("INSERT INTO u VALUES (3)")
        assert ids(spark.table("u")) == [0, 1, 2, 3]

    def test_another_schema_or_a_name_that_is_taken_changes_nothing(
        self, spark: SparkSession, external: str, database: Path
    ) -> None:
        spark.range(7, 8).write.format("delta").saveAsTable("taken")
        spark.range(7, 8).write.format("delta").saveAsTable("m")
        (database / "left").mkdir()
        (database / "left" / "file").write_text("of somebody else")
        for table, target in (
            ("e", "taken"),
            ("m", "taken"),
            ("m", "left"),
            ("e", "default.u"),
            ("m", "default.u"),
            ("m", f"delta.`{external}-new`"),
            (f"delta.`{external}`", "u"),
            ("nothing", "u"),
        ):
            with pytest.raises(PySparkException):
                spark.sql(f"ALTER TABLE {table} RENAME TO {target}")
        with pytest.raises(DeltaUnsupportedOperationException):
            spark.sql(f"ALTER TABLE delta.`{external}` RENAME TO u")
        assert ids(spark.table("e")) == [0, 1, 2]
        assert ids(spark.table("m")) == ids(spark.table("taken")) == [7]
        assert {table.name for table in spark.catalog.listTables() if not table.isTemporary} == {
            "e",
            "m",
            "taken",
        }

    def test_views_and_temporary_names_are_sparks(self, spark: SparkSession, external: str) -> None:
        spark.sql("CREATE VIEW v AS SELECT id FROM e")
        spark.sql("ALTER VIEW v RENAME TO w")
        assert ids(spark.table("w")) == [0, 1, 2]
        load(spark, external).createOrReplaceTempView("passing")
        spark.sql("ALTER VIEW passing RENAME TO past")
        assert ids(spark.table("past")) == [0, 1, 2]
        spark.catalog.dropTempView("past")
        with pytest.raises(AnalysisException):
            spark.sql("ALTER VIEW e RENAME TO u")


class TestSetLocation:
    def test_the_name_stands_for_the_other_table(
        self, spark: SparkSession, external: str, tmp_path: Path
    ) -> None:
        spark.range(5, 7).write.format("delta").save(str(tmp_path / "other"))
        assert ids(spark.table("e")) == [0, 1, 2]
        spark.sql(f"ALTER TABLE e SET LOCATION '{tmp_path}/other'")
        assert ids(spark.table("e")) == [5, 6]
        spark.sql("INSERT INTO e VALUES (8)")
        assert load(spark, str(tmp_path / "other")).count() == 3
        assert DeltaLog.for_table(external).latest_version() == 0

    def test_what_is_cached_is_read_anew(self, spark: SparkSession, external: str, tmp_path: Path) -> None:
        spark.range(5, 7).write.format("delta").save(str(tmp_path / "other"))
        before = cached_frames(spark)
        spark.catalog.cacheTable("e")
        assert ids(spark.table("e")) == [0, 1, 2]
        assert cached_frames(spark) > before
        spark.sql(f"ALTER TABLE e SET LOCATION 'file:{tmp_path}/other'")
        assert spark.catalog.isCached("e")
        assert ids(spark.table("e")) == [5, 6]
        spark.catalog.uncacheTable("e")
        assert cached_frames(spark) <= before

    @pytest.mark.parametrize(
        ("make", "condition"),
        [
            (lambda frame, path: None, "DELTA_MISSING_DELTA_TABLE"),
            (lambda frame, path: frame.write.parquet(path), "DELTA_MISSING_DELTA_TABLE"),
            (
                lambda frame, path: frame.selectExpr("string(id) id").write.format("delta").save(path),
                "DELTA_SET_LOCATION_SCHEMA_MISMATCH",
            ),
            (
                lambda frame, path: (
                    frame.selectExpr("id", "1 AS p").write.format("delta").partitionBy("p").save(path)
                ),
                "DELTA_SET_LOCATION_SCHEMA_MISMATCH",
            ),
        ],
        ids=["nothing", "parquet", "type", "partitions"],
    )
    def test_refused(
        self,
        spark: SparkSession,
        external: str,
        tmp_path: Path,
        make: Callable[[Any, str], None],
        condition: str,
    ) -> None:
        make(spark.range(5, 7), str(tmp_path / "other"))
        with pytest.raises(AnalysisException) as raised:
            spark.sql(f"ALTER TABLE e SET LOCATION '{tmp_path}/other'")
        assert raised.value.getCondition() == condition
        assert ids(spark.table("e")) == [0, 1, 2]

    def test_a_setting_takes_another_schema(
        self, spark: SparkSession, external: str, tmp_path: Path, setting: Callable[[str, str], None]
    ) -> None:
        spark.range(1).selectExpr("id", "2 AS x").write.format("delta").save(str(tmp_path / "other"))
        setting("spark.databricks.delta.alterLocation.bypassSchemaCheck", "true")
        spark.sql(f"ALTER TABLE e SET LOCATION '{tmp_path}/other'")
        assert spark.table("e").columns == ["id", "x"]

    def test_a_path_and_a_partition_have_no_location(
        self, spark: SparkSession, external: str, tmp_path: Path
    ) -> None:
        spark.range(1).write.format("delta").save(str(tmp_path / "other"))
        with pytest.raises(DeltaAnalysisException) as raised:
            spark.sql(f"ALTER TABLE delta.`{external}` SET LOCATION '{tmp_path}/other'")
        assert raised.value.getCondition() == "DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER"
        with pytest.raises(DeltaUnsupportedOperationException):
            spark.sql(f"ALTER TABLE e PARTITION (id = 1) SET LOCATION '{tmp_path}/other'")
