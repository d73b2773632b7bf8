"""What Spark asks when rows are written into a table by its path or its name."""

from __future__ import annotations

from deltaflow.spark.write.messages import WriteRequest


class BatchWriteRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.batch: `df.write.format("delta")`, SQL's inserts and the writes of DataFrameWriterV2."""

    path: str | None
    mode: str
    """Append, Overwrite, ErrorIfExists or Ignore (Spark's SaveMode)."""
    options: dict[str, str]
    """The options of the writer, with names in any case: `replaceWhere`, `partitionOverwriteMode`,
    `overwriteSchema`, `mergeSchema`, `dataChange`, those of the files, and Spark's `__partition_columns`."""
    by_position: bool | None
    """For a table by name: whether the frame's columns are matched to the table's by position (INSERT INTO
    without a list of columns, which needs as many columns), or by name. None for a table by path."""
