"""SQL statements on a Delta table: each commits to its log, answers from it, or is refused untouched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog
from tests.tables import commit_info, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

DATABASE = "deltaflow_statements"


class World:
    """A table of its own for each test, and a Parquet table with the same rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = folder / "table"
        self.log = DeltaLog.for_table(str(self.path))

    def sql(self, statement: str, **arguments: Any) -> list[tuple[Any, ...]]:
        frame = self.spark.sql(statement.replace("@PATH", str(self.path)), **arguments)
        return [tuple(row) for row in frame.collect()]

    def count(self) -> int:
        return load(self.spark, self.path).count()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    world = World(spark, tmp_path)
    frame = spark.range(6).selectExpr("id", "named_struct('a', id) AS s", "CAST(id % 3 AS STRING) AS m")
    frame.write.format("delta").partitionBy("m").save(str(world.path))
    return world


@pytest.fixture
def named(world: World, delta_entry: Callable[..., None]) -> Iterator[World]:
    """The table by the name `named` in the current database, beside a Parquet table `other`."""
    spark = world.spark
    before = spark.catalog.currentDatabase()
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{world.folder}/database'")
    spark.sql(f"USE {DATABASE}")
    delta_entry(spark, "named", world.path, managed=False)
    spark.sql("CREATE TABLE other (id BIGINT, m STRING) USING parquet PARTITIONED BY (m)")
    yield world
    spark.sql(f"USE {before}")
    spark._jsparkSession.sessionState().catalog().dropDatabase(DATABASE, False, True)


@pytest.mark.parametrize(
    ("statement", "operation", "parameters"),
    [
        (
            "ALTER TABLE delta.`@PATH` SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "SET TBLPROPERTIES",
            {"properties": {"delta.appendOnly": "true"}},
        ),
        (
            "ALTER TABLE delta.`@PATH` UNSET TBLPROPERTIES IF EXISTS ('mine')",
            "UNSET TBLPROPERTIES",
            {"properties": ["mine"], "ifExists": True},
        ),
        (
            "COMMENT ON TABLE delta.`@PATH` IS 'numbers'",
            "SET TBLPROPERTIES",
            {"properties": {"comment": "numbers"}},
        ),
        (
            "ALTER TABLE delta.`@PATH` ADD COLUMNS (x INT COMMENT 'an x' AFTER id)",
            "ADD COLUMNS",
            {
                "columns": [
                    {
                        "column": {
                            "name": "x",
                            "type": "integer",
                            "nullable": True,
                            "metadata": {"comment": "an x"},
                        },
                        "position": "AFTER id",
                    }
                ]
            },
        ),
        (
            "ALTER TABLE delta.`@PATH` ALTER COLUMN ID COMMENT 'the key'",
            "CHANGE COLUMN",
            {
                "column": {
                    "name": "id",
                    "type": "long",
                    "nullable": True,
                    "metadata": {"comment": "the key"},
                }
            },
        ),
        ("TRUNCATE TABLE delta.`@PATH`", "TRUNCATE", {}),
    ],
)
@pytest.mark.sampled(3)
def test_a_statement_is_one_commit(
    world: World, statement: str, operation: str, parameters: dict[str, Any]
) -> None:
    before = world.log.snapshot()
    assert world.sql("EXPLAIN " + statement) != []
    assert world.log.snapshot().version == before.version
    assert world.sql(statement) == []
    after = world.log.snapshot()
    assert (after.version, after.table_id) == (before.version + 1, before.table_id)
    commit = commit_info(world.path)
    assert commit["operation"] == operation
    shown = {name: json.loads(value) for name, value in commit["operationParameters"].items()}
    assert shown == parameters


def test_truncate_removes_every_file_and_keeps_history(world: World) -> None:
    files = world.log.snapshot().num_files
    world.sql("TRUNCATE TABLE delta.`@PATH`")
    assert world.count() == 0
    assert commit_info(world.path)["operationMetrics"] == {"numRemovedFiles": str(files)}
    assert world.log.snapshot_at(0).num_files == files


