"""How values in Debezium's JSON are read: what Spark's JSON reader takes them for, and what they mean.

The JSON is that of Kafka Connect: bytes are base64, a decimal is the bytes of its unscaled value, a date is a
number of days. What a value is, the message's schema part says, or else the column that it goes to.
Source: org.apache.kafka.connect.json.JsonConverter; io.debezium.time, io.debezium.data.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException
from deltaflow.spark.expressions.epoch import timestamp_ntz
from deltaflow.streaming.cdc.records import Failure

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_DIGITS = 38
_DIGITS_OF_LONG = 18


@dataclass(frozen=True)
class Wire:
    """A value in JSON."""

    type: T.DataType
    """What Spark's JSON reader takes it for."""
    meaning: Callable[[Column, Failure], Column] | None = None
    """What the value that was read stands for; None: itself."""

    def value(self, read: Column, failure: Failure) -> Column:
        """The value that was read, as a value of a column."""
        return read if self.meaning is None else self.meaning(read, failure)


def row_type(columns: Mapping[str, Wire]) -> T.StructType:
    """What Spark's JSON reader takes a row of these columns for."""
    return T.StructType([T.StructField(name, wire.type) for name, wire in columns.items()])


def unavailable(read: Column, wire: Wire, placeholder: str) -> Column | None:
    """Whether a value is Debezium's placeholder for one that the database did not tell; None if it cannot be.

    Source: io.debezium.connector.postgresql.UnchangedToastedPlaceholder.
    """
    texts = _placeholder_texts(placeholder)
    match wire.type:
        case T.StringType():
            return F.coalesce(read.isin(*texts), F.lit(False))
        case T.ArrayType(elementType=T.StringType()):
            return F.coalesce((F.size(read) == 1) & F.get(read, 0).isin(*texts), F.lit(False))
        case T.ArrayType(elementType=T.IntegerType() | T.LongType() as element):
            numbers = [F.lit(byte).cast(element) for byte in placeholder.encode()]
            return read.eqNullSafe(F.array(*numbers))
        case T.MapType(keyType=T.StringType()):
            return F.coalesce(F.map_keys(read) == F.array(F.lit(placeholder)), F.lit(False))
        case _:
            return None


@functools.cache
def _placeholder_texts(placeholder: str) -> tuple[str, ...]:
    """The placeholder in texts, in bytes by the modes of `binary.handling.mode`, and in uuids."""
    content = placeholder.encode()
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    encoded = base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode()
    return (placeholder, *dict.fromkeys(encoded), content.hex(), str(uuid.UUID(bytes=digest, version=3)))


# ------------------------------------------------------------------------------- by the message's schema part


def wire_of_schema(schema: Mapping[str, Any], path: str) -> Wire:
    """The values of a schema of Kafka Connect; `path` names the column in errors.

    Raises:
        DeltaAnalysisException: Spark has no type for these values.
    """
    known = _LOGICAL.get(schema.get("name") or "")
    if known is not None:
        return known(schema, path)
    match schema["type"]:
        case "struct":
            fields = {f["field"]: wire_of_schema(f, f"{path}.{f['field']}") for f in schema["fields"]}
            return _struct(fields)
        case "array":
            return _array(wire_of_schema(schema["items"], f"{path}.element"))
        case "map" if schema["keys"]["type"] == "string":
            return _map(wire_of_schema(schema["values"], f"{path}.value"))
        case str(name) if name in _PLAIN:
            return Wire(_PLAIN[name])
        case "bytes":
            return _BYTES
        case _:
            raise _no_type(path, f"{schema['type']} {schema.get('name') or ''}".strip())


_PLAIN: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int8": T.ByteType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float": T.FloatType(),
    "float32": T.FloatType(),
    "double": T.DoubleType(),
    "float64": T.DoubleType(),
    "string": T.StringType(),
}


