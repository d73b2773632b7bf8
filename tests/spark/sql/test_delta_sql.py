"""The statements that Delta adds to Spark's SQL: how their texts are read, and whose they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.spark.sql.delta_sql import STATEMENTS
from deltaflow.spark.sql.statements import Rows, Statement

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

Seen = list[Statement]


@pytest.fixture
def seen(answers: Callable[..., None]) -> Seen:
    """The statements that ran. Their functions do nothing but read their fields."""
    seen: Seen = []

    def run(statement: Statement) -> Rows:
        assert statement.fields
        seen.append(statement)
        return ()

    for name in STATEMENTS:
        answers(run, name, concerns=(lambda fields: True) if name == "Convert" else None)
    return seen


NOTHING: dict[str, Any] = {"version": None, "timestamp": None}
CLONE: dict[str, Any] = {
    **NOTHING,
    "isShallow": True,
    "replace": False,
    "mustExist": False,
    "ifNotExists": False,
    "target": ["a", "b"],
    "properties": None,
    "location": None,
}
VACUUM = {"full": False, "lite": False, "retentionHours": None, "dryRun": False}
OPTIMIZE: dict[str, Any] = {"full": False, "where": [], "zOrderBy": []}
READ: list[tuple[str, str, dict[str, Any]]] = [
    ("VACUUM {t}", "Vacuum", VACUUM),
    (
        "vacuum {t} retain 1.5 hours dry run;",
        "Vacuum",
        VACUUM | {"retentionHours": Decimal("1.5"), "dryRun": True},
    ),
    (
        "VACUUM {t} DRY RUN LITE RETAIN 0 HOURS",
        "Vacuum",
        VACUUM | {"lite": True, "retentionHours": 0, "dryRun": True},
    ),
    ("VACUUM '{path}' FULL ; ;", "Vacuum", VACUUM | {"full": True}),
    (
        "VACUUM {t} USING INVENTORY (SELECT (1) AS a -- )\n) DRY RUN",
        "Vacuum",
        VACUUM | {"dryRun": True, "inventory": {"query": "SELECT (1) AS a"}},
    ),
    (
        "VACUUM {t} RETAIN 3 HOURS USING INVENTORY a.`b c`",
        "Vacuum",
        VACUUM | {"retentionHours": 3, "inventory": {"table": ["a", "b c"]}},
    ),
    (
        "-- one\n/* two */ VACUUM /* three */ {t} -- four\n RETAIN /**/ 12 HOURS -- RETAIN 1 HOURS",
        "Vacuum",
        VACUUM | {"retentionHours": 12},
    ),
    ("VACUUM IDENTIFIER('delta.`' || '{path}`') DRY RUN", "Vacuum", VACUUM | {"dryRun": True}),
    ("fsck repair table {t}", "Fsck", {"dryRun": False}),
    ("FSCK REPAIR TABLE '{path}' DRY RUN;", "Fsck", {"dryRun": True}),
    ("OPTIMIZE {t}", "Optimize", OPTIMIZE),
    ("OPTIMIZE {t} FULL", "Optimize", OPTIMIZE | {"full": True}),
    (
        "OPTIMIZE {t} WHERE (zorder = '1 zorder by') AND d >= DATE'2024-01-01' ZORDER BY (a, b.`c d`)",
        "Optimize",
        OPTIMIZE
        | {
            "where": ["((zorder = '1 zorder by') AND (d >= DATE '2024-01-01'))"],
            "zOrderBy": ["a", "b.`c d`"],
        },
    ),
    ("OPTIMIZE {t} ZORDER BY `a`, b", "Optimize", OPTIMIZE | {"zOrderBy": ["a", "b"]}),
    ("RESTORE TABLE {t} TO VERSION AS OF 3", "Restore", NOTHING | {"version": 3}),
    ("RESTORE {t} VERSION AS OF '3'", "Restore", NOTHING | {"version": "3"}),
    ("RESTORE {t} TO FOR SYSTEM_TIME AS OF '2024-01-01'", "Restore", NOTHING | {"timestamp": "2024-01-01"}),
    (
        "RESTORE {t} TO TIMESTAMP AS OF TIMESTAMP'2024-01-02 03:04:05' - INTERVAL 1 DAY",
        "Restore",
        NOTHING | {"timestamp": "2024-01-01 03:04:05Z"},
    ),
    ("DESCRIBE HISTORY {t}", "DescribeHistory", {"limit": None}),
    ("desc history {t} LIMIT 3", "DescribeHistory", {"limit": 3}),
    ("DESC DETAIL '{path}'", "DescribeDetail", {}),
    ("GENERATE symlink_format_manifest FOR TABLE {t}", "Generate", {"mode": "symlink_format_manifest"}),
    ("REORG TABLE {t} APPLY (PURGE)", "Reorg", {"where": []}),
    ("REORG TABLE {t} WHERE p = 1 APPLY (PURGE)", "Reorg", {"where": ["(p = 1)"]}),
    ("CONVERT TO DELTA parquet.`/a b`", "Convert", {"noStatistics": False, "partitionedBy": None}),
    (
        "CONVERT TO DELTA a.b NO STATISTICS PARTITIONED BY (`x y` DECIMAL(3, 2), z DATE)",
        "Convert",
        {"noStatistics": True, "partitionedBy": "`x y` DECIMAL(3, 2), z DATE"},
    ),
    ("CREATE TABLE a.b SHALLOW CLONE {t}", "Clone", CLONE),
    (
        "CREATE OR REPLACE TABLE `a`.b SHALLOW CLONE {t} VERSION AS OF 2 "
        "TBLPROPERTIES ('x' = 'y', a.b = 3, c true) LOCATION '/x'",
        "Clone",
        CLONE
        | {"replace": True, "version": 2, "properties": {"x": "y", "a.b": 3, "c": "true"}, "location": "/x"},
    ),
    (
        "CREATE TABLE IF NOT EXISTS a.b SHALLOW CLONE {t} TIMESTAMP AS OF '2024-01-01' LOCATION 'x'",
        "Clone",
        CLONE | {"ifNotExists": True, "timestamp": "2024-01-01", "location": "x"},
    ),
    ("CREATE TABLE a.b DEEP CLONE {t}", "Clone", CLONE | {"isShallow": False}),
    (
        "REPLACE TABLE a.b CLONE {t} VERSION AS OF 2",
        "Clone",
        CLONE | {"isShallow": False, "replace": True, "mustExist": True, "version": 2},
    ),
    ("REPLACE TABLE a.b SHALLOW CLONE {t}", "Clone", CLONE | {"replace": True, "mustExist": True}),
    (
        "ALTER TABLE {t} DROP FEATURE deletionVectors TRUNCATE HISTORY",
        "DropFeature",
        {"featureName": "deletionVectors", "truncateHistory": True},
    ),
    ("ALTER TABLE {t} DROP FEATURE 'x'", "DropFeature", {"featureName": "x", "truncateHistory": False}),
]


def test_what_is_read_of_a_text(spark: SparkSession, path: str, seen: Seen) -> None:
    for text, name, fields in READ:
        statement = text.format(t=f"delta.`{path}`", path=path)
        assert spark.sql("EXPLAIN EXTENDED " + statement).collect() != [], text
        assert seen == [], text
        spark.sql(statement)
        found = seen.pop()
        assert found.name == name, text
        named = dict(found.fields)
        table = named.pop("table")
        assert named == fields, text
        if name == "Convert":
            assert (found.table, table) in ((None, ["parquet", "/a b"]), (None, ["a", "b"]))
        else:
            assert found.table is not None
            assert (found.table.path, table) == (path, ["delta", path]), text


def test_constraints_are_read_alike_by_every_spark(spark: SparkSession, path: str, answers: Any) -> None:
    seen: Seen = []

    def run(statement: Statement) -> Rows:
        assert statement.fields
        seen.append(statement)
        return ()

    answers(run, "AddCheckConstraint", table_field="child")
    answers(run, "DropConstraint")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT `c d` CHECK (id  > 1 AND (true))")
    constraint = seen.pop().fields["checkConstraint"]
    assert (constraint["userProvidedName"], constraint["condition"]) == ("c d", "id  > 1 AND (true)")
    spark.sql(f"ALTER TABLE delta.`{path}` DROP CONSTRAINT IF EXISTS c")
    dropped = seen.pop().fields
    assert (dropped["name"], dropped["ifExists"]) == ("c", True)


@pytest.mark.parametrize(
    ("text", "arguments", "field", "value"),
    [
        ("VACUUM IDENTIFIER(:t) RETAIN :h HOURS", {"h": 7}, "retentionHours", 7),
        ("VACUUM IDENTIFIER(?) RETAIN ? HOURS", [7], "retentionHours", 7),
        ("RESTORE IDENTIFIER(:t) TO VERSION AS OF :v", {"v": 2}, "version", 2),
        ("RESTORE IDENTIFIER(:t) TO TIMESTAMP AS OF :v", {"v": "2024-01-01"}, "timestamp", "2024-01-01"),
        ("OPTIMIZE IDENTIFIER(?) WHERE a = ? AND b = ?", [1, "x"], "where", ["((a = 1) AND (b = 'x'))"]),
        ("DESCRIBE HISTORY IDENTIFIER(:t) LIMIT :l", {"l": 2}, "limit", 2),
    ],
)
@pytest.mark.sampled(3)
def test_parameters(
    spark: SparkSession, path: str, seen: Seen, text: str, arguments: Any, field: str, value: Any
) -> None:
    name = f"delta.`{path}`"
    filled: Any = {"t": name, **arguments} if isinstance(arguments, dict) else [name, *arguments]
    assert spark.sql("EXPLAIN " + text, args=filled).collect() != []
    assert seen == []
    spark.sql(text, args=filled)
    [found] = seen
    assert found.table is not None
    assert (found.table.path, found.fields[field]) == (path, value)


def test_execute_immediate_and_a_new_session(spark: SparkSession, path: str, seen: Seen) -> None:
    spark.sql(f"EXECUTE IMMEDIATE 'VACUUM delta.`{path}` RETAIN 3 HOURS'")
    spark.newSession().sql(f"VACUUM delta.`{path}`")
    assert [found.fields["retentionHours"] for found in seen] == [3, None]


WRONG = [
    ("VACUUM {t} RETAIN x", "'x'"),
    ("VACUUM {t} RETAIN 3", "end of input"),
    ("VACUUM {t} RETAIN 3 DAYS", "'DAYS'"),
    ("VACUUM {t} HOURS", "'HOURS'"),
    ("VACUUM {t} DRY RUN DRY RUN FULL", "'FULL'"),
    ("VACUUM {t} USING INVENTORY (SELECT 1", "end of input"),
    ("OPTIMIZE {t} WHERE", "end of input"),
    ("OPTIMIZE {t} ZORDER BY (a", "end of input"),
    ("OPTIMIZE {t} ZORDER BY 3", "'3'"),
    ("RESTORE {t} TO", "end of input"),
    ("RESTORE {t} TO VERSION AS OF x", "'x'"),
    ("DESCRIBE HISTORY {t} LIMIT 'x'", "'\\'x\\''"),
    ("DESC DETAIL {t} EXTENDED", "'EXTENDED'"),
    ("GENERATE a FOR TABLE {t} b", "'b'"),
    ("EXPLAIN VACUUM {t}\nDRY", "end of input"),
]


def test_a_wrong_tail_is_told_with_its_place(spark: SparkSession, path: str, seen: Seen) -> None:
    for text, near in WRONG:
        statement = text.format(t=f"delta.`{path}`")
        with pytest.raises(ParseException) as wrong:
            spark.sql(statement)
        assert wrong.value.getCondition() == "PARSE_SYNTAX_ERROR", text
        if near == "end of input":
            line, position = statement.count("\n") + 1, len(statement.rsplit("\n", maxsplit=1)[-1])
            assert f"near {near}" in str(wrong.value), text
        else:
            line, position = 1, statement.rindex(near.strip("'").strip("\\"))
            assert wrong.value.getMessageParameters()["error"].strip("'\\") == near.strip("'\\"), text
        assert f"(line {line}, pos {position})" in str(wrong.value), text
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        spark.sql(f"OPTIMIZE delta.`{path}` WHERE a = = 1")
    assert seen == []


def test_words_that_are_no_statement_of_ours(spark: SparkSession, path: str, seen: Seen) -> None:
    """A table of Spark's own whose name is a word of Delta's."""
    spark.sql("SELECT 1 AS named, 2 AS other").createOrReplaceTempView("history")
    try:
        assert [row.col_name for row in spark.sql("DESCRIBE history").collect()] == ["named", "other"]
        with pytest.raises(DeltaAnalysisException, match="history is not a Delta table"):
            spark.sql("VACUUM history")
    finally:
        spark.catalog.dropTempView("history")
    assert seen == []


def test_a_table_that_is_not_there_is_named(spark: SparkSession, seen: Seen) -> None:
    """Spark's parser does not know the statements, or takes DETAIL for a table with a column of the name."""
    for statement in (
        "VACUUM nowhere RETAIN 1 HOURS",
        "OPTIMIZE nowhere ZORDER BY (id)",
        "REORG TABLE nowhere APPLY (PURGE)",
        "DESC DETAIL nowhere",
        "DESCRIBE HISTORY nowhere LIMIT 1",
    ):
        with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND.*`nowhere`"):
            spark.sql(statement)
    assert seen == []


