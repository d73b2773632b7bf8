"""Tables by name and in SQL are not built yet: every statement on one is refused before a file is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from deltaflow.errors import DeltaUnsupportedOperationException

pytestmark = pytest.mark.spark

REFUSALS = ("DELTA_UNSUPPORTED_TABLE_BY_NAME", "DELTA_UNSUPPORTED_INSERT_INTO_VIEW")
DATABASE = "deltaflow_refused"
Act = Callable[["World"], Any]


class World:
    """A database with Delta tables under `folder`, and what a test does to them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = folder / "table"
        self.frame: DataFrame = spark.range(6).selectExpr("id", "id * 2 AS v", "CAST(id % 3 AS STRING) AS m")

    def stream(self) -> Any:
        checkpoint = str(self.folder / "checkpoint")
        stream = self.spark.readStream.format("delta").load(str(self.path))
        return stream.writeStream.option("checkpointLocation", checkpoint)


@pytest.fixture(scope="module")
def folder(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, delta_entry: Callable[..., None]
) -> Iterator[Path]:
    """by path: table; in the catalog: external (over table), managed, and a parquet table `other`."""
    folder = tmp_path_factory.mktemp("refused")
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{folder}/database'")
    before = spark.catalog.currentDatabase()
    spark.sql(f"USE {DATABASE}")
    world = World(spark, folder)
    world.frame.write.format("delta").partitionBy("m").save(str(world.path))
    managed = folder / "database" / "managed"
    world.frame.write.format("delta").save(str(managed))
    delta_entry(spark, "external", world.path, managed=False)
    delta_entry(spark, "managed", managed, managed=True)
    world.frame.write.format("parquet").saveAsTable("other")
    spark.sql(f"USE {before}")
    yield folder
    spark.catalog.dropGlobalTempView("seen_by_all")
    # The entries are refused to be dropped by us; the session's own catalog does it.
    catalog = spark._jsparkSession.sessionState().catalog()
    catalog.dropDatabase(DATABASE, False, True)


def in_session(session: SparkSession, folder: Path) -> Iterator[World]:
    before = session.catalog.currentDatabase()
    session.sql(f"USE {DATABASE}")
    world = World(session, folder)
    load = session.read.format("delta").load(str(world.path))
    load.createOrReplaceTempView("seen")
    load.createOrReplaceGlobalTempView("seen_by_all")
    yield world
    session.catalog.dropTempView("seen")
    session.sql(f"USE {before}")


@pytest.fixture(scope="module")
def world(spark: SparkSession, folder: Path) -> Iterator[World]:
    yield from in_session(spark, folder)


@pytest.fixture
def new_session(spark: SparkSession, folder: Path) -> Iterator[World]:
    yield from in_session(spark.newSession(), folder)


def sql(statement: str) -> Act:
    return lambda world: world.spark.sql(statement.replace("PATH", str(world.path))).collect()


# {t} is a Delta table: by path, or an entry that is in the catalog already.
ON_A_TABLE = [
    "SELECT * FROM {t}",
    "INSERT INTO {t} VALUES (1, 2, '3')",
    "INSERT INTO {t} BY NAME SELECT 1L AS id, 2L AS v, '3' AS m",
    "INSERT INTO {t} REPLACE WHERE id = 1 VALUES (1, 2, '3')",
    "INSERT OVERWRITE {t} VALUES (1, 2, '3')",
    "INSERT OVERWRITE {t} PARTITION (m = '1') VALUES (1, 2)",
    "INSERT OVERWRITE {t} SELECT * FROM {t}",
    "DELETE FROM {t}",
    "DELETE FROM {t} WHERE id = 1",
    "UPDATE {t} SET v = 1",
    "MERGE INTO {t} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {t}",
    "TRUNCATE TABLE {t} PARTITION (m = '1')",
    "ALTER TABLE {t} ADD COLUMN x INT",
    "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE {t} SET LOCATION '/elsewhere'",
    "ALTER TABLE {t} RENAME TO renamed",
    "ALTER TABLE {t} DROP PARTITION (m = '1')",
    "ALTER TABLE {t} ADD PARTITION (m = '9')",
    "ALTER TABLE {t} RECOVER PARTITIONS",
    "COMMENT ON TABLE {t} IS 'x'",
    "DROP TABLE {t}",
    "DROP TABLE IF EXISTS {t}",
    "DROP TABLE {t} PURGE",
    "MSCK REPAIR TABLE {t}",
    "ANALYZE TABLE {t} COMPUTE STATISTICS",
    "DESCRIBE {t}",
    "SHOW CREATE TABLE {t}",
    "SHOW PARTITIONS {t}",
    "CREATE TABLE made LIKE {t}",
    "CREATE TABLE made AS SELECT * FROM {t}",
    "CREATE VIEW made AS SELECT * FROM {t}",
    "CACHE TABLE {t}",
    "REFRESH TABLE {t}",
    "CREATE OR REPLACE TABLE {t} (a INT) USING delta",
    "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS a",
    "REPLACE TABLE {t} USING delta AS SELECT 1 AS a",
]
NAMES = ["delta.`PATH`", "external", "managed"]

