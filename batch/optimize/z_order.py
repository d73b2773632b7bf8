"""ZORDER BY: rows that are close in several columns come into one file (delta-spark's MultiDimClustering).

The values of each column of a bin are divided into ranges with about the same number of rows. The position of
a row on the Z-order curve interleaves the bits of its range numbers in all columns. Spark's own expressions
compute it; only the bounds of the ranges pass through Python.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
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
    VariantType,
)

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.column_names import column_path
from deltaflow.log.protocol.data_types import fields_at
from deltaflow.log.protocol.indexed_columns import indexed_leaves
from deltaflow.log.protocol.properties import OPTIMIZE_ZORDER_CHECK_STATS
from deltaflow.spark.expressions.table_expressions import table_expression

_BITS = 10
_RANGES = 1 << _BITS
"""About the default of delta-spark's spark.databricks.io.skipping.mdc.rangeId.max."""
_ROWS_OF_A_SAMPLE = 60 * _RANGES
_BITS_OF_A_WORD = 63
_LENGTH_OF_A_TEXT = 128
"""Only so many characters or bytes of a value are compared: a sample of long texts would need much memory."""
_RANGE, _WORD, _RANDOM = "\0range", "\0word", "\0random"
"""Column names that no table has."""
_POSITION, _STEP = "`\0position`", "`\0step`"
"""Variables of a lambda. They would hide columns of the same names."""


class ZColumn(NamedTuple):
    """A column to order by, with its path through structs and its type."""

    path: tuple[str, ...]
    data_type: DataType

    @property
    def key_sql(self) -> str:
        """SQL for the value to compare, which has the order of the column.

        Long values are cut, and a cast to text and back is exact.
        """
        value = ".".join(map(quoted, self.path))
        if isinstance(self.data_type, StringType | BinaryType):
            value = f"left({value}, {_LENGTH_OF_A_TEXT})"
        if isinstance(self.data_type, BinaryType):
            return f"hex({value})"
        return f"unix_micros({value})" if isinstance(self.data_type, TimestampType) else value

    @property
    def key_type(self) -> DataType:
        if isinstance(self.data_type, BinaryType):
            return StringType()
        return LongType() if isinstance(self.data_type, TimestampType) else self.data_type


def z_columns(snapshot: Snapshot, names: Sequence[str], settings: Mapping[str, str]) -> list[ZColumn]:
    """The columns of these names, which may be paths such as a.b.

    Raises DELTA_ZORDERING_ON_PARTITION_COLUMN, DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST,
    DELTA_DUPLICATE_COLUMNS_FOUND, and, unless the session's settings allow columns without statistics,
    DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS.
    """
    partition_columns = {name.lower() for name in snapshot.partition_columns}
    found: list[ZColumn] = []
    for name in names:
        path = column_path(name)
        if len(path) == 1 and path[0].lower() in partition_columns:
            raise _refused("DELTA_ZORDERING_ON_PARTITION_COLUMN", name, snapshot)
        column = _z_column(snapshot.schema, path)
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
        if not _has_order(column.data_type) or (checks and column.path not in indexed)
    ]
    if without:
        raise DeltaAnalysisException(
            error_class="DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            columns=", ".join(without),
            setting=OPTIMIZE_ZORDER_CHECK_STATS.name,
            table=snapshot.path,
        )
    return found


