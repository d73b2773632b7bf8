"""File statistics in columns: they are read and parsed once for each column that is asked for.

Protocol: "Per-file Statistics". A bound that is not certain is null: a missing key, a value of another type,
NaN, a date on which the Julian and the Gregorian calendar differ.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.generated_bounds import Bounds, tightest
from deltaflow.log.files.json_column import field_of, timestamp_texts
from deltaflow.log.files.statistics_texts import StatisticsTexts
from deltaflow.log.files.stored_statistics import StoredStatistics, gather
from deltaflow.log.files.text_casts import cast_or_null
from deltaflow.log.protocol.column_mapping import physical_path
from deltaflow.log.protocol.type_widening import was_float

ColumnPath = tuple[str, ...]
_LOG = logging.getLogger(__name__)
_TIGHT_BOUNDS = ("tightBounds",)
_COLUMNS_OF_FILES = ("path", "stats", "stats_text", "stats_row", "deletion_vector")
_FEW = 8
"""A part of the files is few if it is less than one in so many."""

# Bounds are at the precision of milliseconds, and not every writer rounds outwards.
_MILLISECOND = pa.scalar(1_000, pa.int64())
# Above the relative error of decimals that a writer has converted to floating-point numbers.
_DECIMAL_DOUBT = 2.0**-50
_BEYOND_LONG = 2.0**63
FLOAT_DOUBT = 2.0**-23
"""Above the relative error of a float that a writer has printed with as few digits as tell it from others."""
_SMALLEST_FLOAT = 2.0**-149
_GREGORIAN = date(1582, 10, 15)
_ONE_OFFSET_PER_ZONE = datetime(1900, 1, 1)
_JSON_TYPES: dict[type[T.DataType], pa.DataType] = {
    T.ByteType: pa.int64(),
    T.ShortType: pa.int64(),
    T.IntegerType: pa.int64(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.DecimalType: pa.float64(),
    T.StringType: pa.string(),
    T.DateType: pa.string(),
    T.TimestampType: pa.string(),
    T.TimestampNTZType: pa.string(),
}


@dataclass(frozen=True)
class ColumnStatistics:
    """One row per file, null where unknown: no value of the file is below `low` or above `high`.

    Their type is that of `bound_type`; `null_count` and `num_records` are int64.
    """

    low: pa.Array
    high: pa.Array
    null_count: pa.Array
    num_records: pa.Array

    def filter(self, mask: pa.Array) -> ColumnStatistics:
        """Of the files for which the mask is true."""
        columns = (self.low, self.high, self.null_count, self.num_records)
        return ColumnStatistics(*(column.filter(mask) for column in columns))


class FileStatistics:
    """Statistics of files, of which deletion vectors may delete some rows; thread-safe.

    Columns are asked for by their names in the table's `schema`; the log has their physical names.
    """

    def __init__(
        self,
        files: pa.Table,
        schema: T.StructType,
        generated: Mapping[ColumnPath, Callable[[], Bounds]] = MappingProxyType({}),
        stored: StoredStatistics | None = None,
    ) -> None:
        """`files` has the column deletion_vector, and statistics as in `gather`, which `stored` may have.
        `generated` makes bounds of columns from partition values (see generated_bounds).

        Statistics that cannot be read any more are unknown, and a warning in this module's log says so.
        """
        self._files = files
        self._stored = stored
        self._generated = generated
        self._with_generated: dict[ColumnPath, ColumnStatistics] = {}
        self._vectors: pa.ChunkedArray = files["deletion_vector"]
        self._schema = schema
        self._columns: dict[ColumnPath, ColumnStatistics | None] = {}
        self._num_records: pa.Array | None = None
        self._whole: tuple[FileStatistics, pa.Array] | None = None
        """The statistics of which these are a part, and the mask of this part."""
        self._lock = threading.Lock()

    def of(self, mask: pa.Array) -> FileStatistics:
        """The statistics of some of the files, for which the mask is true.

        What is not known yet is read for few files alone, and else for all.
        """
        names = [name for name in self._files.column_names if name in _COLUMNS_OF_FILES]

        def part(bounds: Callable[[], Bounds]) -> Callable[[], Bounds]:
            return lambda: tuple(bound.filter(mask) for bound in bounds())

        generated = {path: part(bounds) for path, bounds in self._generated.items()}
        some = FileStatistics(self._files.select(names).filter(mask), self._schema, generated, self._stored)
        some._whole = self, mask
        return some

    def __len__(self) -> int:
        return int(self._files.num_rows)

    @property
    def num_records(self) -> pa.Array:
        """Rows of each file, those included that a deletion vector deletes; null where unknown."""
        self.load([])
        assert self._num_records is not None
        return self._num_records

    @property
    def num_rows(self) -> pa.Array:
        """Rows of each file that are in the table; null where unknown."""
        if self._vectors.null_count == len(self):
            return self.num_records
        deleted = pc.fill_null(pc.struct_field(_combined(self._vectors), "cardinality"), 0)
        rows = pc.subtract(self.num_records, deleted)
        return pc.if_else(pc.less(rows, 0), pa.scalar(None, pa.int64()), rows)

    @property
    def has_tight_bounds(self) -> bool:
        """Whether the bounds of all files are values of rows that are in the table."""
        if self._vectors.null_count < len(self):
            return False
        found = self._gathered([_TIGHT_BOUNDS], _tight_bounds)
        return found is not None and not pc.any(pc.invert(found[_TIGHT_BOUNDS])).as_py()

    def data_type(self, path: ColumnPath) -> T.DataType | None:
        """The type of a column or nested field; None where the table has none of that name."""
        data_type: T.DataType = self._schema
        for name in path:
            if not isinstance(data_type, T.StructType) or name not in data_type.names:
                return None
            data_type = data_type[name].dataType
        return data_type

    def column(self, path: ColumnPath) -> ColumnStatistics | None:
        """The statistics of a column; None if it is a struct, an array or a map, or if the table lacks it."""
        self.load([path])
        return self._columns[path]

    def skipping_column(self, path: ColumnPath) -> ColumnStatistics | None:
        """As `column`, with the bounds that follow from partition values, too: for data skipping alone, since
        no row need have a value at such a bound."""
        column = self.column(path)
        if column is None or path not in self._generated:
            return column
        found = self._with_generated.get(path)
        if found is None:
            low, high = tightest([(column.low, column.high), self._generated[path]()])
            found = ColumnStatistics(low, high, column.null_count, column.num_records)
            self._with_generated[path] = found
        return found

    def load(self, paths: Iterable[ColumnPath]) -> None:
        """Parse the statistics of these columns in one go, except those that are parsed already."""
        with self._lock:
            new = [path for path in dict.fromkeys(paths) if path not in self._columns]
            data_types = {path: data_type for path in new if (data_type := self._leaf_type(path)) is not None}
            if (not new and self._num_records is not None) or self._load_from_whole(new):
                return
            leaves: dict[ColumnPath, pa.DataType] = {("numRecords",): pa.int64()}
            for path, data_type in data_types.items():
                physical = physical_path(self._schema, path)
                leaves["nullCount", *physical] = pa.int64()
                if json_type := _JSON_TYPES.get(type(data_type)):
                    leaves["minValues", *physical] = leaves["maxValues", *physical] = json_type
            parsed = self._parsed(leaves)
            self._num_records = _counts(parsed[("numRecords",)])
            for path in new:
                self._columns[path] = (
                    self._column(path, data_types[path], parsed) if path in data_types else None
                )

    def _load_from_whole(self, new: Sequence[ColumnPath]) -> bool:
        """Takes the columns from the statistics of which these are a part, if that is not more work."""
        if self._whole is None:
            return False
        whole, mask = self._whole
        is_known = whole._num_records is not None and whole._columns.keys() >= set(new)
        if not is_known and len(self) * _FEW < len(whole):
            return False
        whole.load(new)
        self._num_records = whole.num_records.filter(mask)
        for path in new:
            column = whole._columns[path]
            self._columns[path] = None if column is None else column.filter(mask)
        return True

    def _leaf_type(self, path: ColumnPath) -> T.DataType | None:
        data_type = self.data_type(path)
        return None if isinstance(data_type, T.StructType | T.ArrayType | T.MapType) else data_type

    def _column(
        self, path: ColumnPath, data_type: T.DataType, parsed: Mapping[ColumnPath, pa.Array]
    ) -> ColumnStatistics:
        assert self._num_records is not None
        physical = physical_path(self._schema, path)
        low, high = (parsed.get((group, *physical)) for group in ("minValues", "maxValues"))
        if low is None or high is None:
            low = high = pa.nulls(len(self))
        else:
            low, high = _outer_bounds(low, high, data_type)
            if was_float(self._schema, path):
                low, high = _beyond_floats(low, high)
        return ColumnStatistics(low, high, _counts(parsed["nullCount", *physical]), self._num_records)

    def _parsed(self, leaves: Mapping[ColumnPath, pa.DataType]) -> dict[ColumnPath, pa.Array]:
        """The values of the statistics at these paths, null where a file has none of the type.

        Of statistics in columns a path has only nulls if the column is of another type.
        """

        def columns(piece: pa.Array) -> pa.Table:
            if pa.types.is_struct(piece.type):
                return _flat([_as_in_json(_leaf(piece, path), leaves[path]) for path in leaves])
            return _flat(_reader_of_texts(tuple(leaves.items())).values(piece))

        try:
            found = self._gathered(leaves, columns)
            return self._unknown(leaves) if found is None else found
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if len(leaves) > 1:
                alone = [self._parsed({path: arrow_type}) for path, arrow_type in leaves.items()]
                return {path: values for parsed in alone for path, values in parsed.items()}
            return self._unknown(leaves)

    def _gathered(
        self, leaves: Iterable[ColumnPath], columns: Callable[[pa.Array], pa.Table]
    ) -> dict[ColumnPath, pa.Array] | None:
        """What `columns` makes of the statistics (`_flat`); None if they cannot be read any more."""
        leaves = list(leaves)
        try:
            found = gather(self._files, self._stored, leaves, columns)
        except CorruptLogError as error:
            _LOG.warning("No file is skipped, since the statistics of the files are gone: %s", error)
            return None
        return {path: _combined(found[index]) for index, path in enumerate(leaves)}

    def _unknown(self, leaves: Mapping[ColumnPath, pa.DataType]) -> dict[ColumnPath, pa.Array]:
        return {path: pa.nulls(len(self), arrow_type) for path, arrow_type in leaves.items()}


@lru_cache(maxsize=64)
def _reader_of_texts(leaves: Sequence[tuple[ColumnPath, pa.DataType]]) -> StatisticsTexts:
    return StatisticsTexts(dict(leaves))


def _counts(numbers: pa.Array) -> pa.Array:
    """The numbers; null where they cannot be counts of rows."""
    return pc.if_else(pc.less(numbers, 0), pa.scalar(None, numbers.type), numbers)


def _flat(values: Sequence[pa.Array]) -> pa.Table:
    """A table of columns without names."""
    return pa.table({str(index): each for index, each in enumerate(values)})


def _leaf(values: pa.StructArray, path: ColumnPath) -> pa.Array:
    for name in path:
        values = field_of(values, name)
    return values


def _tight_bounds(piece: pa.Array) -> pa.Table:
    """False where the statistics say that bounds are wide, else true or null."""
    if pa.types.is_struct(piece.type):
        return _flat([_leaf(piece, _TIGHT_BOUNDS)])
    # To search the text is fastest, since writers leave the key out where it is true.
    wide = pc.match_substring_regex(piece, r'"tightBounds"\s*:\s*false')
    return _flat([pc.invert(wide)])


def _as_in_json(values: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Values that are not JSON, in the type of JSON's."""
    if pa.types.is_timestamp(values.type):
        values = timestamp_texts(values)
    if pa.types.is_string(arrow_type) and not any(
        is_type(values.type) for is_type in (pa.types.is_string, pa.types.is_date, pa.types.is_null)
    ):
        raise pa.ArrowInvalid(f"a bound of the type {values.type}")
    values = values.cast(arrow_type)
    if pa.types.is_floating(arrow_type):
        return pc.if_else(pc.is_finite(values), values, pa.scalar(None, arrow_type))
    return values


