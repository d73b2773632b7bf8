"""Nothing goes past the log: each statement on a Delta table commits to it, or is refused untouched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from deltaflow.errors import DeltaError
from tests.tables import commit_file, data_files, every_action, versions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

DATABASE = "deltaflow_log"
Act = Callable[["World"], Any]

COMMITS = "one new version, on top of those that were there"
REFUSED = "an error, and no file and no entry is touched"
READS = "no error, and no file is touched"
EITHER = "new versions, or an error and no file is touched"
FAILS = "an error while rows are written, and no new version"


class World:
    """A database with Delta tables under `folder`, and what a test does to them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = folder / "table"
        self.managed = folder / "database" / "managed"
        self.pristine = folder.with_name(folder.name + "-pristine")
        self.frame: DataFrame = spark.range(6).selectExpr("id", "id * 2 AS v", "CAST(id % 3 AS STRING) AS m")

    def stream(self) -> Any:
        """Rows of another table on their way."""
        stream = self.spark.readStream.format("delta").load(str(self.pristine / "table"))
        checkpoint = str(self.folder.with_name("checkpoint"))
        return stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    @property
    def external_catalog(self) -> Any:
        return self.spark._jsparkSession.sessionState().catalog().externalCatalog()

    def tables(self) -> str:
        """The names in the catalog; spark.catalog.listTables would load every table."""
        return str(self.external_catalog.listTables(DATABASE))

    def restore(self) -> None:
        """Takes back what a test did."""
        self.spark.catalog.clearCache()
        for name in ("made", "renamed"):
            self.external_catalog.dropTable(DATABASE, name, True, True)
        for table in (self.path, self.managed):
            shutil.rmtree(table, ignore_errors=True)
            shutil.copytree(self.pristine / table.name, table)
        shutil.rmtree(self.folder.with_name("checkpoint"), ignore_errors=True)
        for made in (self.folder / "database" / "made", Path(f"{self.path}-new")):
            shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def folder(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, delta_entry: Callable[..., None]
) -> Iterator[Path]:
    """by path: table; in the catalog: external (over table), managed, and a parquet table `other`."""
    folder = tmp_path_factory.mktemp("past") / "folder"
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{folder}/database'")
    before = spark.catalog.currentDatabase()
    spark.sql(f"USE {DATABASE}")
    world = World(spark, folder)
    for name in ("table", "managed"):
        world.frame.write.format("delta").partitionBy("m").save(str(world.pristine / name))
    delta_entry(spark, "external", world.path, managed=False)
    delta_entry(spark, "managed", world.managed, managed=True)
    world.frame.write.format("parquet").saveAsTable("other")
    spark.sql(f"USE {before}")
    yield folder
    spark.catalog.dropGlobalTempView("seen_by_all")
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


