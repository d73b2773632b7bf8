"""The ways by which a statement reaches Spark: all of them come to the log, none runs before its time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog
from tests.tables import latest_version

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

SET = "ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('mine' = '{value}')"
REPAIR = "MSCK REPAIR TABLE delta.`{path}`"
NO_VARIABLES = "Spark finds variables in the predicate of REPLACE WHERE since 4.3"


def properties(path: str) -> dict[str, str]:
    return dict(DeltaLog.for_table(path).snapshot().metadata.configuration)


def test_a_session_made_by_new_session(spark: SparkSession, path: str) -> None:
    session = spark.newSession()
    session.sql(SET.format(path=path, value="new session"))
    assert properties(path) == {"mine": "new session"}
    with pytest.raises(DeltaUnsupportedOperationException):
        session.sql(REPAIR.format(path=path))
    session.newSession().sql(SET.format(path=path, value="its child"))
    assert properties(path) == {"mine": "its child"}


def test_the_session_of_a_micro_batch(spark: SparkSession, path: str, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def batch(frame: DataFrame, batch_id: int) -> None:
        frame.sparkSession.sql(SET.format(path=path, value="foreachBatch"))
        try:
            frame.sparkSession.sql(REPAIR.format(path=path))
        except DeltaUnsupportedOperationException as error:
            errors.append(error)

    source = spark.readStream.format("delta").load(path)
    stream = source.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert properties(path) == {"mine": "foreachBatch"}
    assert len(errors) == 1


def test_execute_immediate(spark: SparkSession, path: str) -> None:
    statement = SET.format(path=path, value="immediate")
    spark.sql(f'EXECUTE IMMEDIATE "{statement}"')
    assert properties(path) == {"mine": "immediate"}
    assert latest_version(path) == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("'delta.`{path}`'", None),
        ("'delta.`' || '{path}`'", None),
        (":name", {"name": "delta.`{path}`"}),
        ("concat('delta.`', ?, '`')", ["{path}"]),
    ],
)
@pytest.mark.sampled(2)
def test_identifier_clauses_and_parameters(
    spark: SparkSession, path: str, name: str, arguments: dict[str, str] | list[str] | None
) -> None:
    statement = f"ALTER TABLE IDENTIFIER({name.format(path=path)}) SET TBLPROPERTIES ('mine' = 'x')"
    filled: Any = None
    if isinstance(arguments, dict):
        filled = {key: value.format(path=path) for key, value in arguments.items()}
    if isinstance(arguments, list):
        filled = [value.format(path=path) for value in arguments]
    plan = spark.sql("EXPLAIN " + statement, args=filled).first()
    assert plan is not None
    assert "DeltaCommand" in plan.plan or "LateStatement" in plan.plan
    assert latest_version(path) == 0
    spark.sql(statement, args=filled)
    assert properties(path) == {"mine": "x"}
    assert latest_version(path) == 1
    rows = spark.sql(f"SHOW COLUMNS IN IDENTIFIER({name.format(path=path)})", args=filled).collect()
    assert [row.col_name for row in rows] == ["id"]


def test_parameters_in_conditions_and_values(spark: SparkSession, path: str) -> None:
    spark.sql(f"UPDATE delta.`{path}` SET id = id + :more WHERE id = :id", args={"id": 1, "more": 10})
    rows = spark.sql(f"DELETE FROM delta.`{path}` WHERE id = ?", args=[11]).collect()
    assert [row.num_affected_rows for row in rows] == [1]
    assert latest_version(path) == 2


def test_a_script_runs_the_statements_that_it_comes_to(spark: SparkSession, path: str, setting: Any) -> None:
    setting("spark.sql.scripting.enabled", "true")
    spark.sql(
        f"""
        BEGIN
          DECLARE rounds INT DEFAULT 0;
          IF rounds > 0 THEN {SET.format(path=path, value="never")}; END IF;
          WHILE rounds < 2 DO
            {SET.format(path=path, value="in a loop")};
            SET rounds = rounds + 1;
          END WHILE;
        END
        """
    )
    assert properties(path) == {"mine": "in a loop"}
    assert latest_version(path) == 2


def test_a_script_with_an_error_of_its_form(spark: SparkSession, setting: Any) -> None:
    setting("spark.sql.scripting.enabled", "true")
    with pytest.raises(ParseException, match=r"INVALID_LABEL_USAGE\.DOES_NOT_EXIST") as refused:
        spark.sql("BEGIN LEAVE nowhere; END")
    assert refused.value.getCondition() == "INVALID_LABEL_USAGE.DOES_NOT_EXIST"


def test_a_handler_of_a_script(spark: SparkSession, path: str, setting: Any) -> None:
    if spark.version < "4.1":
        pytest.skip("Spark 4.0 has handlers of other errors only")
    setting("spark.sql.scripting.enabled", "true")
    spark.sql(
        f"""
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION
          BEGIN
            {SET.format(path=path, value="handled")};
          END;
          {REPAIR.format(path=path)};
        END
        """
    )
    assert properties(path) == {"mine": "handled"}


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        ("DELETE FROM {t} WHERE id = y", [0, 1, 3]),
        ("BEGIN DECLARE z BIGINT DEFAULT 5; UPDATE {t} SET id = z WHERE id IN (SELECT y); END", [0, 1, 3, 5]),
        (
            "MERGE INTO {t} AS t USING (SELECT y AS s) ON t.id = s WHEN MATCHED THEN UPDATE SET id = y * 10 "
            "WHEN NOT MATCHED BY SOURCE AND t.id < y THEN DELETE",
            [3, 20],
        ),
        ("FOR r AS SELECT * FROM range(1, 3) DO DELETE FROM {t} WHERE id = r.id; END FOR", [0, 3]),
        ("INSERT INTO {t} REPLACE WHERE id = y SELECT y WHERE false", [0, 1, 3]),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
@pytest.mark.sampled(2)
def test_variables_of_a_script(
    spark: SparkSession, path: str, setting: Any, statements: str, left: list[int]
) -> None:
    if spark.version < "4.1" and "FOR " in statements:
        pytest.skip("Spark 4.0 has other variables in FOR")
    if spark.version < "4.3" and "REPLACE" in statements:
        pytest.skip(NO_VARIABLES)
    setting("spark.sql.scripting.enabled", "true")
    spark.range(4).write.format("delta").mode("overwrite").save(path)
    spark.sql(f"BEGIN DECLARE y BIGINT DEFAULT 2; {statements.format(t=f'delta.`{path}`')}; END")
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == left


@pytest.mark.parametrize("condition", ["UNRESOLVED_COLUMN", "SQLEXCEPTION"])
def test_a_handler_of_an_error_that_spark_raises_in_a_statement(
    spark: SparkSession, path: str, setting: Any, condition: str
) -> None:
    if spark.version < "4.1":
        pytest.skip("Spark 4.0 has handlers of other errors only")
    setting("spark.sql.scripting.enabled", "true")
    statement = f"DELETE FROM delta.`{path}` WHERE nothing = 1"
    with pytest.raises(AnalysisException) as raised:
        spark.sql(f"BEGIN {statement}; END")
    assert str(raised.value.getCondition()).startswith("UNRESOLVED_COLUMN")
    handler = f"DECLARE EXIT HANDLER FOR {condition} BEGIN SELECT 'handled' AS a; END;"
    assert [row.a for row in spark.sql(f"BEGIN {handler} {statement}; END").collect()] == ["handled"]


def test_session_variables_in_a_predicate_to_replace(spark: SparkSession, path: str) -> None:
    if spark.version < "4.3":
        pytest.skip(NO_VARIABLES)
    spark.range(4).write.format("delta").mode("overwrite").save(path)
    spark.sql("DECLARE OR REPLACE VARIABLE least BIGINT = 2")
    spark.sql(f"INSERT INTO delta.`{path}` REPLACE WHERE id >= least SELECT least + 5")
    spark.sql("DROP TEMPORARY VARIABLE least")
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 1, 7]


def test_names_in_double_quotes(spark: SparkSession, path: str, setting: Any) -> None:
    setting("spark.sql.ansi.enabled", "true")
    setting("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    table = f'"delta"."{path}"'
    spark.sql(f'OPTIMIZE {table} ZORDER BY ("id")')
    assert [row.version for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()][-1] == 0
    spark.sql(f'DELETE FROM {table} WHERE "id" = 1')
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0")
    assert spark.sql(f"VACUUM '{path}' DRY RUN").collect() == []
    assert spark.read.format("delta").load(path).count() == 3


STATEMENTS = [
    "SELECT 1 AS a",
    "SELEC 1",
    "SELECT :a",
    "SELECT * FROM nothing",
    "ALTER TABLE nothing SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE numbers SET TBLPROPERTIES ('a' = 'b')",
    "SHOW TBLPROPERTIES numbers ('a')",
    "ALTER TABLE numbers ADD COLUMN x INT",
    "ALTER TABLE numbers ADD COLUMN x INT FIRST",
    "ALTER TABLE numbers RENAME COLUMN id TO y",
    "ALTER TABLE numbers ADD PARTITION (m = '9')",
    "ALTER TABLE numbers PARTITION (m = '9') RENAME TO PARTITION (m = '8')",
    "SHOW PARTITIONS numbers",
    "SHOW COLUMNS IN numbers",
    "TRUNCATE TABLE numbers PARTITION (m = '8')",
    "TRUNCATE TABLE numbers",
    "TRUNCATE TABLE seen",
    "UPDATE numbers SET id = 1",
    "UPDATE seen SET id = 1",
    "DELETE FROM numbers WHERE id = 1",
    "DELETE FROM IDENTIFIER('num' || 'bers') WHERE nothing = 1",
    "ALTER TABLE IDENTIFIER('not' || 'hing') SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE IDENTIFIER(1 + 1) SET TBLPROPERTIES ('a' = 'b')",
    "MERGE INTO numbers USING seen ON false WHEN MATCHED THEN DELETE",
    "EXPLAIN TRUNCATE TABLE numbers",
    "ANALYZE TABLE numbers COMPUTE STATISTICS NOSCAN",
    "MSCK REPAIR TABLE numbers",
    "LOAD DATA LOCAL INPATH '/nothing' INTO TABLE numbers",
    "CREATE TABLE alike LIKE numbers",
    "ALTER TABLE alike RENAME TO renamed",
    "INSERT OVERWRITE DIRECTORY 'written' USING json SELECT 1 AS a",
    "COMMENT ON TABLE numbers IS 'c'",
    "VACUUM numbers RETAIN nonsense '",
    "VACUUM parquet.`written`",
    "VACUUM",
    "CONVERT numbers TO DELTA",
    "CREATE TABLE x DEEP CLONE",
    "ALTER TABLE numbers ADD CONSTRAINT c CHECK (id > 0)",
    "ALTER TABLE numbers ADD CONSTRAINT",
    "ALTER TABLE numbers DROP CONSTRAINT c",
    "DESCRIBE numbers id",
    "VACUUM nothing RETAIN x",
    "VACUUM )( :a",
    "/* a */ OPTIMIZE numbers WHERE id = = 1",
    "CONVERT TO DELTA",
    "CONVERT numbers",
    "DESCRIBE detail 'text",
    "EXPLAIN EXPLAIN VACUUM numbers",
    "DESCRIBE numbers",
    "DESCRIBE EXTENDED nothing",
    "CREATE TABLE x SHALLOW CLONE",
    "CREATE TABLE numbers (id INT) SHALLOW",
    "ALTER TABLE numbers ADD CONSTRAINT c CHECK (id > )",
    "BEGIN VACUUM numbers; END",
    "EXECUTE IMMEDIATE 'DELETE FROM numbers'",
    "BEGIN DELETE FROM numbers; END",
    "FROM numbers INSERT INTO numbers SELECT * INSERT INTO numbers SELECT *",
    "BEGIN SELECT 1 AS a UNION ALL SELECT 2; END",
    "BEGIN ALTER TABLE nothing SET TBLPROPERTIES ('a' = 'b'); END",
    "BEGIN ALTER TABLE numbers SET TBLPROPERTIES ('a' = 'c'); SHOW TBLPROPERTIES numbers ('a'); END",
]
AS_EVER = """
import json, re
from pyspark.sql import SparkSession
import deltaflow

