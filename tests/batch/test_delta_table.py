"""`DeltaTable` by path and by name: which table it is, its rows, and what is no table."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row, SparkSession

import deltaflow.tables
from deltaflow import DeltaTable, exceptions
from deltaflow.errors import DeltaError
from deltaflow.log.observer import set_observer
from tests.tables import ids

pytestmark = pytest.mark.spark


def write_ids(spark: SparkSession, path: Path | str, *, mode: str = "error", count: int = 3) -> None:
    spark.range(count).write.format("delta").mode(mode).save(str(path))


def test_a_table_by_its_path(spark: SparkSession, table: str) -> None:
    write_ids(spark, table)
    by_path = DeltaTable.forPath(spark, table)
    assert ids(by_path.toDF()) == [0, 1, 2]
    frame = by_path.toDF()
    write_ids(spark, table, mode="append", count=1)
    assert ids(frame) == ids(by_path.toDF()) == [0, 0, 1, 2]
    assert ids(DeltaTable.forPath(spark, f"file:{table}").toDF()) == [0, 0, 1, 2]


def test_a_path_that_is_relative_is_below_the_directory_in_which_spark_was_started(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ids(spark, table)
    path = os.path.relpath(table)
    before = DeltaTable.forPath(spark, path)
    monkeypatch.chdir("/")
    assert ids(before.toDF()) == ids(DeltaTable.forPath(spark, path).toDF()) == [0, 1, 2]


def test_an_alias_qualifies_the_columns(spark: SparkSession, table: str) -> None:
    write_ids(spark, table)
    plain = DeltaTable.forPath(spark, table)
    assert plain.alias("t").toDF().where("t.id = 1").select("t.id").collect() == [Row(id=1)]
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        plain.toDF().select("t.id")


def test_settings_of_file_systems_reach_sparks_read(spark: SparkSession, table: str) -> None:
    write_ids(spark, table)
    assert ids(DeltaTable.forPath(spark, table, {"fs.mine": "1", "dfs.mine": "2"}).toDF()) == [0, 1, 2]
    broken = {"fs.file.impl": "no.such.FileSystem", "fs.file.impl.disable.cache": "true"}
    with pytest.raises(Exception, match=r"no\.such\.FileSystem"):
        ids(DeltaTable.forPath(spark, table, hadoopConf=broken).toDF())
    with pytest.raises(DeltaError, match=r"fs\., dfs\., and not spark\.x, y") as refused:
        DeltaTable.forPath(spark, table, {"y": "1", "spark.x": "1", "fs.mine": "1"})
    assert refused.value.error_class == "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF"


@pytest.mark.parametrize("name", ["t", "{db}.t", "spark_catalog.{db}.t", "`{db}`.`T`"])
def test_a_table_by_its_name(spark: SparkSession, database: Path, name: str) -> None:
    spark.range(3).write.format("delta").saveAsTable("t")
    by_name = DeltaTable.forName(spark, name.format(db=database.name))
    assert ids(by_name.toDF()) == [0, 1, 2]
    assert by_name.toDF().select("t.id").count() == 3
    assert by_name.alias("x").toDF().select("x.id").count() == 3


def test_a_name_stays_that_of_its_database(spark: SparkSession, database: Path) -> None:
    spark.range(1).write.format("delta").saveAsTable("t")
    here = DeltaTable.forName(spark, "t")
    spark.sql("USE default")
    assert ids(here.toDF()) == [0]


def test_a_path_as_a_name(spark: SparkSession, tmp_path: Path) -> None:
    odd = tmp_path / "a`b c"
    write_ids(spark, odd)
    quoted = str(odd).replace("`", "``")
    assert ids(DeltaTable.forName(spark, f"delta.`{quoted}`").toDF()) == [0, 1, 2]
    assert ids(DeltaTable.forPath(spark, str(odd)).toDF()) == [0, 1, 2]


class TestWhatIsNoTable:
    def refused(self, error_class: str, *texts: str) -> Any:
        return pytest.raises(AnalysisException, match=rf"^\[{error_class}\].*{'.*'.join(texts)}")

    def test_paths(self, spark: SparkSession, tmp_path: Path) -> None:
        spark.range(1).write.parquet(str(tmp_path / "parquet"))
        write_ids(spark, tmp_path / "table")
        (tmp_path / "table" / "folder").mkdir()
        (tmp_path / "table" / "_symlink").mkdir()
        for name in ("parquet", "nothing", "."):
            assert DeltaTable.isDeltaTable(spark, str(tmp_path / name)) is False
            with self.refused("DELTA_MISSING_DELTA_TABLE", name, "not a Delta table", "Check the path"):
                DeltaTable.forPath(spark, str(tmp_path / name))
        assert DeltaTable.isDeltaTable(spark, str(tmp_path / "table")) is True
        # An operation on one folder of a table would be one on all of it.
        assert DeltaTable.isDeltaTable(spark, str(tmp_path / "table/folder")) is False
        with self.refused("DELTA_MISSING_DELTA_TABLE", "a part of the table", f"{tmp_path}/table:"):
            DeltaTable.forPath(spark, str(tmp_path / "table/folder"))
        with self.refused("DELTA_MISSING_DELTA_TABLE", "nothing"):
            DeltaTable.forName(spark, f"delta.`{tmp_path}/nothing`")

    def test_names(self, spark: SparkSession, database: Path) -> None:
        spark.range(1).write.format("parquet").saveAsTable("other")
        spark.range(1).write.format("delta").saveAsTable("t")
        spark.sql("CREATE VIEW stored AS SELECT * FROM t")
        spark.table("t").createOrReplaceTempView("temporary")
        for name in ("other", "nothing", "no_database.t", "no_catalog.x.t", "delta.`relative`"):
            with self.refused("DELTA_MISSING_DELTA_TABLE", name, "Check the name"):
                DeltaTable.forName(spark, name)
        for name in ("stored", "temporary"):
            with self.refused("DELTA_MISSING_DELTA_TABLE", name, "It is a view"):
                DeltaTable.forName(spark, name)
        with pytest.raises(ParseException):
            DeltaTable.forName(spark, "no name")
        shutil.rmtree(database / "t")
        with self.refused("DELTA_TABLE_NOT_FOUND", f"spark_catalog.{database.name}.t", "DROP TABLE"):
            DeltaTable.forName(spark, "t")

    def test_what_is_no_string(self, spark: SparkSession) -> None:
        with pytest.raises(ValueError, match=r"path needs to be a string but got '<class 'int'>'\."):
            DeltaTable.forPath(spark, 1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="tableOrViewName needs to be a string"):
            DeltaTable.forName(spark, None)  # type: ignore[arg-type]


class TestTheNamesOfDeltasExceptions:
    """A lost race is caught by the names of `delta.exceptions`, whatever API lost it."""

    @pytest.fixture
    def lost(self, spark: SparkSession, table: str) -> Any:
        """Lets an append come between a write's files and its commit, which then loses."""
        write_ids(spark, table)

        def rival(point: str, facts: dict[str, Any]) -> None:
            if point == "files written" and facts["path"] == table:
                set_observer(None)
                write_ids(spark, table, mode="append")

        set_observer(rival)
        yield pytest.raises(exceptions.ConcurrentAppendException, match="full scan of the table")
        set_observer(None)

    def test_of_a_batch(self, spark: SparkSession, table: str, lost: Any) -> None:
        with lost:
            write_ids(spark, table, mode="overwrite")

    def test_of_sql(self, spark: SparkSession, table: str, lost: Any) -> None:
        with lost:
            spark.sql(f"INSERT OVERWRITE delta.`{table}` SELECT 1L")

    def test_of_a_batch_of_a_stream(self, spark: SparkSession, table: str, tmp_path: Path, lost: Any) -> None:
        write_ids(spark, tmp_path / "source")
        caught = []

        def overwrite(batch: Any, batch_id: int) -> None:
            with lost as raised:
                batch.write.format("delta").mode("overwrite").save(table)
            caught.append(raised.value)

        stream = spark.readStream.format("delta").load(str(tmp_path / "source")).writeStream
        stream = stream.foreachBatch(overwrite).option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start().awaitTermination()
        assert [error.name for error in caught] == ["ConcurrentAppendException"]

    def test_of_the_sink_it_is_named(
        self, spark: SparkSession, table: str, tmp_path: Path, lost: Any
    ) -> None:
        from pyspark.errors import StreamingQueryException

        write_ids(spark, tmp_path / "source")
        stream = spark.readStream.format("delta").load(str(tmp_path / "source")).groupBy("id").count()
        stream = stream.drop("count").writeStream.format("delta").outputMode("complete")
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start(table)
        with pytest.raises(StreamingQueryException, match="DELTA_CONCURRENT_APPEND"):
            query.processAllAvailable()