def in_session(session: SparkSession, folder: Path) -> Iterator[World]:
    before = session.catalog.currentDatabase()
    session.sql(f"USE {DATABASE}")
    world = World(session, folder)
    world.restore()
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
ON_A_TABLE = {
    "SELECT * FROM {t}": READS,
    "SELECT * FROM {t} VERSION AS OF 0": READS,
    "INSERT INTO {t} VALUES (1, 2, '3')": COMMITS,
    "INSERT INTO {t} (m, v, id) VALUES ('3', 2L, 1L)": COMMITS,
    "INSERT INTO {t} BY NAME SELECT '3' AS m, 1L AS id, 2L AS v": COMMITS,
    "INSERT INTO {t} PARTITION (m = '1') VALUES (1L, 2L)": COMMITS,
    "INSERT INTO {t} REPLACE WHERE m = '1' VALUES (1L, 2L, '1')": COMMITS,
    "INSERT OVERWRITE {t} VALUES (1L, 2L, '3')": COMMITS,
    "INSERT OVERWRITE {t} PARTITION (m = '1') VALUES (1L, 2L)": COMMITS,
    "INSERT OVERWRITE {t} SELECT * FROM {t}": COMMITS,
    "INSERT INTO {t} VALUES (1L)": REFUSED,
    "INSERT INTO {t} VALUES (1L, 2L, '3', 4)": REFUSED,
    "INSERT INTO {t} VALUES ('no number', 2L, '3')": REFUSED,
    "DELETE FROM {t}": COMMITS,
    "DELETE FROM {t} WHERE id = 1": COMMITS,
    "UPDATE {t} SET v = 1": COMMITS,
    "MERGE INTO {t} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE": COMMITS,
    "TRUNCATE TABLE {t}": COMMITS,
    "TRUNCATE TABLE {t} PARTITION (m = '1')": REFUSED,
    "ALTER TABLE {t} ADD COLUMN x INT": COMMITS,
    "ALTER TABLE {t} ALTER COLUMN v COMMENT 'x'": COMMITS,
    "ALTER TABLE {t} REPLACE COLUMNS (m STRING, v BIGINT, id BIGINT, x INT)": COMMITS,
    "ALTER TABLE {t} REPLACE COLUMNS (id BIGINT, m STRING)": REFUSED,
    "ALTER TABLE {t} DROP COLUMN v": REFUSED,
    "ALTER TABLE {t} RENAME COLUMN v TO w": REFUSED,
    "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)": COMMITS,
    "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)": REFUSED,
    "ALTER TABLE {t} DROP CONSTRAINT positive": REFUSED,
    "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS positive": COMMITS,
    "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')": COMMITS,
    "ALTER TABLE {t} SET LOCATION '/elsewhere'": REFUSED,
    "ALTER TABLE {t} DROP PARTITION (m = '1')": REFUSED,
    "ALTER TABLE {t} ADD PARTITION (m = '9')": REFUSED,
    "ALTER TABLE {t} PARTITION (m = '1') RENAME TO PARTITION (m = '9')": REFUSED,
    "ALTER TABLE {t} RECOVER PARTITIONS": REFUSED,
    "ALTER TABLE {t} SET SERDE 'x'": REFUSED,
    "COMMENT ON TABLE {t} IS 'x'": COMMITS,
    "MSCK REPAIR TABLE {t}": REFUSED,
    "ANALYZE TABLE {t} COMPUTE STATISTICS": REFUSED,
    "LOAD DATA LOCAL INPATH '/etc/hostname' INTO TABLE {t}": REFUSED,
    "LOAD DATA LOCAL INPATH '/etc/hostname' OVERWRITE INTO TABLE {t}": REFUSED,
    "DESCRIBE {t}": READS,
    "DESCRIBE EXTENDED {t}": READS,
    "DESCRIBE HISTORY {t}": READS,
    "DESC HISTORY {t} LIMIT 1": READS,
    "DESCRIBE DETAIL {t}": READS,
    "SHOW CREATE TABLE {t}": READS,
    "SHOW PARTITIONS {t}": READS,
    "SHOW TBLPROPERTIES {t}": READS,
    "CREATE TABLE made LIKE {t} LOCATION 'PATH-new'": READS,
    "CREATE TABLE made USING parquet LOCATION 'PATH-new' AS SELECT * FROM {t}": READS,
    "CREATE VIEW made AS SELECT * FROM {t}": READS,
    "CACHE TABLE {t}": READS,
    "REFRESH TABLE {t}": READS,
    "OPTIMIZE {t}": EITHER,
    "OPTIMIZE {t} WHERE m = '1' ZORDER BY (id)": COMMITS,
    "OPTIMIZE {t} WHERE v = 1": REFUSED,
    "OPTIMIZE {t} FULL": REFUSED,
    "VACUUM {t}": EITHER,
    "VACUUM {t} RETAIN 0 HOURS": REFUSED,
    "VACUUM {t} LITE": EITHER,
    "VACUUM {t} FULL LITE": REFUSED,
    "FSCK REPAIR TABLE {t}": READS,
    "VACUUM {t} RETAIN 200 HOURS DRY RUN": READS,
    "VACUUM {t} NONSENSE": REFUSED,
    "RESTORE {t} TO VERSION AS OF 0": EITHER,
    "RESTORE {t} TO VERSION AS OF 99": REFUSED,
    "GENERATE symlink_format_manifest FOR TABLE {t}": EITHER,
    "GENERATE nothing FOR TABLE {t}": REFUSED,
    "REORG TABLE {t} APPLY (PURGE)": EITHER,
    "REORG TABLE {t} WHERE v = 1 APPLY (PURGE)": REFUSED,
    "CONVERT TO DELTA {t}": READS,
    "CREATE TABLE made SHALLOW CLONE {t}": EITHER,
    "CREATE OR REPLACE TABLE {t} SHALLOW CLONE other": REFUSED,
    "CREATE OR REPLACE TABLE other SHALLOW CLONE {t}": REFUSED,
    "ALTER TABLE {t} DROP FEATURE nothing": REFUSED,
    "COPY INTO {t} FROM '/etc'": REFUSED,
    "CREATE TABLE {t} (a INT) USING delta": REFUSED,
    "CREATE TABLE {t} USING delta AS SELECT 1 AS a": REFUSED,
    "CREATE TABLE IF NOT EXISTS {t} (a INT) USING delta": READS,
    "CREATE OR REPLACE TABLE {t} (a INT) USING delta": COMMITS,
    "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS a": COMMITS,
    "REPLACE TABLE {t} USING delta AS SELECT 1 AS a": COMMITS,
    "REPLACE TABLE {t} USING delta AS SELECT * FROM {t}": COMMITS,
    "CREATE OR REPLACE TABLE {t} USING delta AS SELECT CAST(raise_error('x') AS INT) AS a": FAILS,
    "CREATE OR REPLACE TABLE {t} USING json AS SELECT 1 AS a": REFUSED,
    "CREATE OR REPLACE TABLE {t} (a INT) USING json": REFUSED,
}
NAMES = ["delta.`PATH`", "external", "managed"]
ONLY_BY_PATH = {
    "ALTER TABLE delta.`PATH` RENAME TO renamed": REFUSED,
    "DROP TABLE delta.`PATH`": REFUSED,
    "DROP TABLE IF EXISTS delta.`PATH`": REFUSED,
    "DROP TABLE delta.`PATH` PURGE": REFUSED,
    "INSERT INTO seen VALUES (1, 2, '3')": REFUSED,
    "INSERT OVERWRITE seen VALUES (1, 2, '3')": REFUSED,
    "INSERT OVERWRITE seen SELECT * FROM seen": REFUSED,
    "INSERT INTO global_temp.seen_by_all VALUES (1, 2, '3')": REFUSED,
    "INSERT OVERWRITE global_temp.seen_by_all VALUES (1, 2, '3')": REFUSED,
    "DELETE FROM seen WHERE id = 1": COMMITS,
    "UPDATE seen SET v = 1": COMMITS,
    "MERGE INTO seen AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE": COMMITS,
    "TRUNCATE TABLE seen": REFUSED,
    "INSERT OVERWRITE DIRECTORY 'PATH' USING delta SELECT 1 AS a": REFUSED,
    "CREATE OR REPLACE TABLE other (a INT) USING delta": REFUSED,
    "CREATE OR REPLACE TABLE other USING delta AS SELECT 1 AS a": REFUSED,
    "REPLACE TABLE other (a INT) USING delta": REFUSED,
    "REPLACE TABLE other USING delta LOCATION 'PATH' AS SELECT 1 AS a": REFUSED,
    "CREATE TABLE made USING delta LOCATION 'PATH' AS SELECT 1 AS a": REFUSED,
    "CREATE TABLE made (a INT) USING delta LOCATION 'PATH'": REFUSED,
    "CREATE TABLE made USING delta LOCATION 'PATH' TBLPROPERTIES ('a' = 'b')": REFUSED,
    "CREATE TABLE made USING delta LOCATION 'PATH'": READS,
    "CREATE TABLE delta.`PATH` USING delta LOCATION '/elsewhere'": REFUSED,
}