def _has_order(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and not isinstance(data_type, VariantType)


def columns_at(snapshot: Snapshot, paths: Sequence[Sequence[str]]) -> list[ZColumn]:
    """The columns at these paths, which the schema has."""
    found = [_z_column(snapshot.schema, path) for path in paths]
    return [column for column in found if column is not None]


def _z_column(schema: StructType, path: Sequence[str]) -> ZColumn | None:
    fields = fields_at(schema, path)
    if fields is None:
        return None
    return ZColumn(tuple(field.name for field in fields), fields[-1].dataType)


def _refused(error_class: str, name: str, snapshot: Snapshot) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(error_class=error_class, name=name, table=snapshot.path, column=name)


class BinOfRows(NamedTuple):
    """The rows of some files of one partition, and the number of files to write them into."""

    rows: DataFrame
    num_rows: int | None
    """None if the log does not tell it."""
    num_files: int


def z_ordered(bins: Sequence[BinOfRows], columns: Sequence[ZColumn], table: str) -> list[DataFrame]:
    """The rows of each bin in the order of the curve, in one Spark partition for each file to write.

    Runs one query for the bounds of the ranges of all bins of the table at the path `table`. Calls the JVM
    about 100 times for a bin.
    """
    found = functools.reduce(DataFrame.union, (_range_bounds(each, columns, table) for each in bins))
    bounds = found.toArrow()
    return [
        _z_ordered_bin(each, columns, list(row.values()), table)
        for each, row in zip(bins, bounds.to_pylist(), strict=True)
    ]


def _range_bounds(bin_: BinOfRows, columns: Sequence[ZColumn], table: str) -> DataFrame:
    """One row with the ascending lower bounds of each column's ranges, as text, without the first range's.

    A frequent value is several bounds, so that range numbers are ranks: the bits of a column with few values
    weigh as much as those of a column with many.
    """
    names = [f"`{_RANGE}{i}`" for i in range(len(columns))]
    rows = bin_.rows.select(*_aliased((column.key_sql for column in columns), _RANGE, table))
    num_rows = rows.count() if bin_.num_rows is None else bin_.num_rows
    if num_rows > _ROWS_OF_A_SAMPLE:
        rows = rows.sample(fraction=_ROWS_OF_A_SAMPLE / num_rows, seed=0)
    of_all = rows.select(*_aliased((f"sort_array(collect_list({name}))" for name in names), _RANGE, table))
    picked = (
        f"transform(sequence(1, {_RANGES - 1}), i -> get({name}, int(floor(i * size({name}) / {_RANGES}))))"
        for name in names
    )
    texts = (f"cast(array_compact({values}) as array<string>)" for values in picked)
    return of_all.select(*_aliased(texts, _RANGE, table))


def _z_ordered_bin(
    bin_: BinOfRows, columns: Sequence[ZColumn], bounds: Sequence[Sequence[str]], table: str
) -> DataFrame:
    own = [F.col(quoted(name)) for name in bin_.rows.columns]
    ranges = [_range_number_sql(column, of_column) for column, of_column in zip(columns, bounds, strict=True)]
    words = _curve_position_sqls(len(columns))
    names = [f"`{_WORD}{i}`" for i in range(len(words))]
    # The rows at one position of the curve may need several files: a random number divides them.
    keyed = bin_.rows.select(*own, F.rand(0).alias(_RANDOM), *_aliased(ranges, _RANGE, table))
    keyed = keyed.select(*own, F.col(_RANDOM), *_aliased(words, _WORD, table))
    spread = keyed.repartitionByRange(bin_.num_files, *names, _RANDOM)
    return spread.sortWithinPartitions(*names).select(*own)


def _aliased(expressions: Iterable[str], name: str, table: str) -> list[Column]:
    """The expressions under the name and a number. Session settings change how Spark's parser for sessions
    reads names and the texts of bounds."""
    return [table_expression(sql, table).alias(f"{name}{i}") for i, sql in enumerate(expressions)]


def _range_number_sql(column: ZColumn, bounds: Sequence[str]) -> str:
    """SQL for the number of bounds that are not above the value (0 for null), found by binary search."""
    # In a raw literal only JSON's escapes count.
    texts = msgspec.json.encode(bounds).decode().replace("'", "\\u0027")
    values = f"cast(from_json(r'{texts}', 'array<string>') as array<{column.key_type.simpleString()}>)"
    steps = ", ".join(str(1 << bit) for bit in reversed(range(_BITS)))
    # Beyond the last bound `get` gives null, and the comparison is not true.
    is_reached = f"get({values}, {_POSITION} + {_STEP} - 1) <= {column.key_sql}"
    stepped = f"if({is_reached}, {_POSITION} + {_STEP}, {_POSITION})"
    return f"aggregate(array({steps}), 0, ({_POSITION}, {_STEP}) -> {stepped})"


def _curve_position_sqls(count: int) -> list[str]:
    """SQL for the position on the curve: numbers that are compared one after the other.

    They hold the bits of the range numbers from the highest to the lowest, and for each bit those of all
    columns.
    """
    bits = [f"shiftright(`{_RANGE}{i}`, {bit}) & 1L" for bit in reversed(range(_BITS)) for i in range(count)]
    # No word begins within the bits of one place, if it has room for those of all columns.
    of_a_word = max(_BITS_OF_A_WORD // count * count, min(count, _BITS_OF_A_WORD))
    words = [bits[start : start + of_a_word] for start in range(0, len(bits), of_a_word)]
    return [
        " | ".join(
            f"shiftleft({bit}, {place})" for place, bit in zip(reversed(range(len(word))), word, strict=True)
        )
        for word in words
    ]