PARAMETERS = {
    "DeltaMergeBuilder": {
        "execute": "",
        "whenMatchedDelete": "condition",
        "whenMatchedUpdate": "condition, set",
        "whenMatchedUpdateAll": "condition",
        "whenNotMatchedBySourceDelete": "condition",
        "whenNotMatchedBySourceUpdate": "condition, set",
        "whenNotMatchedInsert": "condition, values",
        "whenNotMatchedInsertAll": "condition",
        "withSchemaEvolution": "",
    },
    "DeltaOptimizeBuilder": {"executeCompaction": "", "executeZOrderBy": "cols", "where": "partitionFilter"},
    "DeltaTable": {
        "addFeatureSupport": "featureName",
        "alias": "aliasName",
        "clone": "target, isShallow, replace, properties",
        "cloneAtTimestamp": "timestamp, target, isShallow, replace, properties",
        "cloneAtVersion": "version, target, isShallow, replace, properties",
        "convertToDelta": "sparkSession, identifier, partitionSchema",
        "create": "sparkSession",
        "createIfNotExists": "sparkSession",
        "createOrReplace": "sparkSession",
        "delete": "condition",
        "detail": "",
        "dropFeatureSupport": "featureName, truncateHistory",
        "forName": "sparkSession, tableOrViewName",
        "forPath": "sparkSession, path, hadoopConf",
        "generate": "mode",
        "history": "limit",
        "isDeltaTable": "sparkSession, identifier",
        "merge": "source, condition",
        "optimize": "",
        "replace": "sparkSession",
        "restoreToTimestamp": "timestamp",
        "restoreToVersion": "version",
        "toDF": "",
        "update": "condition, set",
        "upgradeTableProtocol": "readerVersion, writerVersion",
        "vacuum": "retentionHours",
    },
    "DeltaTableBuilder": {
        "addColumn": "colName, dataType, nullable, generatedAlwaysAs, generatedByDefaultAs, comment",
        "addColumns": "cols",
        "clusterBy": "cols",
        "comment": "comment",
        "execute": "",
        "location": "location",
        "partitionedBy": "cols",
        "property": "key, value",
        "tableName": "identifier",
    },
    "IdentityGenerator": {},
}
"""The public methods of `delta.tables` and the names of their parameters."""
OF_ITS_OWN = {"DeltaTable.addConstraint", "DeltaTable.dropConstraint", "DeltaTable.repair"}


def public_methods(name: str) -> dict[str, list[str]]:
    """The public methods of a class of `deltaflow.tables`, and the names of their parameters."""
    class_ = getattr(deltaflow.tables, name)
    found = {}
    members = {name: member for base in reversed(class_.__mro__) for name, member in vars(base).items()}
    for method, member in members.items():
        if not method.startswith("_") and (callable(member) or isinstance(member, classmethod)):
            names = list(inspect.signature(getattr(class_, method)).parameters)
            found[method] = names if isinstance(member, classmethod) else names[1:]
    return found


@pytest.mark.parametrize("name", deltaflow.tables.__all__)
def test_methods_have_the_parameters_that_they_have_in_delta(name: str) -> None:
    methods = public_methods(name)
    assert {f"{name}.{method}" for method in methods.keys() - PARAMETERS[name].keys()} <= OF_ITS_OWN
    for method, parameters in methods.items():
        if f"{name}.{method}" in OF_ITS_OWN:
            continue
        expected = [parameter for parameter in PARAMETERS[name][method].split(", ") if parameter]
        # Further ones of deltaflow's own stand behind these.
        assert parameters[: len(expected)] == expected, method