# Refused although the catalog has no such table yet, or one of another format.
NEW_TABLES = [
    "SELECT * FROM delta.`PATH` VERSION AS OF 0",
    "CREATE TABLE delta.`PATH` (a INT) USING delta",
    "CREATE TABLE IF NOT EXISTS delta.`PATH` (a INT) USING delta",
    "CREATE TABLE delta.`PATH` USING delta AS SELECT 1 AS a",
    "CREATE TABLE made (a INT) USING delta",
    "CREATE TABLE made (a INT) USING DELTA",
    "CREATE TABLE made (a INT) USING io.deltaflow.spark.DeltaProvider",
    "CREATE TABLE made USING delta LOCATION 'PATH'",
    "CREATE TABLE made (a INT) USING delta LOCATION 'PATH-new'",
    "CREATE TABLE made USING delta AS SELECT 1 AS a",
    "CREATE TABLE made USING delta LOCATION 'PATH' AS SELECT 1 AS a",
    "CREATE OR REPLACE TABLE made (a INT) USING delta",
    "CREATE OR REPLACE TABLE made USING delta AS SELECT 1 AS a",
    "CREATE OR REPLACE TABLE other (a INT) USING delta",
    "CREATE OR REPLACE TABLE other USING delta AS SELECT 1 AS a",
    "REPLACE TABLE other (a INT) USING delta",
    "REPLACE TABLE other USING delta AS SELECT 1 AS a",
    "INSERT INTO seen VALUES (1, 2, '3')",
    "INSERT OVERWRITE seen VALUES (1, 2, '3')",
    "INSERT OVERWRITE seen SELECT * FROM seen",
    "INSERT INTO global_temp.seen_by_all VALUES (1, 2, '3')",
    "INSERT OVERWRITE global_temp.seen_by_all VALUES (1, 2, '3')",
]


def on(name: str) -> dict[str, Act]:
    """What the DataFrame and catalog APIs can do to a table of this name."""

    def named(world: World) -> str:
        return name.replace("PATH", str(world.path))

    acts: dict[str, Act] = {
        "read.table": lambda world: world.spark.read.table(named(world)).collect(),
        "readStream.table": lambda world: world.spark.readStream.table(named(world)),
        "toTable": lambda world: world.stream().toTable(named(world), format="delta"),
        "toTable of the default format": lambda world: world.stream().toTable(named(world)),
        "insertInto": lambda world: world.frame.write.insertInto(named(world)),
        "insertInto overwriting": lambda world: world.frame.write.insertInto(named(world), overwrite=True),
        "saveAsTable parquet overwrite": lambda world: (
            world.frame.write.format("parquet").mode("overwrite").saveAsTable(named(world))
        ),
        "writeTo append": lambda world: world.frame.writeTo(named(world)).append(),
        "writeTo overwrite": lambda world: world.frame.writeTo(named(world)).overwrite(world.frame.id > 0),
        "writeTo overwritePartitions": lambda world: world.frame.writeTo(named(world)).overwritePartitions(),
        "catalog.refreshTable": lambda world: world.spark.catalog.refreshTable(named(world)),
        "catalog.cacheTable": lambda world: world.spark.catalog.cacheTable(named(world)),
        **creating(name),
    }
    if name.startswith("delta."):
        # Spark looks for a database `delta` and says that there is none.
        del acts["saveAsTable parquet overwrite"]
    return acts