OF_DELTA_ALONE = (
    "VACUUM {t} RETAIN 1 HOURS",
    "VACUUM IDENTIFIER('{t}') DRY RUN",
    "EXECUTE IMMEDIATE 'VACUUM {t}'",
    "OPTIMIZE {t} WHERE id = 1 ZORDER BY (id)",
    "RESTORE {t} TIMESTAMP AS OF '2024-01-01 00:00:00'",
    "RESTORE IDENTIFIER('{t}') TO VERSION AS OF 1",
    "GENERATE symlink_format_manifest FOR TABLE {t}",
    "REORG TABLE {t} APPLY (PURGE)",
    "ALTER TABLE {t} DROP FEATURE deletionVectors",
    "DESCRIBE HISTORY {t} LIMIT 1",
    "DESC DETAIL {t}",
)


def test_tables_of_other_formats_are_refused_by_name(spark: SparkSession, path: str, seen: Seen) -> None:
    """Spark's parser would call the statement's first word a wrong one."""
    spark.sql("CREATE TABLE other_format (id INT) USING parquet")
    spark.read.format("delta").load(path).createOrReplaceTempView("view_of_delta")
    try:
        for name, statement in itertools.product(("other_format", "view_of_delta"), OF_DELTA_ALONE):
            text = statement.format(t=name)
            with pytest.raises(DeltaAnalysisException, match=f"ONLY_OPERATION.* {name} is not a Delta table"):
                spark.sql(text)
        assert spark.sql("EXPLAIN VACUUM other_format").collect() != []
    finally:
        spark.sql("DROP TABLE other_format")
    assert seen == []


def test_what_is_decided_late_and_not_ours(spark: SparkSession, path: str, seen: Seen) -> None:
    """Spark 4.0 tells a parameter's value only when the plan is analysed."""
    spark.sql("SELECT 1 AS named").createOrReplaceTempView("no_delta_table")
    with pytest.raises(DeltaAnalysisException, match="no_delta_table is not a Delta table"):
        spark.sql("VACUUM IDENTIFIER(:t)", args={"t": "no_delta_table"})


def test_statements_without_an_operation_are_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(DeltaUnsupportedOperationException, match="UPGRADE UNIFORM"):
        spark.sql(f"REORG TABLE delta.`{path}` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))")
