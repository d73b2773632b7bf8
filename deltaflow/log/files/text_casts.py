"""Casts of texts: to dates and timestamps as Spark's CAST does it (SparkDateTimeUtils), to others as Arrow.

A text that names a zone, or ends with "Z", is an instant; one without a zone is a local time in the zone that
is given. As in Java, a local time that the zone skips is moved forward by the length of the gap, and of a
local time that occurs twice the earlier instant is taken. Years have four to six digits, in dates up to
seven.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaIllegalArgumentException

_DATE: Final = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})(?::(\d{1,2})(?::(\d\d))?)?|(\d\d)(\d\d)(\d\d)?)", re.ASCII
)
MAY_BE_TOO_FINE: Final = r"[eE]\+?-\d\d|\.\d{29}|[eE]\+?0[xX]"
"""In texts of numbers with more than 38 digits after the point, and in some others. When Arrow makes a
decimal of such a number, be it a text, JSON or Python's, it reads beyond a table, and may end the process."""
# Arrow takes these, which are no numbers elsewhere; 0xC0000000 is negative to it.
_ODD_EXPONENT: Final = re.compile(r"[eE](\+-|\+?0[xX])")
_MOST_DECIMALS: Final = 38
# What Spark trims: white space and control characters.
_TRIMMED: Final = "".join(map(chr, range(33))) + "\x7f"
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS: Final = 146_097
_MICROSECONDS_PER_DAY: Final = 86_400_000_000
_LONGEST_OFFSET: Final = timedelta(hours=18)
# Farther from 1970 than this, years may be beyond -32768 and 32767, where Arrow's calendar ends.
_FAR_MICROSECONDS: Final = 28_000 * 365 * _MICROSECONDS_PER_DAY


def cast(texts: pa.StringArray, arrow_type: pa.DataType) -> pa.Array:
    """The texts as Arrow casts them. pyarrow.ArrowInvalid for a text that is not of the type, and for a
    number with more digits after the point than a decimal can have (see MAY_BE_TOO_FINE)."""
    if pa.types.is_decimal(arrow_type):
        suspicious = texts.filter(pc.match_substring_regex(texts, MAY_BE_TOO_FINE)).unique()
        for text in suspicious.to_pylist():
            if is_too_fine(text):
                raise pa.ArrowInvalid(f"{text[:50]!r} is no decimal of up to {_MOST_DECIMALS} digits")
    return texts.cast(arrow_type)


def is_too_fine(number: Decimal | str) -> bool:
    """Whether a number, or a text that Arrow may take for one, has more digits after the point than a decimal
    of Arrow can have, or may have."""
    try:
        exponent = Decimal(number).as_tuple().exponent
    except InvalidOperation:
        return _ODD_EXPONENT.search(str(number)) is not None
    return not isinstance(exponent, int) or -exponent > _MOST_DECIMALS


def dates(texts: pa.StringArray) -> pa.Array:
    """The dates (date32); null for a text that is not a date."""
    return _converted(texts, pa.date32(), _days)


def instants(texts: pa.StringArray, zone: str) -> pa.Array:
    """The instants (timestamp in microseconds, UTC); null for a text that is not a timestamp.

    Texts without a zone are local times of `zone`, a region or an offset as Java's ZoneId names them;
    DeltaIllegalArgumentException if there is such a text and Python does not know the zone.
    """
    return _converted(texts, pa.timestamp("us", "UTC"), functools.partial(_instant, zone=zone))


def instant_texts(moments: pa.TimestampArray) -> pa.StringArray:
    """A text of ISO 8601 in UTC for each instant (timestamp in microseconds, UTC), which `instants` reads."""
    texts = pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")
    microseconds = moments.cast(pa.int64())
    is_far = pc.fill_null(pc.greater(pc.abs(microseconds), _FAR_MICROSECONDS), False)
    far = [_text_of_far(each) for each in microseconds.filter(is_far).to_pylist()]
    return pc.replace_with_mask(texts, is_far, pa.array(far, pa.string()))


def _text_of_far(microseconds: int) -> str:
    cycles, rest = divmod(microseconds, _DAYS_OF_400_YEARS * _MICROSECONDS_PER_DAY)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=rest)
    return f"{moment.year + 400 * cycles}-{moment:%m-%dT%H:%M:%S.%f}Z"


def local_times(texts: pa.StringArray) -> pa.Array:
    """The timestamps without a zone; null for a text that is not one. A zone in a text is ignored."""
    return _converted(texts, pa.timestamp("us"), _local_time)


