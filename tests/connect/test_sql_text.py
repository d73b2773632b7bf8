"""Columns, names and types as SQL: what a client sends for them, without a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from deltaflow.connect.sql_text import column_name, name_of_path
from deltaflow.connect.table_builder import TableBuilder
from deltaflow.definition_text import column_text, properties, string, type_text
from deltaflow.errors import DeltaUnsupportedOperationException

# In a process of its own, in which functions make Columns of Spark Connect.
COLUMNS = """
import datetime as dt, decimal, os
os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
from pyspark.sql import functions as F, types as T
from deltaflow.connect.sql_text import expression
from deltaflow.errors import DeltaUnsupportedOperationException
from types import SimpleNamespace
session = SimpleNamespace(client=None)
for column in (%s,):
    try:
        print(expression(session, column))
    except DeltaUnsupportedOperationException as error:
        print("refused:", error.message.split(" has no form")[0])
"""
EXPRESSIONS = {
    "F.col('t.id') == F.col('s.a-b')": "(`t`.`id` == `s`.`a-b`)",
    "~(F.col('a') > 1) & F.col('b').isNull()": "((NOT (`a` > 1)) AND isNull(`b`))",
    "-F.col('a') % 2 + F.lit(2**40)": "(((- `a`) % 2) + 1099511627776L)",
    "-F.lit(-1)": "(- -1)",
    "F.col('a').isin(1, 'x')": "(`a` IN (1, 'x'))",
    "F.col('a').isin()": "FALSE",
    "F.col('a').between(1, 2)": "((`a` >= 1) AND (`a` <= 2))",
    "F.when(F.col('a') > 0, 'x').when(F.lit(True), 'y').otherwise(None)": (
        "(CASE WHEN (`a` > 0) THEN 'x' WHEN TRUE THEN 'y' ELSE NULL END)"
    ),
    "F.when(F.col('a'), 1)": "(CASE WHEN `a` THEN 1 END)",
    "F.col('a').cast('long')": "CAST(`a` AS long)",
    "F.col('a').cast(T.DecimalType(3, 1))": "CAST(`a` AS decimal(3,1))",
    "F.col('a').try_cast('int')": "TRY_CAST(`a` AS int)",
    "F.col('a')['k'].getItem(0).alias('x')": "`a`['k'][0]",
    "F.col('a')[\"it's\"] == 'a\\\\b'": "(`a`.`it's` == CAST(X'615c62' AS STRING))",
    "F.upper(F.col('a').alias('b'))": "upper(`a`)",
    "F.struct(F.col('y').alias('x'), F.col('a').alias('b') + 1, F.expr('a AS z'))": (
        "struct(`y` AS `x`, (`a` + 1), a AS z|)"
    ),
    "F.timestamp_add('DAY', F.lit(1), 't')": "timestampadd(DAY, 1, `t`)",
    "F.lit('${a}')": "CAST(X'247b617d' AS STRING)",
    "F.col('m')['${a}']": "`m`[CAST(X'247b617d' AS STRING)]",
    "F.call_function('my.function', F.lit(1))": "my.function(1)",
    "F.expr('a -- it is')": "(a -- it is|)",
    "'a > 1'": "(a > 1|)",
    "F.lit(dt.date(2024, 2, 29))": "DATE'2024-02-29'",
    "F.lit(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc))": "timestamp_micros(1000000L)",
    "F.lit(decimal.Decimal('1.50'))": "1.50BD",
    "F.lit(float('-inf'))": "CAST('-Infinity' AS DOUBLE)",
    "F.lit(0.1)": "CAST('0.1' AS DOUBLE)",
    "F.lit(b'\\x01\\xff')": "X'01ff'",
    "F.lit(dt.timedelta(seconds=1))": "(1000000L * INTERVAL '0.000001' SECOND)",
    "F.lit(None).cast('int')": "CAST(NULL AS int)",
    "F.udf(len, T.IntegerType())('a')": "refused: The function len",
    "F.transform('a', lambda x: x)": "refused: A Column of the kind lambda_function",
    "F.col('*')": "refused: A Column of the kind unresolved_star",
}


def test_columns() -> None:
    program = COLUMNS % ", ".join(EXPRESSIONS)
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    found = printed.replace("\n)", "|)").splitlines()
    assert dict(zip(EXPRESSIONS, found, strict=True)) == EXPRESSIONS


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a", "`a`"),
        (" a .b", "` a `.`b`"),
        ("s.a", "`s`.`a`"),
        ("`a.b`.c d", "`a.b`.`c d`"),
        ("`a``b`", "`a``b`"),
    ],
)
def test_names_of_columns(name: str, quoted: str) -> None:
    assert column_name(name) == quoted


@pytest.mark.parametrize("name", ["`a", "a..b", "a.", " `a`", "a`b`"])
def test_what_is_no_name_of_a_column(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a column"):
        column_name(name)


def test_paths() -> None:
    assert name_of_path("s3a://b/a`b") == "delta.`s3a://b/a``b`"
    with pytest.raises(DeltaUnsupportedOperationException, match="relative path tables/a has no form"):
        name_of_path("tables/a")


@pytest.mark.parametrize("call", [name_of_path, column_name])
def test_a_name_that_the_server_would_read_as_a_variable(call: Callable[[str], str]) -> None:
    with pytest.raises(DeltaUnsupportedOperationException, match=r"The name /a/\$\{b\} has no form in SQL"):
        call("/a/${b}")


def test_clustering_by_a_field() -> None:
    said: list[str] = []
    session: Any = SimpleNamespace(sql=said.append)
    opened: Any = str
    builder = TableBuilder(session, "create", opened)
    builder.location("/t").addColumn("s", "STRUCT<a: INT>").clusterBy("s.a", "`b.c`").execute()
    assert said[0].endswith("CLUSTER BY (`s`.`a`, `b.c`)")


def test_strings_and_properties() -> None:
    assert string("it's a \\") == "'it\\'s a \\\\'"
    assert properties({"a'": "b"}) == "('a\\'' = 'b')"
    assert string("${env:HOME}") == r"'\u0024{env:HOME}'"


def test_columns_with_numbers_expressions_and_defaults() -> None:
    numbers = {
        "delta.identity.start": 5,
        "delta.identity.step": -2,
        "delta.identity.allowExplicitInsert": True,
    }
    assert column_text("id", "BIGINT", True, numbers) == (
        "`id` BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY -2)"
    )
    metadata = {"CURRENT_DEFAULT": "'x'", "comment": "it's"}
    assert column_text("s", "STRING", False, metadata) == "`s` STRING NOT NULL DEFAULT 'x' COMMENT 'it\\'s'"


def test_types() -> None:
    inner = T.StructType([T.StructField("a b", T.LongType(), False, {"comment": "it's"})])
    schema = T.StructType([T.StructField("m", T.MapType(T.StringType(), T.ArrayType(inner)))])
    assert type_text(schema) == (
        "STRUCT<`m`: MAP<string, ARRAY<STRUCT<`a b`: bigint NOT NULL COMMENT 'it\\'s'>>>>"
    )
    for refused in (
        T.ArrayType(T.LongType(), False),
        T.MapType(T.LongType(), T.LongType(), False),
        T.StructType([T.StructField("a", T.LongType(), True, {"delta.identity.start": 1})]),
    ):
        with pytest.raises(DeltaUnsupportedOperationException, match="has no form in SQL"):
            type_text(refused)


def test_a_type_does_not_depend_on_what_the_server_takes_a_timestamp_for() -> None:
    assert [type_text(each()) for each in (T.TimestampType, T.TimestampNTZType)] == [
        "timestamp_ltz",
        "timestamp_ntz",
    ]
