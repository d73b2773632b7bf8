"""Ways by which rows get into a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[["SparkSession", str, "DataFrame", Path], Any]
"""Writes the rows of a frame into the table at a path; has a folder for itself."""


def streamed(rows: DataFrame, path: str, folder: Path, **options: str) -> None:
    source = str(folder / "source")
    rows.write.format("delta").save(source)
    stream = rows.sparkSession.readStream.format("delta").load(source).writeStream.format("delta")
    writer = stream.options(checkpointLocation=str(folder / "checkpoint"), **options)
    writer.trigger(availableNow=True).start(path).awaitTermination()


def sql(spark: SparkSession, path: str, statement: str, rows: DataFrame) -> None:
    """Runs a statement in which @T is the table, and `rows` a view of the rows."""
    rows.createOrReplaceTempView("rows")
    spark.sql(statement.replace("@T", f"delta.`{path}`")).collect()