def test_what_is_cached_of_a_table_follows_a_statement(named: World) -> None:
    named.sql("CACHE TABLE named")
    try:
        assert named.sql("SELECT count(*) FROM named") == [(6,)]
        named.sql("TRUNCATE TABLE named")
        assert named.spark.catalog.isCached("named")
        assert named.sql("SELECT count(*) FROM named") == [(0,)]
        named.sql("ALTER TABLE named ADD COLUMN x INT")
        assert named.spark.table("named").columns == ["id", "s", "m", "x"]
        assert named.sql("SELECT max(x) FROM named") == [(None,)]
    finally:
        named.sql("UNCACHE TABLE IF EXISTS named")


def test_truncate_of_an_append_only_table_is_refused(world: World) -> None:
    world.sql("ALTER TABLE delta.`@PATH` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(DeltaUnsupportedOperationException) as refused:
        world.sql("TRUNCATE TABLE delta.`@PATH`")
    assert refused.value.error_class == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert world.count() == 6


@pytest.mark.parametrize(
    ("clause", "schema"),
    [
        ("ADD COLUMN x INT", "id bigint, s struct<a:bigint>, m string, x int"),
        ("ADD COLUMN x INT FIRST", "x int, id bigint, s struct<a:bigint>, m string"),
        ("ADD COLUMN s.b STRING", "id bigint, s struct<a:bigint,b:string>, m string"),
        ("ADD COLUMN S.b STRING FIRST", "id bigint, s struct<b:string,a:bigint>, m string"),
        (
            "ADD COLUMNS (x INT AFTER ID, y ARRAY<STRUCT<e: INT>> AFTER x)",
            "id bigint, x int, y array<struct<e:int>>, s struct<a:bigint>, m string",
        ),
        ("ALTER COLUMN id AFTER m", "s struct<a:bigint>, m string, id bigint"),
        ("ALTER COLUMN m FIRST", "m string, id bigint, s struct<a:bigint>"),
        ("ALTER COLUMN s AFTER s", "id bigint, s struct<a:bigint>, m string"),
        ("CHANGE COLUMN m m STRING COMMENT 'c' FIRST", "m string, id bigint, s struct<a:bigint>"),
    ],
)
@pytest.mark.sampled(3)
def test_columns_where_the_statement_puts_them(world: World, clause: str, schema: str) -> None:
    world.sql(f"ALTER TABLE delta.`@PATH` {clause}")
    found = world.log.snapshot().schema
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found) == schema
    assert world.count() == 6
    read = load(world.spark, str(world.path))
    assert sorted(row.s.a for row in read.collect()) == list(range(6))


