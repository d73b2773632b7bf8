"""What the function of a statement has of Spark: its session, its caller's jobs, rows of any schema."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, DoubleType, LongType, MapType, StringType, StructType

from deltaflow import DeltaTable
from deltaflow.log import DeltaLog
from deltaflow.spark.bridge.dispatcher import Dispatcher
from deltaflow.spark.expressions.expressions import has_subquery, name_parts, sql_text
from deltaflow.spark.sql.statements import (
    AFFECTED_ROWS,
    MERGED_ROWS,
    NamedTable,
    Rows,
    Statement,
    run_statement,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

NAMED = "TRUNCATE TABLE delta.`{path}`"


def test_jobs_of_a_statement_are_its_callers(
    spark: SparkSession, path: str, answers: Callable[..., None]
) -> None:
    seen: dict[str, Any] = {}
    context = spark.sparkContext

    def run(statement: Statement) -> Rows:
        for name in ("spark.jobGroup.id", "spark.scheduler.pool", "spark.sql.execution.id"):
            seen[name] = context.getLocalProperty(name)
        assert statement.session.range(10, numPartitions=2).count() == 10
        context.setLocalProperty("mine", "of the function")
        return ()

    answers(run)
    context.setJobGroup("the caller's", "a statement")
    context.setLocalProperty("spark.scheduler.pool", "fair")
    try:
        spark.sql(NAMED.format(path=path))
        assert seen["spark.jobGroup.id"] == "the caller's"
        assert seen["spark.scheduler.pool"] == "fair"
        assert seen["spark.sql.execution.id"] is not None
        assert context.statusTracker().getJobIdsForGroup("the caller's")
        assert context.getLocalProperty("mine") is None
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
            context._jsc.setLocalProperty(name, None)
    spark.sql(NAMED.format(path=path))
    assert seen["spark.jobGroup.id"] is None
    assert seen["spark.scheduler.pool"] is None


def test_cancelling_a_job_group_stops_the_jobs_of_its_statement(
    spark: SparkSession, path: str, answers: Callable[..., None]
) -> None:
    context = spark.sparkContext
    ended = threading.Event()

    def run(statement: Statement) -> Rows:
        try:
            statement.session.range(10**15, numPartitions=2).where("hash(id) = hash(id + 1)").count()
        finally:
            ended.set()
        return ()

    def cancel() -> None:
        while not ended.wait(0.05):
            context.cancelJobGroup("to cancel")

    answers(run)
    canceller = threading.Thread(target=cancel)
    context.setJobGroup("to cancel", "a statement", interruptOnCancel=True)
    canceller.start()
    try:
        with pytest.raises(Exception, match="cancelled"):
            spark.sql(NAMED.format(path=path))
    finally:
        ended.set()
        canceller.join()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context._jsc.setLocalProperty(name, None)


def test_what_a_stream_says_of_itself_stays_on_its_threads(
    spark: SparkSession, path: str, tmp_path: Path, answers: Callable[..., None]
) -> None:
    seen: list[str | None] = []

    def run(statement: Statement) -> Rows:
        seen.append(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        return ()

    answers(run)
    stream = spark.readStream.format("delta").load(path).writeStream
    query = stream.foreachBatch(lambda frame, _: frame.sparkSession.sql(NAMED.format(path=path)))
    done = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    done.awaitTermination()
    assert done.exception() is None
    for _ in range(3):
        spark.sql(NAMED.format(path=path))
    assert seen == [done.id, None, None, None]


@pytest.mark.parametrize("make", ["newSession", "cloneSession"])
def test_the_session_is_the_one_that_was_asked(
    spark: SparkSession, path: str, answers: Callable[..., None], make: str
) -> None:
    java: Any = spark._jsparkSession
    session = SparkSession(spark.sparkContext, getattr(java, make)())
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    session.range(1).createOrReplaceTempView("of_that_session")
    seen = []

    def run(statement: Statement) -> Rows:
        seen.append(statement.session)
        assert statement.session.conf.get("spark.sql.session.timeZone") == "Asia/Kathmandu"
        assert statement.session.table("of_that_session").count() == 1
        return ()

    answers(run)
    session.sql(NAMED.format(path=path))
    assert seen[0]._jsparkSession.equals(session._jsparkSession)
    running: Any = spark.sparkContext._jvm
    assert running.io.deltaflow.spark.sql.RunningStatement.running() == 0


SCHEMA = (
    StructType()
    .add("text", StringType())
    .add("number", LongType())
    .add("ratio", DoubleType())
    .add("at", "timestamp")
    .add("day", "date")
    .add("parameters", MapType(StringType(), StringType()))
    .add("job", StructType().add("id", "string").add("tries", "integer"))
    .add("names", ArrayType(StringType()))
    .add("flag", "boolean")
)
ROW = (
    "a",
    7,
    0.5,
    dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC),
    dt.date(2024, 5, 6),
    {"mode": "Append", "none": None},
    {"id": "1", "tries": 2},
    ["x", None],
    True,
)


def test_rows_of_any_schema_by_sql_and_by_python(
    spark: SparkSession, path: str, answers: Callable[..., None]
) -> None:
    def run(statement: Statement) -> Rows:
        return [ROW, [None] * len(ROW), (*ROW[:6], ("1", 2), *ROW[7:])]

    answers(run, output=SCHEMA)
    table = NamedTable(f"delta.`{path}`", path)
    with_struct = (*ROW[:6], Row(id="1", tries=2), *ROW[7:])
    for frame in (
        spark.sql(NAMED.format(path=path)),
        run_statement(spark, "TruncateTable", table, {}),
    ):
        assert frame.schema == SCHEMA
        found = frame.selectExpr("*", "unix_micros(at) AS micros").drop("at").collect()
        micros = int(ROW[3].timestamp()) * 1_000_000 + 123456  # type: ignore[attr-defined]
        expected = (*with_struct[:3], *with_struct[4:], micros)
        assert [tuple(row) for row in found] == [expected, (None,) * len(ROW), expected]


def test_a_statement_by_python_is_that_of_sql(spark: SparkSession, path: str) -> None:
    run_statement(spark, "TruncateTable", NamedTable(f"delta.`{path}`", path), {})
    assert DeltaLog.for_table(path).snapshot().num_files == 0


def test_a_statement_by_python_does_not_come_back_from_the_jvm(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Dispatcher, "_decoded", lambda self, method, request: asked.append(method))
    frame: Any = DeltaTable.forPath(spark, path).history()
    plan = frame._jdf.queryExecution().optimizedPlan()
    assert plan.nodeName() == "LocalRelation"
    assert [row.version for row in frame.collect()] == [0]
    assert asked == []


def target(statement: Statement) -> DataFrame:
    assert statement.table is not None
    rows = statement.session.read.format("delta").load(statement.table.path)
    return statement.under_its_name(rows)


@pytest.mark.parametrize(
    ("text", "ids", "subquery"),
    [
        ("DELETE FROM delta.`{path}` AS t WHERE t.id > :low AND ID < 2", [1], False),
        ("DELETE FROM delta.`{path}` WHERE delta.`{path}`.id = :low", [0], False),
        ("DELETE FROM IDENTIFIER('delta.`{path}`') AS t WHERE t.id = :low", [0], False),
        ("WITH c AS (SELECT 2 AS x) DELETE FROM delta.`{path}` WHERE id IN (SELECT x FROM c)", [], True),
        ("DELETE FROM delta.`{path}` WHERE NOT EXISTS (SELECT :low)", [], True),
    ],
)
def test_a_condition_is_a_column(
    spark: SparkSession, path: str, answers: Callable[..., None], text: str, ids: list[int], subquery: bool
) -> None:
    def run(statement: Statement) -> Rows:
        condition = statement.fields["condition"]
        if has_subquery(condition):
            assert subquery
            return ()
        return [(row.id,) for row in target(statement).where(condition).collect()]

    answers(run, "DeleteFromTable", output=StructType().add("id", LongType()))
    frame = spark.sql(text.format(path=path), args={"low": 0})
    assert [row.id for row in frame.collect()] == ids


def test_the_assignments_of_an_update(spark: SparkSession, path: str, answers: Callable[..., None]) -> None:
    seen = []

    def run(statement: Statement) -> Rows:
        assert statement.fields["condition"] is None
        for assignment in statement.fields["assignments"]:
            value = target(statement).select(assignment["value"]).first()
            seen.append((name_parts(assignment["key"]), sql_text(assignment["value"]), tuple(value or ())))
            assert name_parts(assignment["value"]) is None
        return [(3,)]

    answers(run, "UpdateTable", output=AFFECTED_ROWS)
    frame = spark.sql(f"UPDATE delta.`{path}` AS t SET t.id = id + 1, a.`b.c` = upper('x')")
    assert [row.asDict() for row in frame.collect()] == [{"num_affected_rows": 3}]
    assert seen == [(("t", "id"), "(id + 1)", (1,)), (("a", "b.c"), "upper('x')", ("X",))]


MERGE = """
WITH base AS (SELECT explode(array(1L, 2L, 5L)) AS id), s AS (SELECT id, id * 10 AS v FROM base)
MERGE INTO delta.`{path}` AS t USING (SELECT * FROM s WHERE v < 50) AS u ON t.id = u.id
WHEN MATCHED AND u.v > 15 THEN UPDATE SET *
WHEN MATCHED THEN UPDATE SET id = u.v, t.x = 1
WHEN NOT MATCHED BY TARGET THEN INSERT (id) VALUES (u.v)
WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE
"""


def test_source_and_clauses_of_a_merge(spark: SparkSession, path: str, answers: Callable[..., None]) -> None:
    seen: dict[str, Any] = {}

    def run(statement: Statement) -> Rows:
        fields = statement.fields
        source = statement.frame("sourceTable")
        joined = target(statement).join(source, fields["mergeCondition"])
        seen["joined"] = sorted(tuple(row) for row in joined.select("t.id", "u.v").collect())
        for name in ("matchedActions", "notMatchedActions", "notMatchedBySourceActions"):
            seen[name] = [
                (
                    clause["action"],
                    None if clause["condition"] is None else sql_text(clause["condition"]),
                    [name_parts(assignment["key"]) for assignment in clause.get("assignments", ())],
                )
                for clause in fields[name]
            ]
        return [(3, 1, 1, 1)]

    answers(run, "MergeIntoTable", table_field="targetTable", output=MERGED_ROWS)
    assert spark.newSession().sql(MERGE.format(path=path)).first() == (3, 1, 1, 1)
    assert seen == {
        "joined": [(1, 10), (2, 20)],
        "matchedActions": [
            ("UpdateStarAction", "(u.v > 15)", []),
            ("UpdateAction", None, [("id",), ("t", "x")]),
        ],
        "notMatchedActions": [("InsertAction", None, [("id",)])],
        "notMatchedBySourceActions": [("DeleteAction", "(t.id = 0)", [])],
    }
