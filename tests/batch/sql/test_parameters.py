"""Parameters of spark.sql(text, args), named and by position, in statements on Delta tables."""

from __future__ import annotations

import pyspark
import pytest

from deltaflow.log import DeltaLog
from tests.tables import actions

pytestmark = pytest.mark.spark
outside_expressions = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."), reason="Spark 4.0 knows parameters in expressions only"
)


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory):
    """A table with id 0 to 5, whose m is the remainder by 3. Each test leaves it to the next ones."""
    path = str(tmp_path_factory.mktemp("parameters") / "table")
    rows = spark.range(6).selectExpr("id", "CAST(id % 3 AS STRING) AS m")
    rows.coalesce(1).write.format("delta").partitionBy("m").save(path)
    return path


@pytest.fixture(scope="module")
def name(spark, path):
    """The same table in the catalog."""
    spark.sql(f"CREATE TABLE parameters USING delta LOCATION '{path}'")
    yield "parameters"
    spark.sql("DROP TABLE parameters")


def by_position(statement, values):
    """The statement with ? for the named parameters, and their values in the order of the text."""
    text, arguments = statement, []
    while ":" in text:
        before, _, after = text.partition(":")
        arguments.append(values[after[0]])
        text = f"{before}?{after[1:]}"
    return text, arguments


def run(spark, path, name, statement, values):
    """Runs the statement with named parameters on the path, and with positional ones on the name: the rows of
    both, and how many versions each made."""
    text, arguments = by_position(statement, values)
    log = DeltaLog.for_table(path)
    before = log.snapshot().version
    named = spark.sql(statement.replace("{t}", f"delta.`{path}`"), values).collect()
    between = log.snapshot().version
    positional = spark.sql(text.replace("{t}", name), arguments).collect()
    assert log.snapshot().version - between == between - before
    return [tuple(row) for row in named], [tuple(row) for row in positional], between - before


@pytest.mark.parametrize(
    ("statement", "values", "rows"),
    [
        pytest.param(
            "SELECT count(*) FROM {t} VERSION AS OF :v", {"v": 0}, [(6,)], marks=outside_expressions
        ),
        pytest.param(
            "SELECT id FROM {t} VERSION AS OF :v WHERE id = :i",
            {"v": 0, "i": 4},
            [(4,)],
            marks=outside_expressions,
        ),
        pytest.param(
            "SHOW PARTITIONS {t} PARTITION (m = :m)", {"m": "1"}, [("m=1",)], marks=outside_expressions
        ),
        ("SELECT DISTINCT m FROM {t} WHERE m = :m", {"m": "1"}, [("1",)]),
    ],
)
def test_questions(spark, path, name, statement, values, rows):
    assert run(spark, path, name, statement, values) == (rows, rows, 0)


@pytest.mark.parametrize(
    ("statement", "values", "operation", "shown"),
    [
        ("INSERT INTO {t} VALUES (:i, :m)", {"i": 7, "m": "1"}, "WRITE", {}),
        pytest.param(
            "INSERT INTO {t} PARTITION (m = :m) VALUES (:i)",
            {"i": 8, "m": "2"},
            "WRITE",
            {},
            marks=outside_expressions,
        ),
        ("INSERT INTO {t} REPLACE WHERE m = :m VALUES (9, :m)", {"m": "9"}, "WRITE", {"mode": "Overwrite"}),
        ("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < :i", {"i": 100}, "WRITE", {}),
        pytest.param(
            "ALTER TABLE {t} SET TBLPROPERTIES ('x' = :v)",
            {"v": "1"},
            "SET TBLPROPERTIES",
            {},
            marks=outside_expressions,
        ),
        pytest.param(
            "COMMENT ON TABLE {t} IS :c",
            {"c": "mine"},
            "SET TBLPROPERTIES",
            {"properties": '{"comment":"mine"}'},
            marks=outside_expressions,
        ),
        pytest.param(
            "ALTER TABLE {t} ALTER COLUMN id COMMENT :c",
            {"c": "it's"},
            "CHANGE COLUMN",
            {},
            marks=outside_expressions,
        ),
        ("DELETE FROM {t} WHERE m = :m", {"m": "none"}, None, {}),
        ("UPDATE {t} SET id = :a WHERE id = :b", {"a": 50, "b": 49}, None, {}),
    ],
)
@pytest.mark.sampled(3)
def test_changes(spark, path, name, statement, values, operation, shown):
    *_, versions = run(spark, path, name, statement, values)
    if operation is None:
        return
    assert versions == 1
    [info] = actions(path, "commitInfo")
    assert info["operation"] == operation
    assert shown.items() <= info["operationParameters"].items()


def test_a_condition_of_dml(spark, path, name):
    spark.sql(f"INSERT INTO {name} VALUES (:i, 'dml')", {"i": 100})
    assert spark.sql(f"UPDATE {name} SET id = :a WHERE id = :b", {"a": 101, "b": 100}).collect() == [(1,)]
    assert spark.sql(f"DELETE FROM delta.`{path}` WHERE id = ?", [100]).collect() == [(0,)]
    assert spark.sql(f"DELETE FROM delta.`{path}` WHERE id = ? AND m = ?", [101, "dml"]).collect() == [(1,)]


def test_parameters_of_a_merge(spark, path, name):
    merge = (
        "MERGE INTO {t} t USING (SELECT :i AS id, :m AS m) s ON t.id = s.id AND t.m = :m "
        "WHEN MATCHED AND t.id < :l THEN DELETE WHEN NOT MATCHED THEN INSERT (id, m) VALUES (:i, :m)"
    )
    values = {"i": 200, "m": "merge", "l": 300}
    inserted, deleted, _ = run(spark, path, name, merge, values)
    assert (inserted, deleted) == ([(1, 0, 0, 1)], [(1, 0, 1, 0)])


@outside_expressions
def test_a_constraint_has_the_values(spark, path, name):
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT c CHECK (id > :low AND m != :m)", {"low": -5, "m": "x"})
    found = DeltaLog.for_table(path).snapshot().metadata.configuration["delta.constraints.c"]
    assert found == "id > -5 AND m != 'x'"
    spark.sql("ALTER TABLE IDENTIFIER(:t) DROP CONSTRAINT c", {"t": name})


def test_the_name_of_the_table(spark, path, name):
    assert spark.sql("SHOW COLUMNS IN IDENTIFIER(:t)", {"t": name}).collect() == [("id",), ("m",)]
    spark.sql("ALTER TABLE IDENTIFIER(?) UNSET TBLPROPERTIES IF EXISTS ('y')", [f"delta.`{path}`"])
    spark.sql("TRUNCATE TABLE IDENTIFIER(:t)", {"t": name})
    assert DeltaLog.for_table(path).snapshot().num_files == 0
