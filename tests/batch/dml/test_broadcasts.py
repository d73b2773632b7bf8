"""Which source of a MERGE is broadcast: one with a few bytes, whatever the number of its rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.broadcasts import bytes_of, row_bytes
from deltaflow.batch.dml.merge_source import MergeSource
from deltaflow.spark.expressions.checkpoints import Checkpoints

pytestmark = pytest.mark.spark


def is_hinted(source: DataFrame, used: list[str]) -> bool:
    """Whether a MERGE by the source's id that uses these columns has it broadcast."""
    columns = [source[name] for name in used]
    of_merge = MergeSource(source)
    with Checkpoints("table") as checkpoints:
        of_merge.materialize(columns, "auto", checkpoints)
        of_merge.key_bounds([(F.col("id"), source["id"])], by_list=[False])
        hinted = of_merge.with_broadcast_hint()
        return "strategy=broadcast" in hinted._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]


@pytest.mark.parametrize("rows", [50, 5_000])
@pytest.mark.parametrize("kind", ["filtered", "materialized"])
@pytest.mark.sampled(4)
def test_long_texts_are_not_broadcast(
    spark: SparkSession, table: str, settings: Callable[..., Any], rows: int, kind: str
) -> None:
    texts = {
        "short": "'x'",
        "text": "repeat('x', 1000)",
        "inner": "array(map('k', struct(repeat('y', 1000))))",
    }
    frame = spark.range(rows).selectExpr("id", *(f"{text} AS {name}" for name, text in texts.items()))
    frame.write.format("delta").save(table)
    source = spark.read.format("delta").load(table).where("id >= 0")
    if kind == "materialized":
        source = source.where(F.rand() >= 0)
    for limit in (str(500 * rows), f"{rows // 2}KB"):
        with settings({"spark.sql.autoBroadcastJoinThreshold": limit}):
            assert is_hinted(source, ["id", "short"])
            assert not is_hinted(source, ["id", "text"])
            assert not is_hinted(source, ["id", "inner"])
    with settings({"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        assert not is_hinted(source, ["id", "short"])


def test_the_bytes_of_many_columns_are_no_deep_expression() -> None:
    """Spark's parser would end with a stack overflow."""
    sql = row_bytes([(f"c{i}", T.StringType() if i % 2 else T.LongType()) for i in range(4_000)])
    assert sql.count("octet_length") == 2_000
    depths = list(accumulate(sql, lambda depth, sign: depth + (sign == "(") - (sign == ")"), initial=0))
    assert max(depths) < 16


def test_the_bytes_of_rows(spark: SparkSession) -> None:
    texts = spark.range(10).selectExpr(
        "id",
        "IF(id < 5, repeat('é', 50), NULL) AS `a.b`",
        "CAST(repeat('x', 100) AS BINARY) AS b",
        "IF(id = 0, array('ab', NULL, 'c'), NULL) AS a",
        "named_struct('a b', repeat('x', 100), 'm', map(1, 'xyz')) AS s",
        "parse_json(concat('[', repeat('1,', 49), '1]')) AS v",
    )
    fixed, outer = 8, 8  # of a number; of a row, a struct, an array or the keys or values of a map
    of_struct = outer + 100 + (outer + fixed) + (outer + 3)
    row = outer + fixed + 100 + outer + of_struct + 101
    assert bytes_of(texts, 10) == 10 * row + 5 * 100 + 3
    assert bytes_of(texts.where("false"), 0) == 0
    assert bytes_of(texts.select("id"), 10) == 10 * (outer + fixed)