def on(name: str) -> dict[str, tuple[str, Act]]:
    """What the DataFrame and catalog APIs can do to a table of this name."""

    def named(world: World) -> str:
        return name.replace("PATH", str(world.path))

    def save(mode: str) -> Act:
        frame = "delta"
        return lambda world: world.frame.write.format(frame).mode(mode).saveAsTable(named(world))

    acts: dict[str, tuple[str, Act]] = {
        "read.table": (READS, lambda world: world.spark.read.table(named(world)).collect()),
        "readStream.table": (READS, lambda world: world.spark.readStream.table(named(world))),
        "toTable": (
            COMMITS,
            lambda world: world.stream().toTable(named(world), format="delta").awaitTermination(),
        ),
        "toTable of the default format": (REFUSED, lambda world: world.stream().toTable(named(world))),
        "insertInto": (COMMITS, lambda world: world.frame.write.insertInto(named(world))),
        "insertInto overwriting": (
            COMMITS,
            lambda world: world.frame.write.insertInto(named(world), overwrite=True),
        ),
        "saveAsTable parquet overwrite": (
            REFUSED,
            lambda world: world.frame.write.format("parquet").mode("overwrite").saveAsTable(named(world)),
        ),
        "saveAsTable of the default format": (
            REFUSED,
            lambda world: world.frame.write.mode("append").saveAsTable(named(world)),
        ),
        "saveAsTable errorifexists": (REFUSED, save("errorifexists")),
        "saveAsTable ignore": (READS, save("ignore")),
        "saveAsTable append": (COMMITS, save("append")),
        "saveAsTable overwrite": (COMMITS, save("overwrite")),
        "writeTo append": (COMMITS, lambda world: world.frame.writeTo(named(world)).append()),
        "writeTo overwrite": (
            COMMITS,
            lambda world: world.frame.writeTo(named(world)).overwrite(col("id") >= 0),
        ),
        "writeTo overwritePartitions": (
            COMMITS,
            lambda world: world.frame.writeTo(named(world)).overwritePartitions(),
        ),
        "writeTo create": (REFUSED, lambda world: world.frame.writeTo(named(world)).using("delta").create()),
        "writeTo replace": (
            COMMITS,
            lambda world: world.frame.writeTo(named(world)).using("delta").replace(),
        ),
        "writeTo createOrReplace": (
            COMMITS,
            lambda world: world.frame.writeTo(named(world)).using("delta").createOrReplace(),
        ),
        "catalog.refreshTable": (READS, lambda world: world.spark.catalog.refreshTable(named(world))),
        "catalog.cacheTable": (READS, lambda world: world.spark.catalog.cacheTable(named(world))),
        "catalog.recoverPartitions": (
            REFUSED,
            lambda world: world.spark.catalog.recoverPartitions(named(world)),
        ),
        "catalog.createTable": (
            REFUSED,
            lambda world: world.spark.catalog.createTable(
                named(world), source="delta", schema=world.frame.schema
            ),
        ),
        "catalog.listColumns": (READS, lambda world: world.spark.catalog.listColumns(named(world))),
        "catalog.getTable": (READS, lambda world: world.spark.catalog.getTable(named(world))),
    }
    return acts


