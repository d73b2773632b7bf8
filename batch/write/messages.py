"""What Spark asks when rows are written into a table of a path or a name."""

from __future__ import annotations

from deltaflow.spark.write.messages import WriteRequest


class BatchWriteRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.batch: `df.write.format("delta")`, SQL's inserts and the writes of DataFrameWriterV2."""

    path: str | None
    mode: str
    """Append, Overwrite, ErrorIfExists or Ignore (Spark's SaveMode)."""
    options: dict[str, str]
    """Of the writer, their names in any case: `replaceWhere`, `partitionOverwriteMode`, `overwriteSchema`,
    `mergeSchema`, `dataChange`, those of the files, and Spark's `__partition_columns`."""
    by_position: bool | None
    """Into a table by name: whether the frame's columns stand for the table's by their order (INSERT INTO
    without a list of columns; there must be as many), or by their names. None: not by name."""
