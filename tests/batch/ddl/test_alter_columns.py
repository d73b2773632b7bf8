"""ALTER TABLE … ADD, ALTER, REPLACE, RENAME and DROP COLUMN; what SHOW and DESCRIBE tell of columns."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from deltaflow.errors import DeltaInvariantViolationException
from deltaflow.log import DeltaLog
from tests.tables import actions, latest_version, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

SCHEMA = (
    "id BIGINT NOT NULL COMMENT 'the key', st STRUCT<x: INT, `y-1`: STRING>, arr ARRAY<STRUCT<e: INT>>, "
    "m MAP<STRING, STRUCT<v: INT>>, `a-b.c` INT, v VARCHAR(3), c CHAR(2), p STRING"
)


@pytest.fixture(scope="module")
def untouched(spark, tmp_path_factory):
    """An empty table that nothing in this module changes."""
    path = str(tmp_path_factory.mktemp("untouched") / "table")
    spark.sql(f"CREATE TABLE delta.`{path}` ({SCHEMA}) USING delta PARTITIONED BY (p)")
    return path


@pytest.fixture
def alter(spark, table):
    """A table with one row, and a function: ALTER TABLE with this clause."""
    spark.sql(f"CREATE TABLE delta.`{table}` ({SCHEMA}) USING delta PARTITIONED BY (p)")
    row = "1, named_struct('x', 1, 'y-1', 'y'), array(named_struct('e', 2)), map('k', named_struct('v', 3))"
    spark.sql(f"INSERT INTO delta.`{table}` VALUES ({row}, 4, 'abc', 'd', 'p')")

    def run(clause):
        statement = (
            clause.format(t=f"delta.`{table}`")
            if "{t}" in clause
            else f"ALTER TABLE delta.`{table}` {clause}"
        )
        return [tuple(row) for row in spark.sql(statement).collect()]

    return run


def columns(table):
    """The columns with their types in Spark's words."""
    schema = DeltaLog.for_table(table).snapshot().schema
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def field(table, *path):
    """A field of the table's newest schema; `element`, `key` and `value` as in SQL."""
    data_type = DeltaLog.for_table(table).snapshot().schema
    found = None
    for name in path:
        match data_type:
            case T.StructType():
                found = data_type[name]
            case T.ArrayType():
                found = T.StructField("element", data_type.elementType, data_type.containsNull)
            case T.MapType() if name == "key":
                found = T.StructField("key", data_type.keyType, False)
            case T.MapType():
                found = T.StructField("value", data_type.valueType, data_type.valueContainsNull)
        data_type = found.dataType
    return found


@pytest.mark.parametrize(
    ("clause", "column", "data_type"),
    [
        ("ADD COLUMN st.`z-1` INT AFTER x", "st", "struct<x:int,z-1:int,y-1:string>"),
        ("ADD COLUMNS (arr.element.f INT FIRST)", "arr", "array<struct<f:int,e:int>>"),
        ("ADD COLUMN new STRUCT<a: ARRAY<INT>> COMMENT 'new' AFTER `a-b.c`", "new", "struct<a:array<int>>"),
        ("ALTER COLUMN st.`y-1` FIRST", "st", "struct<y-1:string,x:int>"),
        ("ALTER COLUMN st.x AFTER `y-1`", "st", "struct<y-1:string,x:int>"),
    ],
)
@pytest.mark.sampled(2)
def test_columns_inside_others(spark, table, alter, clause, column, data_type):
    alter(clause)
    assert columns(table)[column] == data_type
    [row] = load(spark, table).collect()
    assert (row.st.x, row.st["y-1"], row.arr[0].e, row.m["k"].v) == (1, "y", 2, 3)
    load(spark, table).write.format("delta").mode("append").save(table)


def test_fields_of_the_values_of_a_map(spark, tmp_path):
    path = str(tmp_path / "maps")
    spark.sql("SELECT map('k', named_struct('v', 3)) AS m").write.format("delta").save(path)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (m.value.w INT, m.value.u INT FIRST)")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN m.value.w COMMENT 'w'")
    assert columns(path) == {"m": "map<string,struct<u:int,v:int,w:int>>"}
    assert field(path, "m", "value", "w").metadata == {"comment": "w"}
    [row] = load(spark, path).collect()
    assert row.m["k"].asDict() == {"u": None, "v": 3, "w": None}