def creating(name: str) -> dict[str, Act]:
    def named(world: World) -> str:
        return name.replace("PATH", str(world.path))

    def save(mode: str) -> Act:
        return lambda world: world.frame.write.format("delta").mode(mode).saveAsTable(named(world))

    def write_to(method: str) -> Act:
        return lambda world: getattr(world.frame.writeTo(named(world)).using("delta"), method)()

    return {
        **{f"saveAsTable {mode}": save(mode) for mode in ("errorifexists", "append", "overwrite", "ignore")},
        **{f"writeTo {method}": write_to(method) for method in ("create", "replace", "createOrReplace")},
        "saveAsTable with a path": lambda world: (
            world.frame.write.format("delta").option("path", str(world.path)).saveAsTable(named(world))
        ),
        "catalog.createTable": lambda world: world.spark.catalog.createTable(
            named(world), source="delta", schema=world.frame.schema
        ),
        "catalog.createTable with a path": lambda world: world.spark.catalog.createTable(
            named(world), path=str(world.path), source="delta"
        ),
    }


# Of a name that is in the catalog Spark says so, and asks no further.
ONLY_FOR_NEW_NAMES = ("writeTo create", "catalog.createTable", "catalog.createTable with a path")


def refused() -> Iterator[Any]:
    for name in NAMES:
        for statement in ON_A_TABLE:
            filled = statement.format(t=name)
            yield pytest.param(sql(filled), id=filled)
        for what, act in on(name).items():
            if name in ("external", "managed") and what in ONLY_FOR_NEW_NAMES:
                continue
            yield pytest.param(act, id=f"{what} {name}")
    for statement in NEW_TABLES:
        yield pytest.param(sql(statement), id=statement)
    for name in ("made", "other"):
        for what, act in creating(name).items():
            if (name, what) == ("made", "writeTo replace"):
                continue  # there is nothing to replace, says Spark
            if name == "other" and what in ONLY_FOR_NEW_NAMES:
                continue
            yield pytest.param(act, id=f"{what} {name}")
    yield pytest.param(
        lambda world: world.frame.write.insertInto("seen", overwrite=True), id="insertInto a temporary view"
    )


@pytest.mark.parametrize("act", list(refused()))
def test_refused_before_a_file_is_touched(world: World, act: Act, tree: Callable[[Path], Any]) -> None:
    refuses(world, act, tree)


@pytest.mark.parametrize(
    "act",
    [
        sql("SELECT * FROM delta.`PATH`"),
        sql("INSERT OVERWRITE external VALUES (1, 2, '3')"),
        sql("DROP TABLE managed"),
        sql("TRUNCATE TABLE managed"),
        sql("CREATE OR REPLACE TABLE other USING delta AS SELECT 1 AS a"),
        sql("INSERT OVERWRITE seen VALUES (1, 2, '3')"),
        creating("other")["saveAsTable overwrite"],
        creating("made")["saveAsTable errorifexists"],
    ],
)
def test_refused_in_a_new_session_too(new_session: World, act: Act, tree: Callable[[Path], Any]) -> None:
    refuses(new_session, act, tree)


def refuses(world: World, act: Act, tree: Callable[[Path], Any]) -> None:
    files, tables = tree(world.folder), tables_of(world)
    with pytest.raises(DeltaUnsupportedOperationException) as refused:
        act(world)
    assert isinstance(refused.value, AnalysisException)
    assert refused.value.error_class in REFUSALS
    assert 'spark.read.format("delta").load(path)' in str(refused.value)
    assert "py4j" not in str(refused.value)
    assert "\tat " not in str(refused.value)
    assert tree(world.folder) == files
    assert tables_of(world) == tables


def tables_of(world: World) -> str:
    """The names in the catalog; spark.catalog.listTables would load every table."""
    return str(world.spark._jsparkSession.sessionState().catalog().externalCatalog().listTables(DATABASE))


