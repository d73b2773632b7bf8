"""The source of a MERGE: read by several jobs, which have to find the same rows in it.

What may give other rows the next time is materialised (Checkpoints), as delta-spark's
MergeIntoMaterializeSource does. A source that is not reads Delta tables at one version.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.broadcasts import row_bytes, with_broadcast_hint
from deltaflow.batch.options import session_setting
from deltaflow.batch.read.own_scans import oldest_version, scans_of_table
from deltaflow.log.protocol.properties import IGNORE_CORRUPT_FILES, IGNORE_MISSING_FILES
from deltaflow.spark.expressions.analysis import references, since_epoch
from deltaflow.spark.expressions.checkpoints import Checkpoints
from deltaflow.spark.expressions.epoch import timestamp_ntz
from deltaflow.spark.expressions.frames import SourceFacts, at_one_time, pinned, source_facts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# So many values of the source's keys are looked for in each file's statistics; of more, the range.
_LISTED = 100
_CHECKPOINTED = "LogicalRDD"
_OF_A_TABLE = {"DeltaScan", "SubqueryAlias", "View"}
# What Python gets for bytes of a text that are no UTF-8: the text of the row may be another one.
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_BYTES = "bytes"
_RANGED = (T.StringType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)


class MergeSource:
    """The rows of a source."""

    def __init__(self, source: DataFrame) -> None:
        self._spark: SparkSession = source.sparkSession
        self._facts: SourceFacts = source_facts(source)
        # What Spark has cached it finds by the plan as it is.
        self.frame = source if self._facts.cached else pinned(source)
        """The rows; the attributes stay the same when they are materialised."""
        self._is_materialized = False
        self.rows = 0
        """How many there are; known after `key_bounds`."""
        self._used: list[Column] = []
        self._bytes: int | None = None
        """Of the columns that are used; None if Spark knows the size."""
        self.time_ms = 0
        """What materialising them took."""

    def version_read(self, path: str) -> int | None:
        """The version of the table at `path` that the source reads; None if it reads none, or one of the past
        that was asked for."""
        return oldest_version(scans_of_table(self._facts.scans, path))

    def at_one_time(self, columns: Sequence[Column]) -> list[Column]:
        """Lets the source and analysed columns have one time for now; what Spark has cached has its own."""
        timed, found = at_one_time(self.frame, columns)
        if not self._facts.cached:
            self.frame = timed
        return found

    def materialize(self, used: Sequence[Column], mode: str, checkpoints: Checkpoints) -> None:
        """Materialises the columns that are used, if the mode (`all`, `none`, `auto`) and the source ask for
        it."""
        started = time.perf_counter_ns()
        self._used = references(self.frame, used)
        if mode == "all" or (mode == "auto" and not self._is_repeatable()):
            columns = self._used or references(self.frame, [F.lit(1)])
            needed = self.frame.select(*columns) if columns else self.frame
            self.frame = checkpoints.keep(needed)
            self._is_materialized = True
        elif _CHECKPOINTED in self._facts.operators:
            checkpoints.add_read(self.frame)
        self.time_ms = (time.perf_counter_ns() - started) // 1_000_000

    def _is_repeatable(self) -> bool:
        leaves_files_out = any(
            session_setting(self._spark, flag) for flag in (IGNORE_CORRUPT_FILES, IGNORE_MISSING_FILES)
        )
        return self._facts.repeatable and not self._facts.cached and not leaves_files_out

    def key_bounds(self, keys: Sequence[tuple[Column, Column]], *, by_list: Sequence[bool]) -> Column | None:
        """Counts the rows, and says what is true of the target's side of all keys that equal one of theirs:
        None if nothing is known. One job for a source of few rows; else two, and one for each listed key. Of
        a Delta table of many rows, the log mostly tells all of it without a job.

        `keys`: expressions over the target and the source. `by_list`: of which of them a list of values is
        wanted, whatever the number of rows.
        """
        fields = self.frame.select(*[key for _, key in keys], *self._used).schema.fields
        types = [field.dataType for field in fields[: len(keys)]]
        ranged = [
            _Key(target, _plain(key, data_type, self._spark).alias(f"k{i}"), data_type, wanted)
            for i, ((target, key), data_type, wanted) in enumerate(zip(keys, types, by_list, strict=True))
            if isinstance(data_type, _RANGED)
        ]
        found = None
        if self._has_statistics:
            [found] = self.frame.agg(*_bounds([key.source for key in ranged])).collect()
        if found is None or found[0] <= _LISTED:
            measured = self._measured(ranged, fields[len(keys) :])
            first = measured.limit(_LISTED + 1).collect()
            if len(first) <= _LISTED:
                self.rows, self._bytes = len(first), sum(row[0] for row in first)
                lists = [key.among({row[i] for row in first}) for i, key in enumerate(ranged, 1)]
                if not self.rows:
                    return F.lit(False)
                return functools.reduce(operator.and_, lists) if lists else None
            bounds = _bounds([F.col(name) for name in measured.columns[1:]])
            [found] = measured.agg(*bounds, F.sum(_BYTES)).collect()
            self._bytes = found[-1]
        self.rows = found[0]
        conditions = []
        for i, key in enumerate(ranged):
            listed = self._listed(key) if key.by_list else None
            conditions.append(key.between(found[1 + 2 * i], found[2 + 2 * i]) if listed is None else listed)
        return functools.reduce(operator.and_, conditions) if conditions else None

    @property
    def _has_statistics(self) -> bool:
        """Whether the source is a Delta table, whose log mostly tells rows and bounds without a job."""
        return not self._is_materialized and not self._facts.cached and self._facts.operators <= _OF_A_TABLE

    def _measured(self, keys: Sequence[_Key], used: Sequence[T.StructField]) -> DataFrame:
        """The bytes of each row, of the columns that are used, and its keys."""
        names = [f"c{i}" for i in range(len(used))]
        size = row_bytes(zip(names, (field.dataType for field in used), strict=True))
        sources = {f"k{i}": key.source for i, key in enumerate(keys)}
        read = self.frame.select(*self._used, *sources.values()).toDF(*names, *sources)
        return read.select(F.expr(size).alias(_BYTES), *sources)

    def _listed(self, key: _Key) -> Column | None:
        """None if there are too many values."""
        rows = self.frame.select(key.source).distinct().limit(_LISTED + 1).collect()
        return key.among({row[0] for row in rows}) if len(rows) <= _LISTED else None

    def with_broadcast_hint(self) -> DataFrame:
        """The rows, with a hint to broadcast them if they are small."""
        return with_broadcast_hint(self.frame, self._bytes)


@dataclass(frozen=True)
class _Key:
    """Of a condition that an expression over the target equals one over the source."""

    target: Column
    source: Column
    data_type: T.DataType
    by_list: bool

    def among(self, values: Set[Any]) -> Column:
        """Null equals nothing."""
        given = sorted(values - {None})
        if not all(map(_is_exact, given)):
            return F.lit(True)
        return self.target.isin([self._literal(value) for value in given]) if given else F.lit(False)

    def between(self, low: Any, high: Any) -> Column:
        if low is None:
            return F.lit(False)
        if not (_is_exact(low) and _is_exact(high)):
            return F.lit(True)
        return self.target.between(self._literal(low), self._literal(high))

    def _literal(self, value: Any) -> Column:
        if isinstance(self.data_type, T.TimestampType):
            return F.timestamp_micros(F.lit(value))
        if isinstance(self.data_type, T.DateType):
            return F.date_from_unix_date(F.lit(value))
        if isinstance(self.data_type, T.TimestampNTZType):
            return timestamp_ntz(F.lit(value // timedelta(microseconds=1)))
        if isinstance(self.data_type, T.DecimalType):
            # Python gets 1E-38 as 1.0E-38, which has more digits than a decimal of Spark.
            return F.lit(str(value)).cast(self.data_type)
        return F.lit(value)


def _bounds(values: Sequence[Column]) -> list[Column]:
    """The number of rows, and the least and greatest of each value."""
    return [F.count(F.lit(1)), *(bound for value in values for bound in (F.min(value), F.max(value)))]


def _is_exact(value: Any) -> bool:
    return not isinstance(value, str) or _REPLACED not in value


def _plain(key: Column, data_type: T.DataType, spark: SparkSession) -> Column:
    """As Python takes it without a doubt, since Spark has more years and clocks are set back: instants as
    microseconds, dates as days, timestamps without a zone as the time that has passed since 1970."""
    if isinstance(data_type, T.DateType):
        return F.unix_date(key)
    if isinstance(data_type, T.TimestampNTZType):
        return since_epoch(key, spark)
    return F.unix_micros(key) if isinstance(data_type, T.TimestampType) else key