def cases() -> Iterator[Any]:
    for name in NAMES:
        for statement, outcome in ON_A_TABLE.items():
            filled = statement.format(t=name)
            yield pytest.param(outcome, sql(filled), id=filled)
        for what, (outcome, act) in on(name).items():
            yield pytest.param(outcome, act, id=f"{what} {name}")
    for statement, outcome in ONLY_BY_PATH.items():
        yield pytest.param(outcome, sql(statement), id=statement)
    into_view = lambda world: world.frame.write.insertInto("seen", overwrite=True)  # noqa: E731
    yield pytest.param(REFUSED, into_view, id="insertInto a temporary view")
    for mode in ("append", "overwrite"):
        over_other = lambda world, mode=mode: (  # noqa: E731
            world.frame.write.format("delta").mode(mode).saveAsTable("other")
        )
        yield pytest.param(REFUSED, over_other, id=f"saveAsTable {mode} other")


@pytest.mark.parametrize(("outcome", "act"), list(cases()))
@pytest.mark.sampled(12)
def test_commits_or_is_refused(world: World, outcome: str, act: Act, tree: Callable[[Path], Any]) -> None:
    happens(world, outcome, act, tree)


@pytest.mark.parametrize(
    ("outcome", "act"),
    [
        (READS, sql("SELECT * FROM delta.`PATH`")),
        (COMMITS, sql("INSERT OVERWRITE external VALUES (1L, 2L, '3')")),
        (COMMITS, on("managed")["writeTo overwritePartitions"][1]),
        (REFUSED, sql("CREATE OR REPLACE TABLE other USING delta AS SELECT 1 AS a")),
        (REFUSED, sql("INSERT OVERWRITE seen VALUES (1, 2, '3')")),
        (COMMITS, sql("TRUNCATE TABLE managed")),
    ],
)
@pytest.mark.sampled(3)
def test_so_it_is_in_a_new_session(
    new_session: World, outcome: str, act: Act, tree: Callable[[Path], Any]
) -> None:
    happens(new_session, outcome, act, tree)