def cast_or_null(texts: pa.StringArray, arrow_type: pa.DataType) -> pa.Array:
    """The texts as Arrow casts them; null for a text that is not of the type, or is out of Python's range."""
    try:
        return cast(texts, arrow_type)
    except pa.ArrowInvalid:
        distinct = texts.dictionary_encode()
        values = pa.array([_cast_or_none(text, arrow_type) for text in distinct.dictionary], arrow_type)
        return values.take(distinct.indices)


def _cast_or_none(text: pa.StringScalar, arrow_type: pa.DataType) -> Any:
    try:
        return cast(pa.array([text.as_py()], pa.string()), arrow_type)[0].as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None


def _converted(
    texts: pa.StringArray, arrow_type: pa.DataType, parse: Callable[[str], int | None]
) -> pa.Array:
    try:
        return texts.cast(arrow_type)  # Arrow knows some of these forms, and is much faster
    except pa.ArrowInvalid:
        distinct = texts.dictionary_encode()
        numbers = [None if text is None else parse(text) for text in distinct.dictionary.to_pylist()]
        storage = pa.int32() if pa.types.is_date32(arrow_type) else pa.int64()
        return pa.array(numbers, storage).cast(arrow_type).take(distinct.indices)


def _days(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip(_TRIMMED))
    if match is None:
        return None
    days = _days_since_epoch(*match.groups())
    return days if days is not None and -(2**31) <= days < 2**31 else None


def _instant(text: str, zone: str) -> int | None:
    read = _timestamp(text)
    if read is None:
        return None
    year, local, named = read
    of_text = _zone_named(named) if named else _zone_of_session(zone)
    if of_text is None:
        return None
    shifted = timedelta(microseconds=local - _days_to(year) * _MICROSECONDS_PER_DAY)
    offset = of_text.utcoffset(datetime(_similar_year(year), 1, 1) + shifted)
    assert offset is not None
    return _within_range(local - offset // timedelta(microseconds=1))


def _local_time(text: str) -> int | None:
    read = _timestamp(text)
    if read is None or (read[2] and _zone_named(read[2]) is None):
        return None
    return _within_range(read[1])


def _timestamp(text: str) -> tuple[int, int, str] | None:
    """The year, the local time in microseconds since the epoch, and the name of the zone, "" without one."""
    match = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if match is None:
        return None
    year, month, day, *of_day, fraction, zone = match.groups()
    days = _days_since_epoch(year, month, day)
    hour, minute, second = (int(part or 0) for part in of_day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(f"{fraction or '':0<6}"[:6])
    return int(year), days * _MICROSECONDS_PER_DAY + microseconds, (zone or "").strip(_TRIMMED)


def _within_range(microseconds: int) -> int | None:
    return microseconds if -(2**63) <= microseconds < 2**63 else None


def _days_since_epoch(year: str, month: str | None, day: str | None) -> int | None:
    similar = _similar_year(int(year))
    try:
        ordinal = date(similar, int(month or 1), int(day or 1)).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH_DAY + (int(year) - similar) // 400 * _DAYS_OF_400_YEARS


def _days_to(year: int) -> int:
    days = _days_since_epoch(str(year), None, None)
    assert days is not None
    return days


def _similar_year(year: int) -> int:
    """A year in Python's range with the same calendar, which repeats every 400 years, and the same offsets.

    Before the first year of a zone its first offset holds, after the last one its newest rules.
    """
    if 1 < year < 9999:
        return year
    return (400 if year <= 1 else 2400) + year % 400


def _zone_of_session(name: str) -> tzinfo:
    zone = _zone_named(name)
    if zone is None:
        raise DeltaIllegalArgumentException(
            f"A timestamp has no time zone and is to be read in the session's, and {name!r} is no zone that "
            "Python knows. Set spark.sql.session.timeZone to a region such as Europe/Berlin, or to an offset "
            "such as +01:00.",
            error_class="DELTA_ILLEGAL_OPTION",
        )
    return zone


@functools.lru_cache(64)
def _zone_named(name: str) -> tzinfo | None:
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):  # no such file, a directory, no name of a file
            return None
    sign, *parts = match.groups()
    hours, minutes, seconds = (int(part or 0) for part in (parts[:3] if parts[0] else parts[3:]))
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if offset > _LONGEST_OFFSET or minutes > 59 or seconds > 59:
        return None
    return timezone(-offset if sign == "-" else offset)
