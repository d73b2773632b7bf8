"""CHECK constraints: ADD and DROP CONSTRAINT, and DeltaTable's methods of these names."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentAppendException,
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
    ProtocolChangedException,
)
from deltaflow.log import DeltaLog, set_observer
from tests.tables import actions, load, write

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


COLUMNS = ("id", "id % 2 AS p", "named_struct('x', id) AS st", "array(id) AS arr", "id AS `a-b.c`")


@pytest.fixture
def numbers(spark, table):
    """A table of id 1 to 4, with a struct, an array and a column whose name needs quotes."""
    frame = spark.range(1, 5).selectExpr(*COLUMNS)
    frame.coalesce(1).write.format("delta").partitionBy("p").save(table)
    return table


@pytest.fixture(params=["path", "name", "API"])
def alter(request, spark, numbers):
    """A function that adds or drops a constraint: by SQL on the path or on a name, or by DeltaTable."""
    way = request.param
    if way == "API":
        delta = DeltaTable.forPath(spark, numbers)

        def by_method(name, expression=None):
            if expression is None:
                delta.dropConstraint(name)
            else:
                delta.addConstraint(name, expression)

        return by_method
    named = f"delta.`{numbers}`"
    if way == "name":
        request.getfixturevalue("database")
        spark.sql(f"CREATE TABLE numbers USING delta LOCATION '{numbers}'")
        named = "numbers"

    def by_sql(name, expression=None):
        what = f"DROP CONSTRAINT {name}"
        what = what if expression is None else f"ADD CONSTRAINT {name} CHECK ({expression})"
        spark.sql(f"ALTER TABLE {named} {what}")

    return by_sql


def snapshot(table):
    return DeltaLog.for_table(table).snapshot()


def append_rows(spark, table, *ids):
    frame = spark.createDataFrame([(i,) for i in ids], "id bigint").selectExpr(*COLUMNS)
    write(frame, table)


@pytest.mark.sampled(2)
def test_a_constraint_is_one_commit_and_so_is_its_end(spark, numbers, alter):
    alter("Small", "id  < 10 -- and\n AND `a-b.c` > 0")
    [info] = actions(numbers, "commitInfo")
    expression = "id  < 10 -- and\n AND `a-b.c` > 0"
    assert info["operation"] == "ADD CONSTRAINT"
    assert info["operationParameters"] == {"name": "Small", "expr": expression}
    assert not info["isBlindAppend"]
    assert snapshot(numbers).metadata.configuration == {"delta.constraints.small": expression}
    assert snapshot(numbers).protocol.min_writer_version == 3
    append_rows(spark, numbers, 9)
    with pytest.raises(DeltaInvariantViolationException, match="CHECK constraint small "):
        append_rows(spark, numbers, 10)

    alter("SMALL")
    [info] = actions(numbers, "commitInfo")
    assert info["operation"] == "DROP CONSTRAINT"
    assert info["operationParameters"] == {"name": "SMALL", "expr": expression, "existed": "true"}
    assert snapshot(numbers).metadata.configuration == {}
    append_rows(spark, numbers, 10)
    assert snapshot(numbers).version == 4


def test_rows_that_are_there_have_to_satisfy_it(spark, numbers):
    append_rows(spark, numbers, None)
    with pytest.raises(DeltaAnalysisException, match=r"^\[DELTA_NEW_CHECK_CONSTRAINT_VIOLATION\] 3 rows in"):
        DeltaTable.forPath(spark, numbers).addConstraint("c", "id > 2")
    assert snapshot(numbers).version == 1
    spark.sql(f"ALTER TABLE delta.`{numbers}` ADD CONSTRAINT c CHECK (id > 0 OR id IS NULL)")
    spark.sql(f"ALTER TABLE delta.`{numbers}` DROP CONSTRAINT IF EXISTS c")


def test_deltalake_keeps_to_it(spark, tmp_path):
    path = str(tmp_path / "table")
    spark.range(1).write.format("delta").save(path)
    DeltaTable.forPath(spark, path).addConstraint("small", "id < 10")
    deltalake.write_deltalake(path, pa.table({"id": [9]}), mode="append")
    with pytest.raises(deltalake.exceptions.DeltaError, match="1 rows failed validation check"):
        deltalake.write_deltalake(path, pa.table({"id": [10]}), mode="append")
    assert load(spark, path).count() == 2


@pytest.fixture(scope="module")
def untouched(spark, tmp_path_factory):
    """A table that nothing in this module changes."""
    path = str(tmp_path_factory.mktemp("untouched") / "table")
    spark.range(1, 5).selectExpr(*COLUMNS).coalesce(1).write.format("delta").save(path)
    return path


@pytest.mark.parametrize(
    ("expression", "error_class"),
    [
        ("id", "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"),
        ("nothing > 1", "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"),
        ("st.nothing > 1", "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"),
        ("rand() >= 0", "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT"),
        ("max(id) > 0", "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT"),
        ("id IN (SELECT 1)", "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT"),
        ("id > (SELECT 0)", "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT"),
        ("is_small(id)", "DELTA_UDF_IN_CHECK_CONSTRAINT"),
        ("row_number() OVER (ORDER BY id) > 0", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE"),  # since Spark 4.2
        ("explode(arr) > 0", "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT"),
        ("no_function(id)", "UNRESOLVED_ROUTINE"),
        ("id >", "PARSE_SYNTAX_ERROR"),
    ],
)
@pytest.mark.sampled(3)
def test_what_no_constraint_can_be(spark, untouched, expression, error_class):
    spark.udf.register("is_small", lambda value: value < 10, "boolean")
    try:
        with pytest.raises(AnalysisException) as refused:
            DeltaTable.forPath(spark, untouched).addConstraint("c", expression)
    finally:
        spark.sql("DROP TEMPORARY FUNCTION is_small")
    if error_class == "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE" and spark.version < "4.2":
        error_class = "_LEGACY_ERROR_TEMP_1034"
    assert refused.value.getCondition() == error_class
    assert snapshot(untouched).version == 0


@pytest.mark.parametrize(
    "expression",
    [
        "ST.x > 0 AND forall(arr, e -> e > 0)",
        "`A-B.c` BETWEEN 1 AND 4",
        "current_date() > DATE'2000-01-01'",
        "CASE WHEN id > 2 THEN true ELSE id IN (1, 2) END",
    ],
)
@pytest.mark.sampled(2)
def test_what_a_constraint_can_be(spark, numbers, expression):
    DeltaTable.forPath(spark, numbers).addConstraint("a name, and `quotes`", expression)
    assert snapshot(numbers).metadata.configuration == {"delta.constraints.a name, and `quotes`": expression}
    append_rows(spark, numbers, 1)


def test_names(spark, numbers, settings):
    delta = DeltaTable.forPath(spark, numbers)
    delta.addConstraint("One", "id > 0")
    for name in ("one", "ONE"):
        with pytest.raises(DeltaAnalysisException, match="id > 0") as refused:
            delta.addConstraint(name, "id > -1")
        assert refused.value.getCondition() == "DELTA_CONSTRAINT_ALREADY_EXISTS"
    with pytest.raises(DeltaAnalysisException, match="DELTA_INVALID_CONSTRAINT_NAME"):
        delta.addConstraint("__CHAR_VARCHAR_STRING_LENGTH_CHECK__", "id > 0")
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_CONSTRAINT_DOES_NOT_EXIST.* two .*IF EXISTS"):
        delta.dropConstraint("two")
    assert snapshot(numbers).version == 1
    delta.dropConstraint("two", ifExists=True)
    with settings({"spark.databricks.delta.constraints.assumesDropIfExists.enabled": "true"}):
        delta.dropConstraint("two")
    assert snapshot(numbers).version == 3
    [info] = actions(numbers, "commitInfo")
    assert info["operationParameters"] == {"name": "two", "existed": "false"}
    assert set(snapshot(numbers).metadata.configuration) == {"delta.constraints.one"}


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("ADD CHECK (id > 0)", "ADD CONSTRAINT name"),
        ("ADD CONSTRAINT c CHECK (id > 0) RELY", "RELY"),
        ("ADD CONSTRAINT c PRIMARY KEY (id)", "PRIMARY KEY"),
        ("ADD CONSTRAINT c UNIQUE (id)", "UNIQUE"),
    ],
)
def test_refused_clauses(spark, untouched, clause, message):
    expected: type[Exception] = DeltaUnsupportedOperationException
    if spark.version < "4.1":  # whose parser knows no constraints
        expected, message = ParseException, "PARSE_SYNTAX_ERROR"
    with pytest.raises(expected, match=message):
        spark.sql(f"ALTER TABLE delta.`{untouched}` {clause}")
    assert snapshot(untouched).version == 0


def test_wrong_arguments(spark, untouched):
    delta = DeltaTable.forPath(spark, untouched)
    with pytest.raises(ValueError, match="name needs to be a string"):
        delta.addConstraint(1, "id > 0")
    with pytest.raises(ValueError, match="expr needs to be a string"):
        delta.addConstraint("c", spark.range(1).id > 0)
    with pytest.raises(ValueError, match="ifExists needs to be a boolean"):
        delta.dropConstraint("c", "yes")


def insert(statement):
    return lambda spark, table: spark.sql(statement.format(t=f"delta.`{table}`")).collect()


def save(mode, **options):
    def write(spark, table):
        frame = spark.sql(VALUES)
        frame.write.format("delta").mode(mode).options(**options).save(table)

    return write


def stream(spark, table):
    source = str(Path(table).with_name("source"))
    spark.sql(VALUES).write.format("delta").mode("ignore").save(source)
    rows = spark.readStream.format("delta").load(source)
    options = {"checkpointLocation": str(Path(table).with_name("checkpoint"))}
    query = rows.writeStream.format("delta").options(**options).trigger(availableNow=True).start(table)
    try:
        query.awaitTermination()
    finally:
        query.stop()


VALUES = "SELECT -1 AS id, 1 AS p, named_struct('x', 1L) AS st, array(1L) AS arr, 1L AS `a-b.c`"
WRITES = {
    "append": save("append"),
    "overwrite": save("overwrite"),
    "replaceWhere": save("overwrite", replaceWhere="p = 1"),
    "dynamic overwrite": save("overwrite", partitionOverwriteMode="dynamic"),
    "overwriteSchema": save("overwrite", overwriteSchema="true"),
    "mergeSchema": save("append", mergeSchema="true"),
    "INSERT": insert(f"INSERT INTO {{t}} {VALUES}"),
    "INSERT a list of columns": insert("INSERT INTO {t} (id) VALUES (-1)"),
    "INSERT OVERWRITE": insert(f"INSERT OVERWRITE {{t}} {VALUES}"),
    "INSERT REPLACE WHERE": insert(f"INSERT INTO {{t}} REPLACE WHERE p = 1 {VALUES}"),
    "stream": stream,
    "MERGE that updates": insert(
        "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -t.id"
    ),
    "MERGE that inserts": insert(
        f"MERGE INTO {{t}} t USING ({VALUES}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    ),
    "MERGE of what no row matches": insert(
        "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = -t.id"
    ),
    "UPDATE": insert("UPDATE {t} SET id = -id WHERE id = 1"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.sampled(12)
def test_every_write_keeps_to_it(spark, numbers, write):
    DeltaTable.forPath(spark, numbers).addConstraint("positive", "id > 0")
    with pytest.raises(Exception, match=r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES.*positive \(id > 0\)"):
        write(spark, numbers)
    assert snapshot(numbers).version == 1
    DeltaTable.forPath(spark, numbers).dropConstraint("positive")
    write(spark, numbers)
    assert snapshot(numbers).version == 3


def test_no_write_drops_a_column_of_a_constraint(spark, numbers):
    DeltaTable.forPath(spark, numbers).addConstraint("c", "id > 0 AND st.x > 0")
    for columns in ("1 AS p, named_struct('x', 1) AS st", "1 AS id, named_struct('y', 1) AS st"):
        write = spark.sql(f"SELECT {columns}").write.format("delta").mode("overwrite")
        with pytest.raises(DeltaAnalysisException, match="id > 0 AND st") as refused:
            write.option("overwriteSchema", "true").save(numbers)
        assert refused.value.getCondition() == "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
    assert snapshot(numbers).version == 1
    replaced = spark.sql("SELECT 1 AS id, named_struct('x', '1') AS st").write.format("delta")
    replaced.mode("overwrite").option("overwriteSchema", "true").save(numbers)


@pytest.fixture
def rival():
    """A function: has something happen once, just before the next commit is put."""

    def at_next_commit(act):
        def observer(point, facts):
            if point == "commit prepared":
                set_observer(None)
                act()

        set_observer(observer)

    yield at_next_commit
    set_observer(None)


def test_rows_that_are_appended_meanwhile_are_a_conflict(spark, numbers, rival):
    rival(lambda: append_rows(spark, numbers, 99))
    with pytest.raises(ConcurrentAppendException):
        DeltaTable.forPath(spark, numbers).addConstraint("small", "id < 10")
    assert snapshot(numbers).metadata.configuration == {}
    with pytest.raises(DeltaAnalysisException, match="1 rows in"):
        DeltaTable.forPath(spark, numbers).addConstraint("small", "id < 10")


def test_a_write_does_not_follow_a_constraint_that_it_does_not_know(spark, numbers, rival):
    rival(lambda: DeltaTable.forPath(spark, numbers).addConstraint("small", "id < 10"))
    with pytest.raises(ProtocolChangedException):
        append_rows(spark, numbers, 99)
    assert load(spark, numbers).count() == 4


def test_a_table_with_features_gets_the_feature(spark, table):
    spark.range(1).write.format("delta").option("delta.enableInCommitTimestamps", "true").save(table)
    DeltaTable.forPath(spark, table).addConstraint("c", "id >= 0")
    features = snapshot(table).protocol.writer_features
    assert features is not None
    assert {"checkConstraints", "inCommitTimestamp"} <= set(features)


def test_the_property_itself_is_not_for_users(spark, numbers):
    with pytest.raises(DeltaAnalysisException, match="DELTA_ADD_CONSTRAINTS"):
        spark.sql(f"ALTER TABLE delta.`{numbers}` SET TBLPROPERTIES ('delta.constraints.d' = 'id > 0')")
    assert snapshot(numbers).version == 0


def test_by_sql_with_parameters(spark, numbers):
    if spark.version.startswith("4.1"):
        pytest.skip("Spark 4.1 looks for the table of ADD CONSTRAINT while it parses IDENTIFIER")
    name = f"delta.`{numbers}`"
    spark.sql("ALTER TABLE IDENTIFIER(:t) ADD CONSTRAINT positive CHECK (id > 0)", args={"t": name})
    assert snapshot(numbers).metadata.configuration == {"delta.constraints.positive": "id > 0"}
    spark.sql("ALTER TABLE IDENTIFIER(?) DROP CONSTRAINT positive", args=[name])
    assert snapshot(numbers).metadata.configuration == {}


def test_the_table_may_be_named_by_an_expression(spark, numbers):
    if spark.version.startswith("4.1"):
        pytest.skip("Spark 4.1 looks for the table of ADD CONSTRAINT while it parses IDENTIFIER")
    name = f"IDENTIFIER('delta.`' || '{numbers}`')"
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")
    assert snapshot(numbers).metadata.configuration == {"delta.constraints.positive": "id > 0"}