def happens(world: World, outcome: str, act: Act, tree: Callable[[Path], Any]) -> None:
    files, tables = tree(world.folder), world.tables()
    tops = {table: json.dumps(commit_texts(table)) for table in (world.path, world.managed)}
    try:
        refused = None
        try:
            act(world)
        except (PySparkException, Py4JError, DeltaError) as error:
            refused = error
        if outcome is READS:
            assert refused is None
        elif outcome is COMMITS:
            assert refused is None
            assert new_versions(world, tops) == 1
        elif outcome in (REFUSED, FAILS):
            assert refused is not None
            assert new_versions(world, tops) == 0
        if outcome not in (COMMITS, FAILS) and (refused is not None or outcome is not EITHER):
            now = {name: state for name, state in tree(world.folder).items() if "/database/made" not in name}
            assert {n: s for n, s in now.items() if "-new" not in n} == files
            assert refused is None or world.tables() == tables
        check_tables(world, tops, are_files_left=outcome is FAILS)
    finally:
        world.restore()


def commit_texts(table: Path) -> list[str]:
    return [commit_file(table, version).read_text() for version in versions(table)]


def new_versions(world: World, tops: dict[Path, str]) -> int:
    return sum(len(versions(table)) - len(json.loads(top)) for table, top in tops.items())


def check_tables(world: World, tops: dict[Path, str], *, are_files_left: bool) -> None:
    """Every version that was there is there, of one table, and no file is without a commit."""
    for table, top in tops.items():
        before, now = json.loads(top), commit_texts(table)
        assert now[: len(before)] == before
        assert len({metadata["id"] for metadata in every_action(table, "metaData")}) == 1
        added = {unquote(add["path"]) for add in every_action(table, "add")}
        found = data_files(table)
        assert added <= found if are_files_left else added == found


def test_the_drop_of_a_managed_table_removes_its_files_and_that_of_an_external_one_keeps_them(
    world: World, tree: Callable[[Path], Any]
) -> None:
    spark = world.spark
    files = tree(world.path)
    spark.sql("CREATE TABLE made USING delta LOCATION 'PATH'".replace("PATH", str(world.path)))
    spark.sql("DROP TABLE made")
    assert tree(world.path) == files
    spark.sql("CREATE TABLE made USING delta AS SELECT 1 AS a")
    folder = world.folder / "database" / "made"
    assert (folder / "_delta_log").exists()
    spark.sql("DROP TABLE made PURGE")
    assert not folder.exists()
    assert not spark.catalog.tableExists("made")
    spark.sql("CREATE TABLE made (b STRING) USING delta")
    assert spark.table("made").columns == ["b"]
    spark.sql("DROP TABLE IF EXISTS made")
    assert not folder.exists()


@pytest.mark.parametrize("session", ["world", "new_session"])
@pytest.mark.sampled(2)
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
    spark.sql("CREATE TABLE alike LIKE copy")
    spark.sql("ALTER TABLE alike RENAME TO renamed")
    spark.sql("DROP TABLE renamed")
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
