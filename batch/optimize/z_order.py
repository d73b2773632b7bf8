"""ZORDER BY: rows that are close in several columns come into one file (delta-spark's MultiDimClustering).

The values of each column of a bin are cut into ranges of about as many rows. A row's place on the Z-order
curve is made of the bits of the numbers of its ranges, one column's after the other's. All of it is Spark's
own expressions; what comes to Python are the bounds of the ranges.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame
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
from deltaflow.log.protocol.column_names import column_paths
from deltaflow.log.protocol.indexed_columns import indexed_leaves
from deltaflow.log.protocol.properties import OPTIMIZE_ZORDER_CHECK_STATS

_BITS = 10
_RANGES = 1 << _BITS
"""About as many as delta-spark's spark.databricks.io.skipping.mdc.rangeId.max has by default."""
_ROWS_OF_A_SAMPLE = 60 * _RANGES
_BITS_OF_A_WORD = 63
_LENGTH_OF_A_TEXT = 128
"""So many characters or bytes of a value tell its range: a sample of long texts would fill the memory."""
_RANGE, _WORD, _RANDOM = "\0range", "\0word", "\0random"
"""Names that no column of a table has."""
_POSITION, _STEP = "`\0position`", "`\0step`"
"""Variables of a lambda, which hide columns of their name."""


class ZColumn(NamedTuple):
    """A column to order by: its path through structs, and its type."""

    path: tuple[str, ...]
    data_type: DataType

    @property
    def key(self) -> str:
        """The values in SQL, long ones cut, in a form that has their order, and that a text of it stands for
        exactly."""
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
        if not isinstance(column.data_type, AtomicType) or (checks and column.path not in indexed)
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
    data_type: DataType = schema
    exact: list[str] = []
    for name in path:
        fields = data_type.fields if isinstance(data_type, StructType) else []
        field = next((f for f in fields if f.name.lower() == name.lower()), None)
        if field is None:
            return None
        exact.append(field.name)
        data_type = field.dataType
    return ZColumn(tuple(exact), data_type)


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

    Runs one query, for the bounds of the ranges of all bins. Crossings into the JVM: about 100 for a bin.
    """
    bounds = functools.reduce(DataFrame.union, (_bounds(each, columns) for each in bins)).toArrow()
    return [
        _laid_out(each, columns, list(row.values()))
        for each, row in zip(bins, bounds.to_pylist(), strict=True)
    ]


def _bounds(bin_: BinOfRows, columns: Sequence[ZColumn]) -> DataFrame:
    """One row: for each column the lower bounds of its ranges but the first, ascending, as texts.

    A frequent value is several of them, so that the numbers of ranges tell ranks: the bits of a column with
    few values weigh as much as those of one with many.
    """
    names = [f"`{_RANGE}{i}`" for i in range(len(columns))]
    rows = bin_.rows.selectExpr(*_aliased((column.key for column in columns), names))
    num_rows = rows.count() if bin_.num_rows is None else bin_.num_rows
    if num_rows > _ROWS_OF_A_SAMPLE:
        rows = rows.sample(fraction=_ROWS_OF_A_SAMPLE / num_rows, seed=0)
    of_all = rows.selectExpr(*_aliased((f"sort_array(collect_list({name}))" for name in names), names))
    picked = (
        f"transform(sequence(1, {_RANGES - 1}), i -> get({name}, int(floor(i * size({name}) / {_RANGES}))))"
        for name in names
    )
    return of_all.selectExpr(
        *_aliased((f"cast(array_compact({values}) as array<string>)" for values in picked), names)
    )


def _laid_out(bin_: BinOfRows, columns: Sequence[ZColumn], bounds: Sequence[Sequence[str]]) -> DataFrame:
    own = [quoted(name) for name in bin_.rows.columns]
    ranges = [_range(column, of_column) for column, of_column in zip(columns, bounds, strict=True)]
    words = _words(len(columns))
    names = [f"`{_WORD}{i}`" for i in range(len(words))]
    # Rows at one place of the curve may be too many for one file: chance spreads them.
    keyed = bin_.rows.selectExpr(
        *own, f"rand(0) as `{_RANDOM}`", *_aliased(ranges, (f"`{_RANGE}{i}`" for i in range(len(ranges))))
    ).selectExpr(*own, f"`{_RANDOM}`", *_aliased(words, names))
    spread = keyed.repartitionByRange(bin_.num_files, *names, f"`{_RANDOM}`")
    return spread.sortWithinPartitions(*names).select(*own)


def _aliased(expressions: Iterable[str], names: Iterable[str]) -> list[str]:
    return [f"{expression} as {name}" for expression, name in zip(expressions, names, strict=True)]


def _range(column: ZColumn, bounds: Sequence[str]) -> str:
    """How many of the bounds are not above the value, in SQL: none for null; found by halving steps."""
    # A raw literal, whose escapes are those of JSON alone.
    texts = msgspec.json.encode(bounds).decode().replace("'", "\\u0027")
    values = f"cast(from_json(r'{texts}', 'array<string>') as array<{column.key_type.simpleString()}>)"
    steps = ", ".join(str(1 << bit) for bit in reversed(range(_BITS)))
    # Beyond the last bound is null, which is no reason to step on.
    is_reached = f"get({values}, {_POSITION} + {_STEP} - 1) <= {column.key}"
    stepped = f"if({is_reached}, {_POSITION} + {_STEP}, {_POSITION})"
    return f"aggregate(array({steps}), 0, ({_POSITION}, {_STEP}) -> {stepped})"


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