def test_positions_and_comments(spark, table, alter):
    alter("ALTER COLUMN `a-b.c` FIRST")
    assert list(columns(table))[:2] == ["a-b.c", "id"]
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "CHANGE COLUMN"
    assert info["operationParameters"]["position"] == "FIRST"
    assert json.loads(info["operationParameters"]["column"])["name"] == "`a-b.c`"
    alter("CHANGE COLUMN v v VARCHAR(3) COMMENT 'short' AFTER `A-B.C`")
    assert list(columns(table))[:3] == ["a-b.c", "v", "id"]
    assert field(table, "v").metadata == {
        "comment": "short",
        "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)",
    }
    alter("ALTER COLUMN id COMMENT 'one', st.x COMMENT 'two', p FIRST")
    assert next(iter(columns(table))) == "p"
    assert (field(table, "id").metadata, field(table, "st", "x").metadata) == (
        {"comment": "one"},
        {"comment": "two"},
    )
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "CHANGE COLUMNS"
    assert [c.get("position") for c in json.loads(info["operationParameters"]["columns"])] == [
        None,
        None,
        "FIRST",
    ]
    alter("ALTER COLUMN id COMMENT ''")
    assert field(table, "id").metadata == {}
    if spark.version < "4.3":
        return  # Spark's grammar has no COMMENT ON COLUMN
    spark.sql(f"COMMENT ON COLUMN delta.`{table}`.st IS 'three'")
    assert field(table, "st").metadata == {"comment": "three"}
    spark.sql(f"COMMENT ON COLUMN delta.`{table}`.st IS NULL")
    assert field(table, "st").metadata == {}


def test_not_null(spark, table, alter):
    assert not field(table, "id").nullable
    alter("ALTER COLUMN id SET NOT NULL")
    with pytest.raises(DeltaInvariantViolationException):
        spark.sql(f"INSERT INTO delta.`{table}` (id, p) VALUES (NULL, 'q')")
    alter("ALTER COLUMN id DROP NOT NULL")
    assert field(table, "id").nullable
    spark.sql(f"INSERT INTO delta.`{table}` (id, p) VALUES (NULL, 'q')")


def test_char_and_varchar(spark, table, alter):
    alter("ADD COLUMNS (st.v VARCHAR(2), st.s STRUCT<c: CHAR(3)>, arr.element.c CHAR(2), w VARCHAR(1))")
    declared = {
        name: field(table, name).metadata["__CHAR_VARCHAR_TYPE_STRING"] for name in ("st", "arr", "w")
    }
    assert declared == {
        "st": "struct<x:int,`y-1`:string,v:varchar(2),s:struct<c:char(3)>>",
        "arr": "array<struct<e:int,c:char(2)>>",
        "w": "varchar(1)",
    }
    struct = "named_struct('x', 1, 'y-1', '', 'v', '{}', 's', null)"
    insert = f"INSERT INTO delta.`{table}` (id, st) VALUES (2, {struct})"
    spark.sql(insert.format("ab"))
    with pytest.raises(DeltaInvariantViolationException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        spark.sql(insert.format("abc"))
    alter("ALTER COLUMN st.v TYPE VARCHAR(3)")
    spark.sql(insert.format("abc"))
    alter("ALTER COLUMN st.v TYPE STRING")
    spark.sql(insert.format("abcd"))
    alter("ALTER COLUMN c TYPE VARCHAR(2)")
    alter("ALTER COLUMN v TYPE STRING")
    assert field(table, "v").metadata == {}
    assert field(table, "c").metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(2)"}
    assert field(table, "st").metadata == {
        "__CHAR_VARCHAR_TYPE_STRING": "struct<x:int,`y-1`:string,v:string,s:struct<c:char(3)>>"
    }


def test_void_gets_a_type(spark, tmp_path):
    log = tmp_path / "void" / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "nullable": True, "metadata": {}} for name in ("id", "n")]
    schema = {"type": "struct", "fields": [{**fields[0], "type": "long"}, {**fields[1], "type": "void"}]}
    metadata = {"id": "1", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    metadata |= {"schemaString": json.dumps(schema), "configuration": {}}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(lines))
    spark.sql(f"ALTER TABLE delta.`{log.parent}` ALTER COLUMN n TYPE INT")
    assert columns(str(log.parent)) == {"id": "bigint", "n": "int"}