def test_fields_inside_arrays_and_maps(world: World) -> None:
    data_type = "ARRAY<MAP<STRING, STRUCT<e: INT>>>"
    world.sql(f"ALTER TABLE delta.`@PATH` ADD COLUMN deep {data_type}")
    world.sql("ALTER TABLE delta.`@PATH` ADD COLUMN deep.element.value.f INT FIRST")
    world.sql("ALTER TABLE delta.`@PATH` ALTER COLUMN deep.element.value.f COMMENT 'f'")
    field = world.log.snapshot().schema["deep"]
    assert field.dataType.simpleString() == "array<map<string,struct<f:int,e:int>>>"
    assert field.dataType.elementType.valueType["f"].metadata == {"comment": "f"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("clause", "error_class"),
    [
        ("ADD COLUMN ID INT", "FIELD_ALREADY_EXISTS"),
        ("ADD COLUMN x INT AFTER nothing", "DELTA_COLUMN_NOT_FOUND"),
        ("ADD COLUMN id.x INT", "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT"),
        ("ADD COLUMN x INT NOT NULL", "DELTA_OPERATION_NOT_ALLOWED"),
        (
            "ADD COLUMN x INT DEFAULT 3",
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        ),
        ("ADD COLUMN `a b` INT", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("ADD COLUMNS (x INT, s.a INT)", "FIELD_ALREADY_EXISTS"),
        ("ALTER COLUMN nothing COMMENT 'c'", "DELTA_COLUMN_NOT_FOUND"),
        ("ALTER COLUMN id TYPE STRING", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN id SET NOT NULL", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN id SET DEFAULT 3", "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"),
        ("ALTER COLUMN id SET DEFAULT 1 + id", "INVALID_DEFAULT_VALUE"),
        ("SET TBLPROPERTIES ('delta.unknown' = '1')", "DELTA_UNKNOWN_CONFIGURATION"),
        ("SET TBLPROPERTIES ('delta.appendOnly' = 'x')", "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED"),
        ("UNSET TBLPROPERTIES ('nothing')", "DELTA_UNSET_NON_EXISTENT_PROPERTY"),
    ],
)
@pytest.mark.sampled(3)
def test_a_wrong_change_leaves_the_table_as_it_is(
    world: World, tree: Callable[[Path], Any], clause: str, error_class: str
) -> None:
    files = tree(world.folder)
    with pytest.raises(AnalysisException) as refused:
        world.sql(f"ALTER TABLE delta.`@PATH` {clause}")
    assert refused.value.getCondition() == error_class
    assert tree(world.folder) == files


def test_drop_not_null(world: World) -> None:
    path = world.folder / "strict" / "_delta_log"
    path.mkdir(parents=True)
    schema = {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}],
    }
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    (path / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    world.spark.sql(f"ALTER TABLE delta.`{path.parent}` ALTER COLUMN id DROP NOT NULL")
    assert DeltaLog.for_table(str(path.parent)).snapshot().schema["id"].nullable


def test_show_partitions_and_columns_answer_from_the_log(world: World) -> None:
    assert world.sql("SHOW COLUMNS IN delta.`@PATH`") == [("id",), ("s",), ("m",)]
    assert world.sql("SHOW PARTITIONS delta.`@PATH`") == [("m=0",), ("m=1",), ("m=2",)]
    assert world.sql("SHOW PARTITIONS delta.`@PATH` PARTITION (M = '1')") == [("m=1",)]
    odd = world.spark.sql("SELECT 1L AS id, named_struct('a', 1L) AS s, explode(array('a/b', null)) AS m")
    odd.write.format("delta").mode("append").save(str(world.path))
    found = world.sql("SHOW PARTITIONS delta.`@PATH`")
    assert found[-2:] == [("m=__HIVE_DEFAULT_PARTITION__",), ("m=a%2Fb",)]
    assert world.spark.sql(f"SHOW PARTITIONS delta.`{world.path}`").columns == ["partition"]


def test_show_partitions_of_a_table_without_any(world: World) -> None:
    world.spark.range(1).write.format("delta").save(str(world.folder / "flat"))
    with pytest.raises(AnalysisException, match="DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE"):
        world.spark.sql(f"SHOW PARTITIONS delta.`{world.folder}/flat`")


REFUSED = [
    "TRUNCATE TABLE {t} PARTITION (m = '1')",
    "ALTER TABLE {t} ADD PARTITION (m = '9')",
    "ALTER TABLE {t} DROP PARTITION (m = '1')",
    "ALTER TABLE {t} PARTITION (m = '1') RENAME TO PARTITION (m = '9')",
    "ALTER TABLE {t} RECOVER PARTITIONS",
    "ALTER TABLE {t} PARTITION (m = '1') SET LOCATION '/elsewhere'",
    "ALTER TABLE {t} SET SERDE 'x'",
    "ALTER TABLE {t} DEFAULT COLLATION UNICODE",
    "MSCK REPAIR TABLE {t}",
    "ANALYZE TABLE {t} COMPUTE STATISTICS",
    "ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS",
    "LOAD DATA LOCAL INPATH '/etc/hostname' OVERWRITE INTO TABLE {t}",
    "CREATE TABLE made LIKE {t} USING parquet",
]
REFUSED_WITHOUT_A_TABLE = [
    "CREATE TABLE made LIKE other USING delta",
    "FROM other INSERT INTO other SELECT * INSERT OVERWRITE named SELECT *",
    "INSERT OVERWRITE DIRECTORY '@PATH' USING delta SELECT 1 AS a",
    "INSERT OVERWRITE DIRECTORY '@PATH' USING parquet SELECT 1 AS a",
    "INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (path 'file:@PATH/m=1') SELECT 1 AS a",
    "INSERT OVERWRITE DIRECTORY '@PATH-new' USING delta SELECT 1 AS a",
]


@pytest.mark.parametrize(
    "statement",
    [*(statement.format(t="named") for statement in REFUSED), *REFUSED_WITHOUT_A_TABLE],
)
@pytest.mark.sampled(3)
def test_refused_before_a_file_is_touched(named: World, tree: Callable[[Path], Any], statement: str) -> None:
    tables = named.spark._jsparkSession.sessionState().catalog().externalCatalog()
    files, entries = tree(named.folder), str(tables.listTables(DATABASE))
    assert named.sql("EXPLAIN " + statement) != []
    with pytest.raises(DeltaUnsupportedOperationException) as refused:
        named.sql(statement)
    assert refused.value.error_class == "DELTA_OPERATION_NOT_ALLOWED_DETAIL"
    assert tree(named.folder) == files
    assert str(tables.listTables(DATABASE)) == entries


def test_a_directory_that_lies_in_a_table_through_a_link(world: World, tree: Callable[[Path], Any]) -> None:
    link = world.folder / "link"
    link.symlink_to(world.path / "m=1")
    files = tree(world.path)
    for place in (link, link / "inner"):
        with pytest.raises(DeltaUnsupportedOperationException, match="past the log"):
            world.sql(f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 1 AS a")
    assert tree(world.path) == files


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("VACUUM {t} LITE FULL", "VACUUM FULL LITE"),
        ("VACUUM {t} LITE USING INVENTORY (SELECT 'a' AS path)", "VACUUM LITE with an inventory"),
    ],
)
def test_statements_that_only_delta_has(
    named: World, tree: Callable[[Path], Any], statement: str, name: str
) -> None:
    files = tree(named.folder)
    for table in ("named", "delta.`@PATH`"):
        with pytest.raises(DeltaUnsupportedOperationException, match=f"not allowed: {name} is not supported"):
            named.sql(statement.format(t=table))
    with pytest.raises(AnalysisException) as spark_says:
        named.sql(statement.format(t="other"))
    assert not isinstance(spark_says.value, DeltaUnsupportedOperationException)
    assert tree(named.folder) == files


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM seen",
        "UPDATE seen SET id = 1",
        "MERGE INTO seen USING other ON false WHEN MATCHED THEN DELETE",
    ],
)
def test_refused_on_a_view_over_a_table(named: World, tree: Callable[[Path], Any], statement: str) -> None:
    load(named.spark, str(named.path)).where("id > 1").createOrReplaceTempView("seen")
    files = tree(named.folder)
    with pytest.raises(DeltaUnsupportedOperationException, match="seen"):
        named.sql(statement)
    assert tree(named.folder) == files


