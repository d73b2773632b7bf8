"""Statistics of data files, taken from their Parquet footers (protocol: "Per-file Statistics").

A bound is written only where the footer proves it: no value of the file lies outside. Without a bound a
reader cannot skip the file, and loses nothing else.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from deltaflow.errors import StoreError
from deltaflow.log.files.column_chunks import FOOTER_BYTES, ColumnChunks, length_of_footer
from deltaflow.log.protocol.indexed_columns import ColumnPath
from deltaflow.store import NO_STORES, Stores, tails

T = TypeVar("T")
# The JSON value of a bound, given the raw bounds of all row groups; None where it is not proven.
OuterBound: TypeAlias = Callable[[list[Any]], Any]

_LOG = logging.getLogger(__name__)
_FILES_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = _FILES_AT_ONCE * FOOTER_BYTES
_MAGIC: Final = b"PAR1"
_ASCII_MAX: Final = "\x7f"
_UNICODE_MAX: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_UNITS_PER_MILLISECOND: Final = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}
# Spark's mark of dates and timestamps that were written in the hybrid Julian calendar.
_LEGACY_CALENDAR_KEY: Final = b"org.apache.spark.legacyDateTime"
# Files of Spark 2 use that calendar without the mark.
_SPARK_VERSION_KEY: Final = b"org.apache.spark.version"
_SPARK_SCHEMA_KEY: Final = b"org.apache.spark.sql.parquet.row.metadata"
_ENCODER: Final = msgspec.json.Encoder()


def collect_statistics(
    files: Sequence[tuple[str, int]],
    leaves: Sequence[tuple[ColumnPath, DataType]],
    string_prefix_length: int = 32,
    *,
    ours: bool = False,
) -> list[str]:
    """One statistics JSON string per file, in the order of `files`; only footers are read.

    `files` holds complete paths, as their stores know them, and sizes in bytes; `leaves` the columns of
    which bounds and null counts are collected (indexed_columns). StoreError names a file whose footer cannot
    be read or whose size differs. `ours`: this process has just written the files. Footers of others are
    checked first (column_chunks); of one that contradicts itself only the number of rows is taken.
    """

    def read(footer: _Footer) -> str:
        known = leaves if ours or footer.chunks is not None else ()
        return _file_statistics(footer, known, string_prefix_length)

    return list(_of_each_footer(files, read))


def numbers_of_rows(files: Sequence[tuple[str, int]], stores: Stores = NO_STORES) -> list[int]:
    """The number of rows of each file; `files` and errors are those of `collect_statistics`. `stores` are
    those of some of them."""
    return list(_of_each_footer(files, lambda footer: int(footer.metadata.num_rows), stores))


def arrow_schemas(files: Sequence[tuple[str, int]]) -> Iterator[pa.Schema]:
    """The columns of each file; `files` and errors are those of `collect_statistics`."""
    return _of_each_footer(files, lambda footer: footer.metadata.schema.to_arrow_schema())


def files_of_distinct_schemas(files: Sequence[tuple[str, int]]) -> dict[str, str]:
    """For each schema that these files have, as text, the first file with it; only footers are read.

    Spark's own schema in a footer has precedence over Parquet's, as for Spark's readers. Errors are those of
    `collect_statistics`.
    """
    first: dict[str, str] = {}
    for text, path in _of_each_footer(files, lambda footer: (_schema_text(footer.metadata), footer.path)):
        first.setdefault(text, path)
    return first


@dataclass(frozen=True)
class _Footer:
    path: str
    metadata: pq.FileMetaData
    end: bytes
    """The last bytes of the file, with the footer in it."""

    @cached_property
    def chunks(self) -> ColumnChunks | None:
        """Checked; None if pyarrow must not be asked for them."""
        try:
            chunks = ColumnChunks(self.end, self.metadata.schema)
            chunks.check()
        except ValueError as error:
            _LOG.warning("%s: its footer's statistics are left out: %s", self.path, error)
            return None
        return chunks


def _of_each_footer(
    files: Sequence[tuple[str, int]], read: Callable[[_Footer], T], stores: Stores = NO_STORES
) -> Iterator[T]:
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = files[start : start + _FILES_AT_ONCE]
        for (path, _), end in zip(some, _ends_with_footers(some, stores), strict=True):
            try:
                found = read(_Footer(path, pq.read_metadata(pa.BufferReader(end)), end))
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                raise StoreError(
                    f"Cannot read the Parquet footer of data file {path}: {error}", file=path
                ) from error
            yield found


def _ends_with_footers(files: Sequence[tuple[str, int]], stores: Stores) -> Iterator[bytes]:
    """The last bytes of files, with their footers: those with long ones are read once more, many together."""
    found = tails(files, FOOTER_BYTES, stores)
    needed = {
        i: length
        for i, ((_, size), end) in enumerate(zip(files, found, strict=True))
        if len(end) < (length := length_of_footer(end)) <= size and end.endswith(_MAGIC)
    }
    longest = max(needed.values(), default=FOOTER_BYTES)
    together = max(1, _BYTES_AT_ONCE // longest)
    for start in range(0, len(files), together):
        part = range(start, min(start + together, len(files)))
        long = [i for i in part if i in needed]
        if long:
            again = tails([files[i] for i in long], max(needed[i] for i in long), stores)
            for i, end in zip(long, again, strict=True):
                found[i] = end
        yield from found[start : part.stop]
        found[start : part.stop] = [b""] * len(part)


def _schema_text(metadata: pq.FileMetaData) -> str:
    of_spark = (metadata.metadata or {}).get(_SPARK_SCHEMA_KEY)
    # The first line of Parquet's schema is a memory address.
    return str(metadata.schema).partition("\n")[2] if of_spark is None else of_spark.decode()


def _file_statistics(
    footer: _Footer, leaves: Sequence[tuple[ColumnPath, DataType]], string_prefix_length: int
) -> str:
    metadata = footer.metadata
    positions = dict(_positions(metadata.schema.to_arrow_schema(), (), 0))
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}
    for path, data_type in leaves:
        # A variant is a group, which is null where its field of this name is.
        column_path = (*path, "metadata") if isinstance(data_type, VariantType) else path
        if column_path in positions:
            position, optional_fields = positions[column_path]
            column = _Column.of(metadata, position)
            nulls = column.null_count()
            if nulls is None and column.schema.max_repetition_level > 0 and footer.chunks is not None:
                nulls = _null_collections(footer.chunks.definition_levels(position), optional_fields)
            low, high = column.bounds(data_type, string_prefix_length)
        elif any(_may_hold(found, column_path) for found in positions):
            continue
        else:
            nulls, low, high = metadata.num_rows, None, None
        for tree, value in ((min_values, low), (max_values, high), (null_count, nulls)):
            if value is not None:
                _put(tree, path, value)
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": min_values,
        "maxValues": max_values,
        "nullCount": null_count,
    }
    return _ENCODER.encode(statistics).decode()


def _positions(
    fields: pa.Schema | pa.StructType, parent: ColumnPath, first: int, optional: int = 0
) -> Iterator[tuple[ColumnPath, tuple[int, int]]]:
    """The columns in the footer: path through structs -> index of its (first) Parquet leaf, and how many of
    the path's fields are optional.

    The dotted paths of a footer cannot be used: a column's name may contain a dot.
    """
    for index in range(len(fields)):
        field = fields.field(index)
        path = (*parent, field.name)
        if pa.types.is_struct(field.type):
            yield from _positions(field.type, path, first, optional + field.nullable)
        else:
            yield path, (first, optional + field.nullable)
        first += _leaf_count(field.type)


def _null_collections(levels: Sequence[list[int] | None], optional_fields: int) -> int | None:
    """How many rows have a null array or map: entries whose definition level is below the number of optional
    fields on its path. None where the footer does not have the levels of each row group.
    """
    counts = [count for count in levels if count is not None]
    return sum(sum(count[:optional_fields]) for count in counts) if len(counts) == len(levels) else None


def _may_hold(path: ColumnPath, column: ColumnPath) -> bool:
    """Whether a file's column may be read as a column of the table that the file lacks: its name differs in
    case, or only one of the two is a struct."""
    return all(name.lower() == other.lower() for name, other in zip(path, column, strict=False))


def _leaf_count(arrow_type: pa.DataType) -> int:
    if arrow_type.num_fields == 0:
        return 0 if pa.types.is_struct(arrow_type) else 1
    return sum(_leaf_count(arrow_type.field(index).type) for index in range(arrow_type.num_fields))


def _put(tree: dict[str, Any], path: ColumnPath, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


@dataclass(frozen=True, slots=True)
class _Column:
    """One Parquet leaf of a file: per row group the number of rows and the statistics, None without."""

    schema: pq.ColumnSchema
    groups: tuple[tuple[int, pq.Statistics | None], ...]
    nan_is_greatest: bool
    legacy_calendar: bool

    @staticmethod
    def of(metadata: pq.FileMetaData, index: int) -> _Column:
        notes = metadata.metadata or {}
        row_groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return _Column(
            schema=metadata.schema.column(index),
            # Arrow writes a row group without rows and without statistics for a file without rows.
            groups=tuple(
                (group.num_rows, group.column(index).statistics) for group in row_groups if group.num_rows > 0
            ),
            nan_is_greatest=_orders_nan(metadata.created_by or ""),
            legacy_calendar=_LEGACY_CALENDAR_KEY in notes or notes.get(_SPARK_VERSION_KEY, b"3") < b"3",
        )

    def null_count(self) -> int | None:
        if self.schema.max_definition_level == 0:
            return 0
        total = 0
        for _, statistics in self.groups:
            if statistics is None or not statistics.has_null_count:
                return None
            total += statistics.null_count
        # Of an array or map this counts empty ones and null elements, too: only 0 is exact.
        return None if total > 0 and self.schema.max_repetition_level > 0 else total

    def bounds(self, data_type: DataType, string_prefix_length: int) -> tuple[Any, Any]:
        """The JSON values of minimum and maximum, each None where the footer does not prove it."""
        outer_bounds = _outer_bounds(data_type, self, string_prefix_length)
        if outer_bounds is None:
            return None, None
        lows: list[Any] = []
        highs: list[Any] = []
        for num_rows, statistics in self.groups:
            if statistics is None:
                return None, None
            if statistics.has_min_max:
                lows.append(statistics.min_raw)
                highs.append(statistics.max_raw)
            elif not (statistics.has_null_count and statistics.null_count == num_rows):
                return None, None
        if not lows:
            return None, None
        lower, upper = outer_bounds
        return lower(lows), upper(highs)


def _orders_nan(created_by: str) -> bool:
    """Whether the writer orders NaN above all numbers, as Spark does: its maximum is NaN if there is one.

    parquet-mr, Spark's writer, does from 1.10 on. Older ones, Arrow's and others leave NaN out silently.
    """
    version = re.match(r"parquet-mr version (\d+)\.(\d+)", created_by)
    return version is not None and (int(version[1]), int(version[2])) >= (1, 10)


def _outer_bounds(
    data_type: DataType, column: _Column, string_prefix_length: int
) -> tuple[OuterBound, OuterBound] | None:
    """None where a type has no bounds in Delta, or the file holds the column as another type."""
    physical = column.schema.physical_type
    logical = column.schema.logical_type.type
    if column.schema.max_repetition_level > 0:
        return None
    match data_type:
        case ByteType() | ShortType() | IntegerType() | LongType():
            if physical in ("INT32", "INT64") and (logical == "NONE" or _annotation(column).get("isSigned")):
                return min, max
        case FloatType() | DoubleType():
            if physical in ("FLOAT", "DOUBLE") and logical == "NONE":
                return _lowest_float, _highest_float if column.nan_is_greatest else _no_bound
        case StringType():
            # Another collation has another order than the bytes of the footer.
            if logical == "STRING" and data_type == StringType():
                return (
                    lambda texts: _lowest_string(texts, string_prefix_length),
                    lambda texts: _highest_string(texts, string_prefix_length),
                )
        case DateType():
            if logical == "DATE" and not column.legacy_calendar:
                return lambda days: _date_text(min(days)), lambda days: _date_text(max(days))
        case TimestampType() | TimestampNTZType():
            annotation = _annotation(column)
            in_utc = isinstance(data_type, TimestampType)
            if (
                logical == "TIMESTAMP"
                and annotation.get("isAdjustedToUTC") == in_utc
                and not column.legacy_calendar
            ):
                zone = "Z" if in_utc else ""
                units = _UNITS_PER_MILLISECOND[annotation["timeUnit"]]
                # delta-spark cuts both bounds to milliseconds and lets its reader add one to the
                # maximum. Rounding up is right for that reader and for those that add nothing.
                return (
                    lambda times: _timestamp_text(min(times) // units, zone),
                    lambda times: _timestamp_text(-(-max(times) // units), zone),
                )
        case DecimalType():
            scale = data_type.scale
            if logical == "DECIMAL" and column.schema.scale == scale:
                return (
                    lambda values: _decimal_number(min(map(_unscaled, values)), scale),
                    lambda values: _decimal_number(max(map(_unscaled, values)), scale),
                )
    return None


def _annotation(column: _Column) -> dict[str, Any]:
    annotation: dict[str, Any] = msgspec.json.decode(column.schema.logical_type.to_json())
    return annotation


def _no_bound(_: list[Any]) -> None:
    return None


def _lowest_float(values: list[float]) -> float | None:
    lowest = min(values)
    if any(map(math.isnan, values)) or math.isinf(lowest):
        return None  # JSON has neither
    # A footer need not tell the zeros apart: whichever it names, the file may hold both.
    return -0.0 if lowest == 0 else lowest


def _highest_float(values: list[float]) -> float | None:
    highest = max(values)
    if any(map(math.isnan, values)) or math.isinf(highest):
        return None
    return 0.0 if highest == 0 else highest


def _lowest_string(values: list[bytes], prefix_length: int) -> str | None:
    text = _text(min(values))
    return None if text is None or prefix_length == 0 else text[:prefix_length]


def _highest_string(values: list[bytes], prefix_length: int) -> str | None:
    """The string itself if short, else a prefix and a character above the one that follows it.

    Code points order as their UTF-8 bytes do. Where the prefix is followed by the highest of all
    code points it grows, up to twice its length; beyond that there is no bound.
    """
    text = _text(max(values))
    if text is None or prefix_length == 0:
        return None
    for length in range(prefix_length, 2 * prefix_length + 1):
        if len(text) <= length:
            return text
        if text[length] < _UNICODE_MAX:
            return text[:length] + (_ASCII_MAX if text[length] < _ASCII_MAX else _UNICODE_MAX)
    return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None  # Spark's strings may hold any bytes; JSON's may not


def _date_text(days: int) -> str | None:
    ordinal = _EPOCH_DAY + days
    if not date.min.toordinal() <= ordinal <= date.max.toordinal():
        return None
    return date.fromordinal(ordinal).isoformat()


def _timestamp_text(milliseconds: int, zone: str) -> str | None:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None  # outside of the years 1 to 9999, which every reader of the format knows
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone


def _unscaled(raw: int | bytes) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _decimal_number(unscaled: int, scale: int) -> msgspec.Raw:
    """A JSON number with all its digits, never in exponent notation."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return msgspec.Raw(f"{sign}{whole}.{fraction}" if scale else f"{sign}{whole}")