@pytest.mark.parametrize(
    ("clause", "error_class"),
    [
        ("ALTER COLUMN `a-b.c` TYPE BIGINT", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN v TYPE VARCHAR(2)", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN p TYPE VARCHAR(9)", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN c TYPE CHAR(3)", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN st.x SET NOT NULL", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN st TYPE STRUCT<x: INT>", "DELTA_CANNOT_UPDATE_STRUCT_FIELD"),
        ("ALTER COLUMN arr TYPE ARRAY<INT>", "DELTA_CANNOT_UPDATE_ARRAY_FIELD"),
        ("ALTER COLUMN m TYPE MAP<STRING, INT>", "DELTA_CANNOT_UPDATE_MAP_FIELD"),
        ("ALTER COLUMN arr.element TYPE INT", "DELTA_CANNOT_UPDATE_STRUCT_FIELD"),
        ("ALTER COLUMN m.key TYPE INT", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN m.value COMMENT 'c'", "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY"),
        ("ALTER COLUMN m.value FIRST", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN m.key DROP NOT NULL", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("ALTER COLUMN m.other COMMENT 'c'", "DELTA_COLUMN_NOT_FOUND"),
        ("ALTER COLUMN id.x COMMENT 'c'", "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT"),
        ("ALTER COLUMN id AFTER nothing", "DELTA_COLUMN_NOT_FOUND"),
        ("ADD COLUMN arr.f INT", "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT"),
        ("ADD COLUMN m.nothing.f INT", "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT"),
        ("ADD COLUMN new STRUCT<a: INT NOT NULL>", "DELTA_OPERATION_NOT_ALLOWED"),
        ("ADD COLUMN new ARRAY<STRUCT<a: INT NOT NULL>>", "DELTA_OPERATION_NOT_ALLOWED"),
        ("RENAME COLUMN `a-b.c` TO x", "DELTA_UNSUPPORTED_RENAME_COLUMN"),
        ("RENAME COLUMN st.x TO y", "DELTA_UNSUPPORTED_RENAME_COLUMN"),
        ("DROP COLUMN `a-b.c`", "DELTA_UNSUPPORTED_DROP_COLUMN"),
        ("DROP COLUMNS (id, st.x)", "DELTA_UNSUPPORTED_DROP_COLUMN"),
        ("REPLACE COLUMNS (id BIGINT)", "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"),
    ],
)
@pytest.mark.sampled(3)
def test_refused_and_nothing_is_changed(spark, untouched, clause, error_class):
    with pytest.raises(AnalysisException) as refused:
        spark.sql(f"ALTER TABLE delta.`{untouched}` {clause}")
    assert refused.value.getCondition() == error_class
    assert latest_version(untouched) == 0


def test_replace_columns(spark, table, alter):
    alter(
        "REPLACE COLUMNS (p STRING, ID BIGINT, c VARCHAR(4), new CHAR(1) COMMENT 'n', v VARCHAR(3), "
        "m MAP<STRING, STRUCT<v: INT>>, arr ARRAY<STRUCT<e: INT>>, "
        "st STRUCT<`y-1`: STRING, x: INT COMMENT 'x', z: INT>, `a-b.c` INT)"
    )
    assert columns(table) == {
        "p": "string",
        "id": "bigint",
        "c": "string",
        "new": "string",
        "v": "string",
        "m": "map<string,struct<v:int>>",
        "arr": "array<struct<e:int>>",
        "st": "struct<y-1:string,x:int,z:int>",
        "a-b.c": "int",
    }
    assert field(table, "id").nullable
    assert field(table, "id").metadata == {"comment": "the key"}
    assert field(table, "st", "x").metadata == {"comment": "x"}
    declared = {
        name: field(table, name).metadata.get("__CHAR_VARCHAR_TYPE_STRING") for name in ("c", "new", "v")
    }
    assert declared == {"c": "varchar(4)", "new": "char(1)", "v": "varchar(3)"}
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "REPLACE COLUMNS"
    assert json.loads(info["operationParameters"]["columns"])[1]["name"] == "ID"
    [row] = load(spark, table).collect()
    assert (row.p, row.id, row.c, row.new, row.m["k"].v) == ("p", 1, "d", None, 3)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("id BIGINT, st STRUCT<x: INT>", "dropping column(s) [y] from st"),
        ("id BIGINT", "dropping column(s) [st]"),
        ("id INT, st STRUCT<x: INT, y: INT>", "changing data type of id from bigint to int"),
        ("id BIGINT, st STRUCT<x: INT, y: BIGINT>", "changing data type of st.y from int to bigint"),
        ("id BIGINT, st STRUCT<x: INT, y: INT>, n STRUCT<a: INT NOT NULL>", "adding non-nullable column n"),
        ("id BIGINT, st STRUCT<x: INT NOT NULL, y: INT>", "tightening nullability of st.x"),
        ("id BIGINT, st STRUCT<x: INT, y: INT, z: INT NOT NULL>", "adding non-nullable column st.z"),
    ],
)
@pytest.mark.sampled(3)
def test_replace_columns_drops_none(spark, tmp_path, columns, reason):
    path = str(tmp_path / "replaced")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, st STRUCT<x: INT, y: INT>) USING delta")
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP") as refused:
        spark.sql(f"ALTER TABLE delta.`{path}` REPLACE COLUMNS ({columns})")
    assert f"Reason: {reason}." in str(refused.value)
    assert latest_version(path) == 0


