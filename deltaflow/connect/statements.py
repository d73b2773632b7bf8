"""Runs statements on the server, with frames of the client in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from deltaflow.connect.sql_text import quoted

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def run(spark: SparkSession, text: str) -> DataFrame:
    """Runs a statement at once, and returns its rows."""
    return spark.sql(text)


def run_with(spark: SparkSession, before: str, source: DataFrame, after: str) -> DataFrame:
    """Runs the statement `before` `source` `after` at once, and returns its rows.

    Spark makes a view of the frame for just this statement. The frame keeps the alias that it has.
    """
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
    from pyspark.sql.connect.plan import SubqueryAlias

    assert isinstance(source, ConnectDataFrame)
    plan = source._plan
    alias = f" AS {quoted(plan._alias)}" if isinstance(plan, SubqueryAlias) else ""
    return spark.sql(f"{_braces(before)} {{source}}{_braces(alias)} {_braces(after)}", source=source)


def _braces(text: str) -> str:
    """The text for `spark.sql` with frames, which reads what is in braces."""
    return text.replace("{", "{{").replace("}", "}}")