def bound_type(data_type: T.DataType) -> pa.DataType | None:
    """The Arrow type of a column's bounds: days for dates, microseconds for timestamps; None without any."""
    if isinstance(data_type, T.DateType):
        return pa.int32()
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return pa.int64()
    return _JSON_TYPES.get(type(data_type))


def _combined(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _outer_bounds(low: pa.Array, high: pa.Array, data_type: T.DataType) -> tuple[pa.Array, pa.Array]:
    """The bounds as numbers that compare as Spark compares the column's values."""
    match data_type:
        case T.DecimalType():
            # deltalake writes the bounds of decimals without a fraction as longs, whatever they are.
            low, high = _unless(low, -_BEYOND_LONG), _unless(high, _BEYOND_LONG)
            doubt = pc.multiply(pc.abs(low), _DECIMAL_DOUBT), pc.multiply(pc.abs(high), _DECIMAL_DOUBT)
            return pc.subtract(low, doubt[0]), pc.add(high, doubt[1])
        case T.DateType():
            return _days(low), _days(high)
        case T.TimestampType():
            timestamp_type: pa.DataType = pa.timestamp("us", "UTC")
        case T.TimestampNTZType():
            timestamp_type = pa.timestamp("us")
        case _:
            return low, high
    return (
        pc.subtract(_microseconds(low, timestamp_type), _MILLISECOND),
        pc.add(_microseconds(high, timestamp_type), _MILLISECOND),
    )


def _unless(values: pa.Array, doubtful: float) -> pa.Array:
    return pc.if_else(pc.equal(values, doubtful), pa.scalar(None, values.type), values)


def _beyond_floats(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bounds of doubles that may be texts of floats: "0.1" stands for 0.10000000149011612."""
    doubts = (pc.add(pc.multiply(pc.abs(each), FLOAT_DOUBT), _SMALLEST_FLOAT) for each in (low, high))
    return pc.subtract(low, next(doubts)), pc.add(high, next(doubts))


def _days(texts: pa.Array) -> pa.Array:
    days = cast_or_null(texts, pa.date32())
    return pc.if_else(pc.less(days, _GREGORIAN), pa.scalar(None, pa.date32()), days).cast(pa.int32())


def _microseconds(texts: pa.Array, timestamp_type: pa.TimestampType) -> pa.Array:
    moments = cast_or_null(texts, timestamp_type)
    doubtful = pc.less(moments.cast(pa.timestamp("us")), pa.scalar(_ONE_OFFSET_PER_ZONE))
    return pc.if_else(doubtful, pa.scalar(None, timestamp_type), moments).cast(pa.int64())