@pytest.mark.parametrize("name", ["named", f"{DATABASE}.NAMED", f"spark_catalog.{DATABASE}.named"])
def test_a_name_is_found_as_spark_finds_it(named: World, name: str) -> None:
    assert named.sql(f"SHOW COLUMNS IN {name}")[0] == ("id",)
    named.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('mine' = '1')")
    assert named.log.snapshot().metadata.configuration == {"mine": "1"}


def test_a_temporary_view_hides_the_table_of_its_name(named: World) -> None:
    named.spark.sql("SELECT 1 AS other_column").createOrReplaceTempView("named")
    try:
        assert named.sql("SHOW COLUMNS IN named") == [("other_column",)]
        with pytest.raises(AnalysisException) as expected:
            named.sql("ALTER TABLE named SET TBLPROPERTIES ('mine' = '1')")
        assert expected.value.getCondition() == "EXPECT_TABLE_NOT_VIEW.USE_ALTER_VIEW"
        named.sql(f"ALTER TABLE {DATABASE}.named SET TBLPROPERTIES ('mine' = '2')")
        assert named.log.snapshot().metadata.configuration == {"mine": "2"}
    finally:
        named.spark.catalog.dropTempView("named")


def test_a_path_without_a_table(world: World) -> None:
    with pytest.raises(AnalysisException, match="DELTA_MISSING_DELTA_TABLE"):
        world.spark.sql(f"TRUNCATE TABLE delta.`{world.folder}/nothing`")
    assert not (world.folder / "nothing").exists()
