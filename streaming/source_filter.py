"""The option sourceFilter: files without rows of a predicate are left out before a batch is planned.

Files are chosen by their partition values and statistics. A chosen file may have no such row; Spark filters
the rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.file_statistics import ColumnPath, ColumnStatistics, FileStatistics, bound_type
from deltaflow.log.files.partition_values import typed_values
from deltaflow.streaming.admission import Selection
from deltaflow.streaming.reading import Reading

# Partition values of other types cannot be compared by their text (a missing time zone, rounding).
_TYPES_COMPARED = (
    T.StringType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DateType,
    T.TimestampNTZType,
)


def file_selection(reading: Reading) -> Selection | None:
    """Selects the files that may hold rows of the stream's filter; None if files cannot be chosen by it."""
    predicate = reading.options.source_predicate
    if predicate is None:
        return None
    return lambda files: may_match(predicate, _Statistics(files, reading))


class _Statistics(FileStatistics):
    """The statistics of files, and their partition values as bounds."""

    def __init__(self, files: pa.Table, reading: Reading) -> None:
        super().__init__(files, reading.schema)
        self._values = files["partition_values"]
        self._partition_columns: dict[ColumnPath, str] = {
            (name,): physical_name for name, physical_name in reading.physical_partition_columns.items()
        }

    def load(self, paths: Iterable[ColumnPath]) -> None:
        super().load(path for path in paths if path not in self._partition_columns)

    def column(self, path: ColumnPath) -> ColumnStatistics | None:
        if path not in self._partition_columns:
            return super().column(path)
        data_type = self.data_type(path)
        if not isinstance(data_type, _TYPES_COMPARED):
            return None
        values = pc.map_lookup(self._values, self._partition_columns[path], "first").combine_chunks()
        try:
            typed = typed_values(values, data_type)
        except pa.ArrowInvalid:
            return None  # The scan raises the error that names the wrong value.
        is_null = typed.is_null()
        bounds = typed.cast(bound_type(data_type))
        if pa.types.is_floating(bounds.type):
            bounds = pc.if_else(pc.is_nan(bounds), pa.scalar(None, bounds.type), bounds)
        return ColumnStatistics(bounds, bounds, is_null.cast(pa.int64()), pa.repeat(1, len(bounds)))