@pytest.fixture(params=["path", "name"])
def named(request, table, alter, spark):
    """The table's name in SQL."""
    if request.param == "path":
        return f"delta.`{table}`"
    request.getfixturevalue("database")
    spark.sql(f"CREATE TABLE shown USING delta LOCATION '{table}'")
    return "shown"


def test_show_and_describe(spark, table, named):
    def answers(statement):
        return [tuple(row) for row in spark.sql(statement).collect()]

    names = ["id", "st", "arr", "m", "a-b.c", "v", "c", "p"]
    assert answers(f"SHOW COLUMNS IN {named}") == [(name,) for name in names]
    assert answers(f"SHOW PARTITIONS {named}") == [("p=p",)]
    described = answers(f"DESCRIBE TABLE {named}")
    assert [row[0] for row in described[: len(names)]] == names
    assert described[0] == ("id", "bigint", "the key")
    assert described[-1] == ("p", "string", None)
    extended = dict(row[:2] for row in answers(f"DESCRIBE FORMATTED {named}"))
    assert (extended["Provider"], extended["Location"]) == ("delta", f"file:{table}")
    assert answers(f"DESCRIBE EXTENDED {named}")[: len(described)] == described
    assert answers(f"DESCRIBE {named} `a-b.c`") == [
        ("col_name", "a-b.c"),
        ("data_type", "int"),
        ("comment", "NULL"),
    ]
    spark.sql(f"ALTER TABLE {named} SET TBLPROPERTIES ('mine' = '1', 'delta.appendOnly' = 'true')")
    spark.sql(f'COMMENT ON TABLE {named} IS "it\'s mine"')
    properties = dict(answers(f"SHOW TBLPROPERTIES {named}"))
    assert (properties["mine"], properties["delta.appendOnly"]) == ("1", "true")
    assert properties["delta.minReaderVersion"] == "1"
    assert answers(f"SHOW TBLPROPERTIES {named} ('mine')") == [("mine", "1")]


def test_show_create_table_makes_the_table_again(spark, table, named, tmp_path):
    spark.sql(f"ALTER TABLE {named} SET TBLPROPERTIES ('mine' = '1')")
    [[statement]] = spark.sql(f"SHOW CREATE TABLE {named}").collect()
    other = tmp_path / "again"
    name, rest = statement.removeprefix("CREATE TABLE ").removeprefix("spark_catalog.").split(" (", 1)
    assert name in (named, f"{spark.catalog.currentDatabase()}.{named}")
    spark.sql(f"CREATE TABLE delta.`{other}` ({rest.replace(table, str(other))}")
    old, new = (DeltaLog.for_table(path).snapshot() for path in (table, str(other)))
    assert (new.schema, new.partition_columns) == (old.schema, old.partition_columns)
    assert new.metadata.configuration == old.metadata.configuration
