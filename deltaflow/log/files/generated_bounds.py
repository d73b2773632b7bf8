"""Bounds of columns from which partition columns are generated: what a partition says of its rows.

Where a table is partitioned by `day DATE GENERATED ALWAYS AS (CAST(at AS DATE))`, the rows of a partition
have values of `at` on that day. So a condition on `at` leaves out partitions, also of files without
statistics. The expressions are those that delta-spark derives filters from (OptimizablePartitionExpression).

Some depend on the time zone of the session that wrote the row, which nobody knows any more: bounds of
timestamps leave room for every zone. Text of date_format is taken to be of a year from 1 on, as Spark says
that its dates and timestamps are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log.files.partition_values import typed_values_or_null
from deltaflow.log.files.text_casts import dates
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.data_types import fields_at
from deltaflow.log.protocol.indexed_columns import ColumnPath
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION

Bounds = tuple[pa.Array, pa.Array]
"""Of each file: no value of the column is below the first, or above the second. Null where unknown."""
Columns = Callable[[str], pa.Array]
"""The values of a partition column, typed, by its name; one for each file."""

_HOUR: Final = 3_600_000_000
_DAY: Final = 24 * _HOUR
_KNOWN_DAYS: Final = (-141_000, 10_000_000)
"""Before 1584 files may have days of the Julian calendar; after these days microseconds overflow."""
_ANY_ZONE: Final = 18 * _HOUR
"""The largest offset of a time zone, in either direction (java.time.ZoneOffset)."""
_NAME: Final = r"(?P<name>(?:`(?:[^`]|``)+`|\w+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\w+))*)"
_AS_DATE: Final = rf"(?:{_NAME}|CAST\s*\(\s*{_NAME.replace('<name>', '<cast>')}\s+AS\s+DATE\s*\))"
_PATTERNS: Final = {
    kind: re.compile(rf"\s*{pattern}\s*", re.IGNORECASE)
    for kind, pattern in {
        "same": _NAME,
        "date": rf"CAST\s*\(\s*{_NAME}\s+AS\s+DATE\s*\)",
        "year": rf"YEAR\s*\(\s*{_AS_DATE}\s*\)",
        "month": rf"MONTH\s*\(\s*{_AS_DATE}\s*\)",
        "day": rf"(?:DAY|DAYOFMONTH)\s*\(\s*{_AS_DATE}\s*\)",
        "hour": rf"HOUR\s*\(\s*{_NAME}\s*\)",
        "format": rf"DATE_FORMAT\s*\(\s*{_NAME}\s*,\s*(?P<quote>['\"])(?P<argument>[^'\"]*)(?P=quote)\s*\)",
        "trunc time": rf"DATE_TRUNC\s*\(\s*(?P<quote>['\"])(?P<argument>\w+)(?P=quote)\s*,\s*{_NAME}\s*\)",
        "trunc date": rf"TRUNC\s*\(\s*{_NAME}\s*,\s*(?P<quote>['\"])(?P<argument>\w+)(?P=quote)\s*\)",
        "prefix": rf"SUBSTR(?:ING)?\s*\(\s*{_NAME}\s*,\s*[01]\s*,\s*(?P<argument>\d+)\s*\)",
    }.items()
}
# At most so many days are in a unit, and one more where clocks are set.
_LONGEST_DAYS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366),
    "QUARTER": 92,
    **dict.fromkeys(("MONTH", "MM", "MON"), 31),
    "WEEK": 7,
    **dict.fromkeys(("DAY", "DD", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"), 1),
}
_SAME: Final = (
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.StringType,
    T.DateType,
    T.TimestampNTZType,
)
_TIMES: Final = (T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True)
class _Generated:
    """A partition column, and the form of its expression."""

    column: T.StructField
    kind: str
    argument: str


def generated_bounds(
    files: pa.Table, schema: T.StructType, partition_columns: Sequence[str]
) -> dict[ColumnPath, Callable[[], Bounds]]:
    """What makes the bounds of each column from which a partition column is generated.

    `files` has the column partition_values of a snapshot's `files`. The protocol of the table has to have
    generatedColumns: elsewhere nobody checks what rows give.
    """
    of_columns: dict[ColumnPath, list[_Generated]] = {}
    bases: dict[ColumnPath, T.DataType] = {}
    for name in partition_columns:
        sql = schema[name].metadata.get(GENERATION_EXPRESSION)
        for kind, pattern in _PATTERNS.items():
            found = pattern.fullmatch(sql) if isinstance(sql, str) else None
            if found is not None:
                parts = found.groupdict()
                fields = _fields(schema, parts.get("name") or parts["cast"])
                if fields is not None:
                    path = tuple(field.name for field in fields)
                    bases[path] = fields[-1].dataType
                    generated = _Generated(schema[name], kind, parts.get("argument") or "")
                    of_columns.setdefault(path, []).append(generated)
                break

    def value(name: str) -> pa.Array:
        field = schema[name]
        texts = pc.map_lookup(_one_chunk(files["partition_values"]), physical_name(field), "first")
        return typed_values_or_null(texts, field.dataType)

    return {
        path: lambda path=path, made=made: _bounds(bases[path], made, value)  # type: ignore[misc]
        for path, made in of_columns.items()
        if _can_bound(bases[path], made)
    }


def tightest(bounds: Sequence[Bounds]) -> Bounds:
    """Of several bounds of one column those that are known, and leave least room."""
    lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
    return pc.max_element_wise(*lows), pc.min_element_wise(*highs)


def _fields(schema: T.StructType, name: str) -> list[T.StructField] | None:
    """The fields through which what an expression names is reached; None if the table has it not."""
    parts = re.findall(r"`((?:[^`]|``)+)`|(\w+)", name)
    return fields_at(schema, (quoted.replace("``", "`") or plain for quoted, plain in parts))


def _can_bound(base: T.DataType, made: Sequence[_Generated]) -> bool:
    return bool(_makers(base, made))


def _bounds(base: T.DataType, made: Sequence[_Generated], value: Columns) -> Bounds:
    found = [make(value) for make in _makers(base, made)]
    return tightest(found) if len(found) > 1 else found[0]


def _makers(base: T.DataType, made: Sequence[_Generated]) -> list[Callable[[Columns], Bounds]]:
    """What makes bounds of a column of this type; year, month, day and hour only together."""
    by_kind = {one.kind: one.column for one in made}
    makers: list[Callable[[Columns], Bounds]] = []
    is_time = isinstance(base, (T.DateType, *_TIMES))
    for one in made:
        name, of = one.column.name, one.column.dataType
        if one.kind == "same" and type(of) is type(base) and isinstance(base, _SAME) and of == base:
            makers.append(lambda value, name=name: _same(value(name)))  # type: ignore[misc]
        elif one.kind == "date" and is_time and isinstance(of, T.DateType):
            makers.append(lambda value, name=name: _days(base, _numbers(value(name)), 1))  # type: ignore[misc]
        elif one.kind == "format" and is_time and isinstance(of, T.StringType):
            length = {"yyyy-MM": 31, "yyyy-MM-dd": 1, "yyyy-MM-dd-HH": 1}.get(one.argument)
            if length is not None and not (isinstance(base, T.DateType) and length == 1):
                makers.append(_of_format(base, name, one.argument, length))
        elif one.kind == "trunc time" and is_time and isinstance(of, T.TimestampType):
            length = _LONGEST_DAYS.get(one.argument.upper())
            if length is not None:
                makers.append(_of_trunc_time(base, name, length))
        elif one.kind == "trunc date" and isinstance(base, T.DateType) and isinstance(of, T.DateType):
            length = _LONGEST_DAYS.get(one.argument.upper())
            if length is not None:
                makers.append(
                    lambda value, name=name, length=length: _days(  # type: ignore[misc]
                        base, _numbers(value(name)), length
                    )
                )
        elif one.kind == "prefix" and base == T.StringType() and of == T.StringType():
            makers.append(lambda value, name=name: _of_prefix(value(name)))  # type: ignore[misc]
    if is_time and "year" in by_kind:
        makers.append(_of_parts(base, by_kind))
    return makers


def _same(values: pa.Array) -> Bounds:
    if pa.types.is_string(values.type):
        values = _exact(values)
    numbers = _numbers(values) if pa.types.is_temporal(values.type) else values
    if pa.types.is_integer(numbers.type) and not pa.types.is_temporal(values.type):
        numbers = numbers.cast(pa.int64())
    return numbers, numbers


def _numbers(values: pa.Array) -> pa.Array:
    """Dates as days, timestamps as microseconds."""
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())


def _days(base: T.DataType, first: pa.Array, length: int) -> Bounds:
    """The bounds of times in `length` days from a day on."""
    is_known = pc.and_(pc.greater(first, _KNOWN_DAYS[0]), pc.less(first, _KNOWN_DAYS[1]))
    low = pc.if_else(is_known, first, None).cast(pa.int64())
    end = pc.add(low, length)
    if isinstance(base, T.DateType):
        return low.cast(pa.int32()), pc.subtract(end, 1).cast(pa.int32())
    room = _ANY_ZONE if isinstance(base, T.TimestampType) else 0
    return pc.subtract(pc.multiply(low, _DAY), room), pc.add(pc.multiply(end, _DAY), room)


def _of_format(base: T.DataType, name: str, form: str, length: int) -> Callable[[Columns], Bounds]:
    def bounds(value: Columns) -> Bounds:
        texts = value(name)
        texts = pc.if_else(pc.match_substring_regex(texts, rf"^[0-9-]{{{len(form)}}}$"), texts, None)
        texts = pc.utf8_slice_codeunits(texts, 0, 10)
        if form == "yyyy-MM":
            texts = pc.binary_join_element_wise(texts, "01", "-")
        low, high = _days(base, _numbers(dates(texts)), length)
        # To format a time without a zone moves it forward where the session's zone skips it: a day at most.
        return (pc.subtract(low, _DAY) if isinstance(base, T.TimestampNTZType) else low), high

    return bounds


def _of_trunc_time(base: T.DataType, name: str, length: int) -> Callable[[Columns], Bounds]:
    """The partition value is an instant, or a local time of a zone that is not told."""

    def bounds(value: Columns) -> Bounds:
        start = _numbers(value(name))
        is_known = pc.and_(pc.greater(start, _KNOWN_DAYS[0] * _DAY), pc.less(start, _KNOWN_DAYS[1] * _DAY))
        start = pc.if_else(is_known, start, None)
        low, high = pc.subtract(start, 2 * _ANY_ZONE), pc.add(start, (length + 1) * _DAY + 2 * _ANY_ZONE)
        if isinstance(base, T.DateType):
            days = [pc.floor(pc.divide(bound.cast(pa.float64()), _DAY)) for bound in (low, high)]
            return pc.subtract(days[0], 1).cast(pa.int32()), pc.add(days[1], 1).cast(pa.int32())
        return low, high

    return bounds


def _of_prefix(prefixes: pa.Array) -> Bounds:
    """A text that begins with a prefix comes before the text in which its last character is the next one."""
    prefixes = _exact(prefixes)
    distinct = pc.dictionary_encode(prefixes)
    after = pa.array([_after(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return prefixes, after.take(distinct.indices)


def _exact(texts: pa.Array) -> pa.Array:
    """Null for texts that tell no bound: the log has U+FFFD for what is no UTF-8 in a row's text."""
    return pc.if_else(pc.match_substring(texts, "\N{REPLACEMENT CHARACTER}"), None, texts)


def _after(text: str | None) -> str | None:
    for i in range(len(text or ""), 0, -1):
        assert text is not None
        code = ord(text[i - 1]) + 1
        if code <= 0x10FFFF:
            return text[: i - 1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
    return None


def _of_parts(base: T.DataType, columns: Mapping[str, T.StructField]) -> Callable[[Columns], Bounds]:
    """Of the year, with the month if there is one, and the day of the month then."""

    def bounds(value: Columns) -> Bounds:
        parts, length = [columns["year"].name], 366
        if "month" in columns:
            parts, length = [*parts, columns["month"].name], 31
            if "day" in columns:
                parts, length = [*parts, columns["day"].name], 1
        texts = [
            pc.utf8_lpad(value(part).cast(pa.string()), 4 if i == 0 else 2, "0")
            for i, part in enumerate(parts)
        ]
        texts += ["01"] * (3 - len(parts))
        joined: Any = pc.binary_join_element_wise(*texts, "-")
        return _days(base, _numbers(dates(joined)), length)

    return bounds


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
