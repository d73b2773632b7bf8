"""ZORDER BY: rows that are close in several columns come into one file (delta-spark's MultiDimClustering).

The values of each column of a bin are cut into ranges of about as many rows. A row's place on the Z-order
curve is made of the bits of the numbers of its ranges, one column's after the other's. All of it is Spark's
own expressions; what comes to Python are the bounds of the ranges.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.log.column_names import column_paths
from deltaflow.log.indexed_columns import indexed_leaves
from deltaflow.log.properties import OPTIMIZE_ZORDER_CHECK_STATS

_BITS = 10
_RANGES = 1 << _BITS
"""About as many as delta-spark's spark.databricks.io.skipping.mdc.rangeId.max has by default."""
_ROWS_OF_A_SAMPLE = 60 * _RANGES
_BITS_OF_A_WORD = 63
_RANGE, _WORD, _RANDOM = "\0range", "\0word", "\0random"
"""Names that no column of a table has."""


class ZColumn(NamedTuple):
    """A column to order by: its path through structs, and its type."""

    path: tuple[str, ...]
    kind: DataType

    @property
    def key(self) -> Column:
        """The values in a form that is ordered as they are, and that a text of it stands for exactly."""
        value = F.col(".".join(map(quoted, self.path)))
        if isinstance(self.kind, BinaryType):
            return F.hex(value)
        return F.unix_micros(value) if isinstance(self.kind, TimestampType) else value

    @property
    def key_type(self) -> DataType:
        if isinstance(self.kind, BinaryType):
            return StringType()
        return LongType() if isinstance(self.kind, TimestampType) else self.kind


def z_columns(snapshot: Snapshot, names: Sequence[str], settings: Mapping[str, str]) -> list[ZColumn]:
    """The columns by their names, which may be paths such as a.b.

    DELTA_ZORDERING_ON_PARTITION_COLUMN, DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST, DELTA_DUPLICATE_COLUMNS_FOUND,
    and DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS unless the session's settings allow these.
    """
    partition_columns = {name.lower() for name in snapshot.partition_columns}
    found: list[ZColumn] = []
    for name in names:
        path = _path(name)
        if len(path) == 1 and path[0].lower() in partition_columns:
            raise _refused("DELTA_ZORDERING_ON_PARTITION_COLUMN", name, snapshot)
        column = _column(snapshot.schema, path)
        if column is None:
            raise _refused("DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST", name, snapshot)
        if column in found:
            raise DeltaAnalysisException(
                error_class="DELTA_DUPLICATE_COLUMNS_FOUND", columns=name, table=snapshot.path, column=name
            )
        found.append(column)
    indexed = {path for path, _ in indexed_leaves(snapshot.metadata, snapshot.path)}
    checks = OPTIMIZE_ZORDER_CHECK_STATS.of(settings, snapshot.path)
    without = [
        ".".join(column.path)
        for column in found
        if not isinstance(column.kind, AtomicType) or (checks and column.path not in indexed)
    ]
    if without:
        raise DeltaAnalysisException(
            error_class="DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            columns=", ".join(without),
            setting=OPTIMIZE_ZORDER_CHECK_STATS.name,
            table=snapshot.path,
        )
    return found


def _path(name: str) -> tuple[str, ...]:
    try:
        [path] = column_paths(name)
    except ValueError:
        return (name,)
    return path


def _column(schema: StructType, path: Sequence[str]) -> ZColumn | None:
    kind: DataType = schema
    exact: list[str] = []
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else []
        field = next((f for f in fields if f.name.lower() == name.lower()), None)
        if field is None:
            return None
        exact.append(field.name)
        kind = field.dataType
    return ZColumn(tuple(exact), kind)


def _refused(error_class: str, name: str, snapshot: Snapshot) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(error_class=error_class, name=name, table=snapshot.path, column=name)


class BinOfRows(NamedTuple):
    """The rows of some files of one partition, and how many files they are to come into."""

    rows: DataFrame
    num_rows: int | None
    """None where the log does not know it."""
    num_files: int


