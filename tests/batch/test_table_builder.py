"""`DeltaTableBuilder`: tables made and replaced by Python, as SQL's statements make them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, LongType, StringType, StructField, StructType

from deltaflow import DeltaTable
from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTableBuilder, IdentityGenerator
from tests.tables import actions, operations

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]

OPERATIONS = ["create", "createIfNotExists", "replace", "createOrReplace"]


def builder(operation: str, spark: SparkSession) -> DeltaTableBuilder:
    made: DeltaTableBuilder = getattr(DeltaTable, operation)(spark)
    return made


class TestWhatATableIs:
    def test_by_path(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "a `table`"
        inner = StructType([StructField("x", LongType(), nullable=False, metadata={"comment": "deep"})])
        built = (
            DeltaTable.create(spark)
            .location(str(path))
            .addColumn("id", "INT", nullable=False, comment="a key")
            .addColumn("amount", DecimalType(10, 2))
            .addColumn("nested", "struct<ab: array<int>>")
            .addColumns(StructType([StructField("list", ArrayType(inner, containsNull=False))]))
            .addColumns([StructField("q", StringType()), StructField("p", StringType())])
            .addColumn("c", "char(3)")
            .partitionedBy("P", "q")
            .comment("all of it")
            .property("delta.appendOnly", "true")
            .property("mine", "1")
            .execute()
        )
        assert built.toDF().collect() == []
        snapshot = DeltaLog.for_table(str(path)).snapshot()
        assert snapshot.schema.simpleString() == (
            "struct<id:int,amount:decimal(10,2),nested:struct<ab:array<int>>,list:array<struct<x:bigint>>,"
            "q:string,p:string,c:string>"
        )
        assert not snapshot.schema["id"].nullable
        assert snapshot.schema["id"].metadata == {"comment": "a key"}
        assert snapshot.schema["list"].dataType == ArrayType(inner, containsNull=False)
        assert snapshot.schema["c"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
        assert snapshot.partition_columns == ["p", "q"]
        assert snapshot.metadata.description == "all of it"
        assert snapshot.metadata.configuration == {"delta.appendOnly": "true", "mine": "1"}
        (info,) = actions(str(path), "commitInfo")
        assert info["operation"] == "CREATE TABLE"
        parameters = info["operationParameters"]
        assert parameters["description"] == "all of it"
        assert parameters["isManaged"] == "false"
        assert json.loads(parameters["partitionBy"]) == ["p", "q"]
        assert json.loads(parameters["properties"]) == {"delta.appendOnly": "true", "mine": "1"}
        theirs = deltalake.DeltaTable(str(path))
        assert theirs.metadata().partition_columns == ["p", "q"]
        assert theirs.metadata().description == "all of it"
        assert [(field.name, field.nullable) for field in theirs.schema().fields][:2] == [
            ("id", False),
            ("amount", True),
        ]

    def test_by_name_its_files_are_the_databases(self, spark: SparkSession, database: Path) -> None:
        built = DeltaTable.create(spark).tableName("t").addColumn("id", "long").execute()
        spark.sql("INSERT INTO t VALUES (1)")
        assert [row.id for row in built.toDF().select("t.id").collect()] == [1]
        assert operations(database / "t") == ["CREATE TABLE", "WRITE"]
        spark.sql("DROP TABLE t")
        assert not (database / "t").exists()

    def test_by_name_and_location(self, spark: SparkSession, database: Path, tmp_path: Path) -> None:
        path = tmp_path / "external"
        DeltaTable.create(spark).tableName("t").location(str(path)).addColumn("id", "long").execute()
        spark.sql("INSERT INTO t VALUES (1)")
        assert [row.id for row in DeltaTable.forPath(spark, str(path)).toDF().collect()] == [1]
        spark.sql("DROP TABLE t")
        assert DeltaTable.isDeltaTable(spark, str(path))

    def test_a_path_as_the_name(self, spark: SparkSession, table: str) -> None:
        named = DeltaTable.create(spark).tableName(f"delta.`{table}`").addColumn("id", "long")
        assert named.location(table).execute().toDF().columns == ["id"]

    def test_a_location_that_is_relative(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        relative = os.path.relpath(tmp_path / "a/table")
        monkeypatch.chdir("/")
        DeltaTable.create(spark).location(relative).addColumn("id", "long").execute()
        assert DeltaTable.isDeltaTable(spark, str(tmp_path / "a/table"))

    def test_the_session_is_the_builders(self, spark: SparkSession, database: Path) -> None:
        other = spark.newSession()
        other.sql("USE default")
        built = DeltaTable.create(other).tableName(f"{database.name}.t").addColumn("id", "long").execute()
        assert built.toDF().sparkSession is other
        with pytest.raises(AnalysisException, match="DELTA_MISSING_DELTA_TABLE"):
            DeltaTable.forName(other, "t")
        assert DeltaTable.create().tableName("t2").addColumn("id", "long").execute().toDF().columns == ["id"]


@pytest.mark.parametrize("is_path", [True, False], ids=["path", "name"])
class TestTheFourOperations:
    @pytest.fixture
    def place(self, database: Path, is_path: bool) -> tuple[Any, Path]:
        """What tells a builder where its table is, and where that is."""
        path = database / "t"
        if is_path:
            return (lambda built: built.location(str(path))), path
        return (lambda built: built.tableName("t")), path

    @pytest.mark.parametrize(
        ("operation", "name"),
        [
            ("create", "CREATE TABLE"),
            ("createIfNotExists", "CREATE TABLE"),
            ("createOrReplace", "CREATE OR REPLACE TABLE"),
        ],
    )
    @pytest.mark.sampled(3)
    def test_without_a_table(self, spark: SparkSession, place: Any, operation: str, name: str) -> None:
        at, path = place
        at(builder(operation, spark)).addColumn("id", "long").execute()
        assert operations(path) == [name]

    def test_replace_needs_one(self, spark: SparkSession, place: Any) -> None:
        at, path = place
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            at(DeltaTable.replace(spark)).addColumn("id", "long").execute()
        assert not path.exists()

    def test_with_a_table(self, spark: SparkSession, place: Any, is_path: bool) -> None:
        at, path = place
        at(DeltaTable.create(spark)).addColumn("id", "long").partitionedBy().comment("old").execute()
        spark.range(3).write.format("delta").mode("append").save(str(path))
        table_id = DeltaLog.for_table(str(path)).snapshot().table_id
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
            at(DeltaTable.create(spark)).addColumn("x", "int").execute()
        there = at(DeltaTable.createIfNotExists(spark)).addColumn("x", "int").execute()
        assert there.toDF().count() == 3
        assert operations(path) == ["CREATE TABLE", "WRITE"]
        replaced = at(DeltaTable.replace(spark)).addColumn("x", "int").addColumn("y", "int")
        assert replaced.partitionedBy(["y"]).execute().toDF().collect() == []
        again = at(DeltaTable.createOrReplace(spark)).addColumn("z", "int").execute()
        assert again.toDF().columns == ["z"]
        assert operations(path)[2:] == ["REPLACE TABLE", "CREATE OR REPLACE TABLE"]
        snapshot = DeltaLog.for_table(str(path)).snapshot()
        assert (snapshot.table_id, snapshot.partition_columns) == (table_id, [])
        assert snapshot.metadata.description is None
        assert spark.read.format("delta").option("versionAsOf", 1).load(str(path)).count() == 3
        assert deltalake.DeltaTable(str(path)).file_uris() == []


class TestATableAtTheLocation:
    """A new name for a table that is there: as SQL has it, only if it is the same one."""

    @pytest.fixture
    def there(self, spark: SparkSession, table: str, database: Path) -> DeltaTableBuilder:
        spark.range(3).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(table)
        return DeltaTable.create(spark).tableName("t").location(table)

    def test_without_columns_it_is_taken_as_it_is(self, there: DeltaTableBuilder, table: str) -> None:
        assert there.execute().toDF().count() == 3
        assert operations(table) == ["WRITE"]

    def test_the_same_columns(self, there: DeltaTableBuilder) -> None:
        same = there.addColumn("id", "long").addColumn("p", "long").partitionedBy("p")
        assert same.execute().toDF().count() == 3

    def test_others(self, spark: SparkSession, there: DeltaTableBuilder, table: str) -> None:
        with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY"):
            there.property("mine", "1").execute()
        with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING"):
            there.addColumn("id", "long").addColumn("p", "long").execute()
        with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_SCHEME_MISMATCH"):
            there.addColumn("more", "long").execute()
        assert operations(table) == ["WRITE"]
        with pytest.raises(AnalysisException, match="DELTA_MISSING_DELTA_TABLE"):
            DeltaTable.forName(spark, "t")


class TestRefusals:
    def test_no_place_and_two_places(self, spark: SparkSession, tmp_path: Path) -> None:
        with pytest.raises(AnalysisException, match="Table name or location has to be specified") as caught:
            DeltaTable.create(spark).addColumn("id", "int").execute()
        assert caught.value.getCondition() == "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION"
        both = DeltaTable.create(spark).tableName(f"delta.`{tmp_path}/a`").location(f"{tmp_path}/b")
        with pytest.raises(AnalysisException, match="two places") as caught:
            both.addColumn("id", "int").execute()
        assert caught.value.getCondition() == "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH"
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_no_columns(self, spark: SparkSession, table: str, operation: str) -> None:
        if operation == "replace":
            DeltaTable.create(spark).location(table).addColumn("id", "int").execute()
        with pytest.raises(AnalysisException, match="partitioning when the table schema is not defined"):
            builder(operation, spark).location(table).partitionedBy("p").execute()
        built = builder(operation, spark).location(table)
        if "eplace" in operation:
            with pytest.raises(AnalysisException, match="DELTA_SCHEMA_NOT_PROVIDED"):
                built.execute()
        else:
            assert built.execute().toDF().columns == []
            spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (id INT)")  # deltalake reads no table without

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (lambda built: built.addColumn("ID", "int"), "DUPLICATE|ALREADY_EXISTS"),
            (lambda built: built.partitionedBy("nothing"), "nothing"),
            (lambda built: built.partitionedBy("id"), "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"),
            (lambda built: built.property("delta.nothing", "1"), "DELTA_UNKNOWN_CONFIGURATION"),
            (
                lambda built: built.property("delta.feature.coordinatedCommits-preview", "supported"),
                "coordinatedCommits-preview",
            ),
        ],
        ids=["duplicate", "partition", "all", "property", "feature"],
    )
    def test_what_no_table_can_be(self, spark: SparkSession, table: str, change: Any, error: str) -> None:
        with pytest.raises(AnalysisException, match=error):
            change(DeltaTable.create(spark).location(table).addColumn("id", "int")).execute()
        assert not DeltaTable.isDeltaTable(spark, table)

    @pytest.mark.parametrize(
        "say",
        [
            lambda built: built.tableName(1),
            lambda built: built.location(1),
            lambda built: built.comment(1),
            lambda built: built.addColumn(1, "int"),
            lambda built: built.addColumn("a", 1),
            lambda built: built.addColumn("a", "int", nullable=1),
            lambda built: built.addColumn("a", "int", comment=1),
            lambda built: built.addColumn("a", "int", generatedAlwaysAs=1),
            lambda built: built.addColumn("a", "int", generatedByDefaultAs="x"),
            lambda built: built.addColumns([1]),
            lambda built: built.addColumns(1),
            lambda built: built.partitionedBy(1),
            lambda built: built.partitionedBy(["a", 1]),
            lambda built: built.clusterBy(1),
            lambda built: built.property("a", 1),
            lambda built: built.property(1, "a"),
        ],
    )
    @pytest.mark.sampled(3)
    def test_arguments_of_a_wrong_type(self, spark: SparkSession, say: Any) -> None:
        with pytest.raises(TypeError, match=r"Found .* with type <class '(int|str)'>"):
            say(DeltaTable.create(spark))

    def test_other_wrong_arguments(self, spark: SparkSession) -> None:
        new = DeltaTable.create(spark)
        with pytest.raises(ParseException):
            new.addColumn("a", "1")
        with pytest.raises(ValueError, match="cannot both be set"):
            new.addColumn("a", "long", generatedAlwaysAs="1", generatedByDefaultAs=IdentityGenerator())
        with pytest.raises(ValueError, match="step to be non-zero"):
            new.addColumn("a", "long", generatedAlwaysAs=IdentityGenerator(step=0))