@pytest.mark.parametrize(
    "act",
    [
        # Spark itself refuses these: they go to no file, but not all of them in words that help.
        sql("SELECT * FROM external VERSION AS OF 0"),
        sql("LOAD DATA LOCAL INPATH '/etc/hostname' INTO TABLE external"),
        sql("LOAD DATA LOCAL INPATH '/etc/hostname' OVERWRITE INTO TABLE managed"),
        sql("CREATE TABLE external (a INT) USING delta"),
        sql("CREATE TABLE managed USING delta AS SELECT 1 AS a"),
        sql("DELETE FROM seen WHERE id = 1"),
        sql("UPDATE seen SET v = 1"),
        sql("MERGE INTO seen AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE"),
        sql("TRUNCATE TABLE seen"),
        sql("INSERT OVERWRITE DIRECTORY 'PATH' USING delta SELECT 1 AS a"),
        sql("COPY INTO external FROM '/etc'"),
        sql("OPTIMIZE external"),
        sql("VACUUM external"),
        lambda world: world.frame.writeTo("made").using("delta").append(),
        lambda world: world.frame.writeTo("made").using("delta").replace(),
        lambda world: world.frame.writeTo("other").using("delta").create(),
    ],
)
def test_what_spark_refuses_touches_no_file(world: World, act: Act, tree: Callable[[Path], Any]) -> None:
    files, tables = tree(world.folder), tables_of(world)
    with pytest.raises(Exception, match=r"\S"):
        act(world)
    assert tree(world.folder) == files
    assert tables_of(world) == tables


@pytest.mark.xfail(
    reason="Spark asks neither the catalog nor the provider: it needs the parser",
    raises=pytest.fail.Exception,
)
def test_create_table_like_is_refused(world: World) -> None:
    try:
        with pytest.raises(DeltaUnsupportedOperationException):
            world.spark.sql("CREATE TABLE made LIKE other USING delta")
    finally:
        world.spark._jsparkSession.sessionState().catalog().externalCatalog().dropTable(
            DATABASE, "made", True, True
        )


@pytest.mark.parametrize("session", ["world", "new_session"])
def test_tables_of_other_formats_work_as_ever(session: str, request: pytest.FixtureRequest) -> None:
    world = request.getfixturevalue(session)
    spark = world.spark
    spark.sql("CREATE TABLE numbers (id INT, m STRING) USING parquet PARTITIONED BY (m)")
    spark.sql("INSERT INTO numbers VALUES (1, 'a'), (2, 'b')")
    spark.sql("INSERT OVERWRITE numbers PARTITION (m = 'b') VALUES (3)")
    spark.sql("ALTER TABLE numbers ADD COLUMN x INT")
    found = sorted(map(tuple, spark.sql("SELECT id, m, x FROM numbers").collect()))
    assert found == [(1, "a", None), (3, "b", None)]
    spark.sql("TRUNCATE TABLE numbers")
    assert spark.table("numbers").count() == 0
    spark.sql("CREATE TABLE copy USING json AS SELECT * FROM other")
    world.frame.write.format("parquet").mode("overwrite").saveAsTable("copy")
    world.frame.write.mode("append").saveAsTable("copy")
    world.frame.write.insertInto("copy")
    assert spark.table("copy").count() == 18
    spark.sql("DROP TABLE copy")
    spark.sql("DROP TABLE numbers PURGE")
    assert not spark.catalog.tableExists("copy")
    assert not spark.catalog.tableExists("numbers")
    assert spark.table("other").count() == 6


def test_a_format_that_spark_creates_through_the_catalog_works_as_ever(world: World) -> None:
    spark = world.spark.newSession()
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    spark.sql(f"USE {DATABASE}")
    spark.sql("CREATE TABLE second (id INT) USING parquet")
    spark.sql("INSERT INTO second VALUES (1)")
    spark.sql("CREATE TABLE third USING parquet AS SELECT * FROM second")
    assert spark.table("third").count() == 1
    spark.sql("DROP TABLE second")
    spark.sql("DROP TABLE third")


def test_a_view_over_a_table_can_be_read(world: World) -> None:
    world.spark.sql(f"CREATE TEMPORARY VIEW by_options USING delta OPTIONS (path '{world.path}')")
    for view in ("seen", "global_temp.seen_by_all", "by_options"):
        assert world.spark.table(view).count() == 6
    world.spark.catalog.dropTempView("by_options")