def z_ordered(bins: Sequence[BinOfRows], columns: Sequence[ZColumn]) -> list[DataFrame]:
    """The rows of each bin in as many Spark partitions as files are wanted, in the order of the curve.

    Runs one query, for the bounds of the ranges of all bins.
    """
    samples = functools.reduce(DataFrame.union, (_sampled(each, columns) for each in bins))
    bounds = samples.toArrow().to_pylist()
    return [
        _laid_out(each, columns, [row[name] for name in row]) for each, row in zip(bins, bounds, strict=True)
    ]


def _sampled(bin_: BinOfRows, columns: Sequence[ZColumn]) -> DataFrame:
    """One row: for each column the lower bounds of its ranges but the first, ascending, as texts.

    A frequent value is several of them, so that the numbers of ranges tell ranks: the bits of a column with
    few values weigh as much as those of one with many.
    """
    rows = bin_.rows.select(*(column.key.alias(f"{_RANGE}{i}") for i, column in enumerate(columns)))
    num_rows = rows.count() if bin_.num_rows is None else bin_.num_rows
    if num_rows > _ROWS_OF_A_SAMPLE:
        rows = rows.sample(fraction=_ROWS_OF_A_SAMPLE / num_rows, seed=0)
    sorted_values = rows.agg(
        *(F.sort_array(F.collect_list(F.col(f"`{name}`"))).alias(name) for name in rows.columns)
    )
    return sorted_values.select(*(_bounds(F.col(f"`{name}`")).alias(name) for name in rows.columns))


def _bounds(values: Column) -> Column:
    def at(i: Column) -> Column:
        return F.get(values, F.floor(i * F.size(values) / _RANGES).cast("int"))

    picked = F.transform(F.sequence(F.lit(1), F.lit(_RANGES - 1)), at)
    return F.array_compact(picked).cast("array<string>")


def _laid_out(bin_: BinOfRows, columns: Sequence[ZColumn], bounds: Sequence[Sequence[str]]) -> DataFrame:
    ranges = [
        _range(column, of_column).alias(f"{_RANGE}{i}")
        for i, (column, of_column) in enumerate(zip(columns, bounds, strict=True))
    ]
    words = _words(len(columns))
    names = [f"`{_WORD}{i}`" for i in range(len(words))]
    # Rows at one place of the curve may be too many for one file: chance spreads them.
    keyed = bin_.rows.select("*", *ranges, F.rand(0).alias(_RANDOM)).select(
        *map(quoted, bin_.rows.columns),
        f"`{_RANDOM}`",
        *(F.expr(word).alias(f"{_WORD}{i}") for i, word in enumerate(words)),
    )
    return (
        keyed.repartitionByRange(bin_.num_files, *names, f"`{_RANDOM}`")
        .sortWithinPartitions(*names)
        .select(*map(quoted, bin_.rows.columns))
    )


def _range(column: ZColumn, bounds: Sequence[str]) -> Column:
    """How many of the bounds are not above the value: none for null; found by halving steps."""
    texts = F.from_json(F.lit(msgspec.json.encode(bounds).decode()), "array<string>")
    values = texts.cast(f"array<{column.key_type.simpleString()}>")
    steps = F.array(*(F.lit(1 << bit) for bit in reversed(range(_BITS))))

    def halve(position: Column, step: Column) -> Column:
        # Beyond the last bound is null, which is no reason to step on.
        is_reached = F.get(values, position + step - 1) <= column.key
        return F.when(is_reached, position + step).otherwise(position)

    return F.aggregate(steps, F.lit(0), halve)


def _words(count: int) -> list[str]:
    """The place on the curve as SQL: numbers to be compared one after the other.

    They hold the bits of the ranges' numbers from the highest to the lowest, those of all columns for one
    bit together.
    """
    bits_of_a_word = _BITS_OF_A_WORD // count
    words = []
    for highest in range(_BITS, 0, -bits_of_a_word):
        bits = range(max(highest - bits_of_a_word, 0), highest)
        words.append(
            " | ".join(
                f"shiftleft(shiftright(`{_RANGE}{i}`, {bit}) & 1L, {(bit - bits[0]) * count + count - 1 - i})"
                for bit in bits
                for i in range(count)
            )
        )
    return words