builder = SparkSession.builder.master("local[1]").config("spark.sql.scripting.enabled", "true")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def outcome(statement):
    try:
        rows = [list(row) for row in spark.sql(statement).collect()]
        return json.loads(re.sub("#[0-9]+", "#", json.dumps(rows, default=str)))
    except Exception as error:
        # Spark numbers the columns that it makes.
        condition = getattr(error, "getCondition", lambda: None)()
        return [type(error).__name__, condition, re.sub("#[0-9]+", "#", str(error))]

def outcomes():
    spark.sql("CREATE TABLE numbers (id INT, m STRING) USING parquet PARTITIONED BY (m)")
    spark.sql("SELECT 1 AS id").createOrReplaceTempView("seen")
    found = [outcome(statement) for statement in json.loads(sys.argv[1])]
    for table in ("numbers", "alike", "renamed"):
        spark.sql("DROP TABLE IF EXISTS " + table)
    return found

without = outcomes()
deltaflow.register(spark)
deltaflow.register(spark)
print(json.dumps([without, outcomes()]))
"""


def test_what_is_not_about_our_tables_is_as_ever(run: Callable[..., str]) -> None:
    printed = run(AS_EVER, json.dumps(STATEMENTS)).splitlines()[-1]
    without, registered = json.loads(printed)
    for statement, expected, found in zip(STATEMENTS, without, registered, strict=True):
        assert found == expected, statement