def _no_type(path: str, found: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(error_class="DELTA_CHANGE_COLUMN_UNREADABLE", column_name=path, found=found)


# --------------------------------------------------------------------------------------- by the wanted column


@dataclass(frozen=True)
class Numbers:
    """What numbers stand for in messages without a schema part."""

    ticks_per_second: int
    """Of a column of timestamps."""
    decimals_are_bytes: bool
    """Whether a decimal is the bytes of its unscaled value; else it is a number or its text."""


def wire_of_type(wanted: T.DataType, numbers: Numbers, path: str) -> Wire:
    """The values that a column of this type gets from messages without a schema part.

    Raises:
        DeltaAnalysisException: no value of Debezium has this type.
    """
    match wanted:
        case T.StructType():
            fields = {f.name: wire_of_type(f.dataType, numbers, f"{path}.{f.name}") for f in wanted.fields}
            return _struct(fields)
        case T.ArrayType():
            return _array(wire_of_type(wanted.elementType, numbers, f"{path}.element"))
        case T.MapType(keyType=T.StringType()):
            return _map(wire_of_type(wanted.valueType, numbers, f"{path}.value"))
        case T.DateType():
            return Wire(
                T.StringType(),
                _number_or_text(lambda days: F.date_from_unix_date(days.try_cast("int")), wanted),
            )
        case T.TimestampType():
            return Wire(
                T.StringType(),
                _number_or_text(lambda n: F.timestamp_micros(_micros(n, numbers.ticks_per_second)), wanted),
            )
        case T.TimestampNTZType():
            return Wire(
                T.StringType(),
                _number_or_text(lambda n: timestamp_ntz(_micros(n, numbers.ticks_per_second)), wanted),
            )
        case T.DecimalType() if numbers.decimals_are_bytes:
            return Wire(T.VariantType(), _decimal_of_json(wanted))
        case T.DecimalType():
            # As a text, Spark's JSON reader takes the number for that of the nearest double.
            of_text = _cast(wanted)
            return Wire(T.VariantType(), lambda read, failure: of_text(read.cast("string"), failure))
        case T.BinaryType():
            return _BYTES
        case T.ByteType():
            # As bytes it takes numbers up to 255.
            return Wire(T.ShortType(), _cast(wanted))
        case _ if any(isinstance(wanted, type(plain)) for plain in _PLAIN.values()):
            return Wire(wanted)
        case _:
            raise _no_type(path, wanted.simpleString())


def as_type(wire: Wire, wanted: T.DataType) -> Wire:
    """The same values, for a column of another type: texts are read as it, all others stay as they are.

    A number of a column without a precision is an exact text, which a column of decimals can take.
    """
    if not isinstance(wanted, T.DecimalType) or wire.type != _SCALE_AND_VALUE:
        return wire
    cast = _cast(wanted)
    return Wire(wire.type, lambda read, failure: cast(wire.value(read, failure), failure))


# --------------------------------------------------------------------------------------------- what they mean


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that it uses more than once: otherwise the plan would have the value as often."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _checked(convert: Callable[[Column], Column], what: str) -> Callable[[Column, Failure], Column]:
    """`convert`, whose null for a value that is none is an error."""

    def meaning(read: Column, failure: Failure) -> Column:
        wrong = failure(f"a value is no {what}")
        return _let(convert(read), lambda v: F.when(v.isNull() & read.isNotNull(), wrong).otherwise(v))

    return meaning


def _plain(convert: Callable[[Column], Column]) -> Callable[[Column, Failure], Column]:
    """`convert`, which every value can go through."""
    return lambda read, failure: convert(read)


def _cast(wanted: T.DataType) -> Callable[[Column, Failure], Column]:
    return _checked(lambda read: read.try_cast(wanted), wanted.simpleString())


def _number_or_text(
    of_number: Callable[[Column], Column], wanted: T.DataType
) -> Callable[[Column, Failure], Column]:
    """What Spark's JSON reader took for a text was a number, or is the text of a value."""

    def convert(read: Column) -> Column:
        number = read.try_cast("bigint")
        return F.when(number.isNotNull(), of_number(number)).otherwise(read.try_cast(wanted))

    return _checked(convert, wanted.simpleString())


def _micros(ticks: Column, ticks_per_second: int) -> Column:
    """Microseconds; a fraction is rounded down. Null if they are too many for Spark."""
    if ticks_per_second <= 1_000_000:
        return F.try_multiply(ticks, F.lit(1_000_000 // ticks_per_second))
    divisor = F.lit(ticks_per_second // 1_000_000)
    return F.call_function("div", ticks - F.pmod(ticks, divisor), divisor)


def _time_of_day(micros: Column) -> Column:
    """HH:mm:ss.SSSSSS, up to 24:00:00.000000; Delta has no type for a time of day.

    A TIME of MySQL is a duration, which may be negative, or of more than a day.
    """

    # By date_format, spark.sql.legacy.timeParserPolicy=LEGACY would write milliseconds for microseconds.
    def filled(number: Column, digits: int) -> Column:
        return F.lpad(number.cast("string"), F.lit(digits), F.lit("0"))

    def of_size(size: Column) -> Column:
        hours, minutes, seconds = (
            F.call_function("div", size, F.lit(unit)) for unit in (3_600_000_000, 60_000_000, 1_000_000)
        )
        return F.concat(
            F.when(hours < 10, filled(hours, 2)).otherwise(hours.cast("string")),
            F.lit(":"),
            filled(F.pmod(minutes, F.lit(60)), 2),
            F.lit(":"),
            filled(F.pmod(seconds, F.lit(60)), 2),
            F.lit("."),
            filled(F.pmod(size, F.lit(1_000_000)), 6),
        )

    sign = F.when(micros < 0, "-").otherwise("")
    return F.concat(sign, _let(F.abs(micros), of_size))


_COMPLEMENTS = ("0123456789ABCDEF", "FEDCBA9876543210")


def _unscaled(content: Column, precision: int = MAX_DIGITS) -> Column:
    """The text of the integer that bytes are, the highest byte first; null if it has too many digits.

    Bytes of a negative number are those of its two's complement. The result is no decimal, because Spark
    rounds a decimal of more than 34 digits when it changes its sign.
    """

    def of_digits(digits: Column) -> Column:
        is_negative = F.substring(digits, 1, 1) >= "8"
        fill = F.when(is_negative, "F").otherwise("0")
        short = F.when(F.length(digits) <= 16, F.conv(F.lpad(digits, F.lit(16), fill), 16, -10))
        if precision <= _DIGITS_OF_LONG:
            return short
        return F.coalesce(
            short, _let(F.lpad(digits, F.lit(32), fill), lambda all_: of_long(all_, is_negative))
        )

    def of_long(digits: Column, is_negative: Column) -> Column:
        # The magnitude of a negative number is one more than that of its bitwise complement.
        shown = F.when(is_negative, F.translate(digits, *_COMPLEMENTS)).otherwise(digits)
        high, low = (F.conv(F.substring(shown, start, 16), 16, 10).cast("decimal(20,0)") for start in (1, 17))
        magnitude = F.try_add(F.try_multiply(high, F.lit(str(2**64)).cast("decimal(20,0)")), low)
        one = F.when(is_negative, 1).otherwise(0).cast("decimal(1,0)")
        text = F.try_add(magnitude, one).cast("decimal(38,0)").cast("string")
        return F.when(F.length(digits) == 32, F.concat(F.when(is_negative, "-").otherwise(""), text))

    return _let(F.hex(content), of_digits)


def _of_base64(read: Column) -> Column:
    return F.try_to_binary(read, F.lit("base64"))


def _plain_text(unscaled: Column, scale: Column) -> Column:
    """The text of an integer, given as a text, over ten to the power of `scale`, without an exponent."""

    def of_digits(digits: Column) -> Column:
        point = F.length(digits) - scale
        fraction = F.concat(F.substr(digits, F.lit(1), point), F.lit("."), F.substr(digits, point + 1))
        whole = F.when(digits == "0", digits).otherwise(F.concat(digits, F.repeat(F.lit("0"), -scale)))
        return F.when(scale > 0, fraction).otherwise(whole)

    def of_integer(integer: Column) -> Column:
        digits = F.ltrim(integer, F.lit("-"))
        filled = F.lpad(digits, F.greatest(F.length(digits), scale + 1), F.lit("0"))
        return F.concat(F.when(integer.startswith("-"), "-").otherwise(""), _let(filled, of_digits))

    return _let(unscaled, of_integer)


def _decimal(schema: Mapping[str, Any], path: str) -> Wire:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", MAX_DIGITS))
    if max(precision, scale) > MAX_DIGITS or scale < 0:
        found = (
            f"a decimal of {precision} digits with scale {scale}; decimal.handling.mode=string sends texts"
        )
        raise _no_type(path, found)
    # As bytes Spark's JSON reader takes texts alone. A number (decimal.format=NUMERIC) can look like base64.
    return Wire(T.BinaryType(), _decimal_of_bytes(T.DecimalType(precision, scale), lambda read: read))


def _decimal_of_bytes(
    wanted: T.DecimalType, content: Callable[[Column], Column] = _of_base64
) -> Callable[[Column, Failure], Column]:
    def convert(read: Column) -> Column:
        unscaled = _unscaled(content(read), wanted.precision)
        return F.concat(unscaled, F.lit(f"E-{wanted.scale}")).try_cast(wanted)

    return _checked(convert, wanted.simpleString())


def _variable_scale_text(read: Column) -> Column:
    return _plain_text(_unscaled(_of_base64(read.getField("value"))), read.getField("scale"))


_SCALE_AND_VALUE = T.StructType(
    [T.StructField("scale", T.IntegerType()), T.StructField("value", T.StringType())]
)
_VARIABLE_SCALE = Wire(
    _SCALE_AND_VALUE,
    _checked(
        _variable_scale_text,
        f"number of at most {MAX_DIGITS} digits; decimal.handling.mode=string sends texts",
    ),
)
_BYTES = Wire(T.StringType(), _checked(_of_base64, "base64"))


def _decimal_of_json(wanted: T.DecimalType) -> Callable[[Column, Failure], Column]:
    """Of messages without a schema part: base64 bytes, or an object of a number with its own scale.

    A number (decimal.format=NUMERIC) can look like base64, so the value's type in JSON decides.
    """
    of_bytes, of_text = _decimal_of_bytes(wanted), _cast(wanted)

    def meaning(read: Column, failure: Failure) -> Column:
        kind, text = F.schema_of_variant(read), read.cast("string")
        of_object = of_text(_VARIABLE_SCALE.value(F.from_json(text, _SCALE_AND_VALUE), failure), failure)
        value = F.when(kind == "STRING", of_bytes(text, failure)).when(kind.startswith("OBJECT"), of_object)
        return value.when(kind != "VOID", failure(f"a value is no {wanted.simpleString()}"))

    return meaning


def _struct(fields: Mapping[str, Wire]) -> Wire:
    if all(wire.meaning is None for wire in fields.values()):
        return Wire(row_type(fields))

    def meaning(read: Column, failure: Failure) -> Column:
        values = [wire.value(read.getField(name), failure).alias(name) for name, wire in fields.items()]
        return F.when(read.isNotNull(), F.struct(*values))

    return Wire(row_type(fields), meaning)


def _array(element: Wire) -> Wire:
    wire = T.ArrayType(element.type)
    if element.meaning is None:
        return Wire(wire)
    return Wire(wire, lambda read, failure: F.transform(read, lambda value: element.value(value, failure)))


def _map(value: Wire) -> Wire:
    wire = T.MapType(T.StringType(), value.type)
    if value.meaning is None:
        return Wire(wire)
    return Wire(wire, lambda read, failure: F.transform_values(read, lambda _, v: value.value(v, failure)))


def _iso_date(read: Column) -> Column:
    """The text has the letter of UTC behind the date."""
    return F.rtrim(read, F.lit("Z")).try_cast("date")


def _fixed(wire: Wire) -> Callable[[Mapping[str, Any], str], Wire]:
    return lambda schema, path: wire


def _timestamp(ticks_per_second: int) -> Wire:
    return Wire(
        T.LongType(), _checked(lambda ticks: timestamp_ntz(_micros(ticks, ticks_per_second)), "timestamp")
    )


def _time(read: T.DataType, ticks_per_second: int) -> Wire:
    return Wire(read, _plain(lambda ticks: _time_of_day(_micros(ticks.cast("bigint"), ticks_per_second))))


_DATE = Wire(T.IntegerType(), _plain(F.date_from_unix_date))
_LOGICAL: Mapping[str, Callable[[Mapping[str, Any], str], Wire]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _fixed(_VARIABLE_SCALE),
    "org.apache.kafka.connect.data.Date": _fixed(_DATE),
    "io.debezium.time.Date": _fixed(_DATE),
    "io.debezium.time.IsoDate": _fixed(Wire(T.StringType(), _checked(_iso_date, "date"))),
    "org.apache.kafka.connect.data.Timestamp": _fixed(_timestamp(1_000)),
    "io.debezium.time.Timestamp": _fixed(_timestamp(1_000)),
    "io.debezium.time.MicroTimestamp": _fixed(_timestamp(1_000_000)),
    "io.debezium.time.NanoTimestamp": _fixed(_timestamp(1_000_000_000)),
    "io.debezium.time.IsoTimestamp": _fixed(Wire(T.StringType(), _cast(T.TimestampNTZType()))),
    "io.debezium.time.ZonedTimestamp": _fixed(Wire(T.StringType(), _cast(T.TimestampType()))),
    "org.apache.kafka.connect.data.Time": _fixed(_time(T.IntegerType(), 1_000)),
    "io.debezium.time.Time": _fixed(_time(T.IntegerType(), 1_000)),
    "io.debezium.time.MicroTime": _fixed(_time(T.LongType(), 1_000_000)),
    "io.debezium.time.NanoTime": _fixed(_time(T.LongType(), 1_000_000_000)),
}
"""The logical types whose values are not what they look like in JSON. All others are read by their plain
type: uuid, json, xml, enum, ltree, interval and zoned time as texts, durations and years as numbers, bits as
bytes."""
