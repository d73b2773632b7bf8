"""A file is left out by the values of its generated partition columns only if none of its rows can match."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.file_rows import FILES_SCHEMA
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.generated_bounds import generated_bounds

TS, NTZ, DATE, TEXT, LONG = (
    T.TimestampType(),
    T.TimestampNTZType(),
    T.DateType(),
    T.StringType(),
    T.LongType(),
)
INT = T.IntegerType()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [timezone(timedelta(hours=hours)) for hours in (-18, -12, -5, 0, 5.5, 14, 18)]
MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(9990, 1, 1))


def kept(schema: T.StructType, partitions: list[str], values: dict[str, str | None], predicate: Any) -> bool:
    """Whether a file without statistics and with these partition values may match."""
    files = pa.table(
        {
            "partition_values": pa.array([list(values.items())], FILES_SCHEMA.field("partition_values").type),
            "stats": pa.array([None], pa.string()),
            "deletion_vector": pa.nulls(1, FILES_SCHEMA.field("deletion_vector").type),
        }
    )
    bounds = generated_bounds(files, schema, partitions)
    [found] = may_match(predicate, FileStatistics(files, schema, bounds)).to_pylist()
    return bool(found)


def table(base: T.DataType, **generated: tuple[T.DataType, str]) -> T.StructType:
    columns = [
        T.StructField(name, data_type, True, {"delta.generationExpression": sql})
        for name, (data_type, sql) in generated.items()
    ]
    return T.StructType([T.StructField("c", base), *columns])


def compared(op: str, base: T.DataType, value: Any) -> dict[str, Any]:
    return {"op": op, "column": ["c"], "type": base.simpleString(), "value": value}


def micros(moment: datetime) -> int:
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


FORMS: dict[str, Any] = {
    "CAST(c AS DATE)": lambda t: {"p": str(t.date())},
    "date_format( `C` , 'yyyy-MM')": lambda t: {"p": f"{t:%Y-%m}"},
    'DATE_FORMAT(c, "yyyy-MM-dd")': lambda t: {"p": f"{t:%Y-%m-%d}"},
    "date_format(c, 'yyyy-MM-dd-HH')": lambda t: {"p": f"{t:%Y-%m-%d-%H}"},
    "year(c)": lambda t: {"p": str(t.year)},
    "YEAR( cast(c as date) )": lambda t: {"p": str(t.year)},
    "DATE_TRUNC('MONTH', c)": lambda t: {"p": f"{t:%Y-%m}-01 00:00:00"},
    "date_trunc('hour', c)": lambda t: {"p": f"{t:%Y-%m-%d %H}:00:00"},
}
TYPES = {
    "CAST": DATE,
    "date_f": TEXT,
    "DATE_F": TEXT,
    "year(c": INT,
    "YEAR( ": INT,
    "DATE_T": TS,
    "date_t": TS,
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12, deadline=None)
@given(moment=MOMENTS, other=MOMENTS, days=st.integers(-3, 3), zone=st.sampled_from(ZONES))
@pytest.mark.sampled(2)
def test_times_of_every_zone(form: str, moment: datetime, other: datetime, days: int, zone: timezone) -> None:
    """The row's value is in its file's bounds, whatever zone its writer had; far away ones are not."""
    of = next(data_type for start, data_type in TYPES.items() if form.startswith(start))
    instant = moment.replace(tzinfo=UTC)
    for base, local in ((TS, instant.astimezone(zone).replace(tzinfo=None)), (NTZ, moment)):
        schema = table(base, p=(of, form))
        values = FORMS[form](local)
        exact = micros(moment)
        for op, value in (
            ("=", exact),
            ("<=>", exact),
            ("<=", exact),
            (">=", exact),
            ("<", exact + 1),
            (">", exact - 1),
        ):
            assert kept(schema, ["p"], values, compared(op, base, value)), op
        near = exact + days * 86_400_000_000
        assert kept(schema, ["p"], values, compared(">=" if near <= exact else "<=", base, near))
        far = timedelta(days=370)
        assert not kept(schema, ["p"], values, compared(">", base, micros(moment + far)))
        assert not kept(schema, ["p"], values, compared("<", base, micros(moment - far)))
        if abs(moment - other) > far:
            assert not kept(schema, ["p"], values, compared("=", base, micros(other)))


@settings(max_examples=25, deadline=None)
@given(
    day=st.dates(date(1600, 1, 1), date(9990, 1, 1)),
    names=st.sampled_from(["y", "ym", "ymd", "ymdh", "yd", "md"]),
)
def test_dates_in_parts(day: date, names: str) -> None:
    parts = {
        "y": (INT, "YEAR(c)", day.year),
        "m": (INT, "MONTH(CAST(c AS DATE))", day.month),
        "d": (INT, "DAY(c)", day.day),
        "h": (INT, "HOUR(c)", 0),
    }
    schema = table(DATE, **{name: parts[name][:2] for name in names})
    values: dict[str, str | None] = {name: str(parts[name][2]) for name in names}
    number = day.toordinal() - date(1970, 1, 1).toordinal()
    for op in ("=", "<=", ">="):
        assert kept(schema, [*names], values, compared(op, DATE, number))
    room = {"y": 366, "ym": 31, "ymd": 1, "ymdh": 1, "yd": 366, "md": None}[names]
    if room is not None:
        assert not kept(schema, [*names], values, compared("=", DATE, number + room))
        assert not kept(schema, [*names], values, compared("<", DATE, number - room))


SKIPPED = micros(datetime(2011, 12, 30, 10))
TEXTS = st.text(st.characters(min_codepoint=1, exclude_categories=("Cs",)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(text=TEXTS, other=TEXTS, length=st.integers(1, 4), start=st.sampled_from([0, 1]))
def test_beginnings_of_texts(text: str, other: str, length: int, start: int) -> None:
    schema = table(TEXT, p=(TEXT, f"SUBSTRING(c, {start}, {length})"))
    values: dict[str, str | None] = {"p": text[:length] or None}
    ordered = sorted((text, other))
    assert kept(schema, ["p"], values, compared("=", TEXT, text))
    assert kept(schema, ["p"], values, compared(">=" if ordered[0] == other else "<=", TEXT, other))
    assert kept(schema, ["p"], values, {"op": "startsWith", "column": ["c"], "value": text[:2]})
    is_same = other[: len(text[:length])] == text[:length]
    if values["p"] and not is_same and "\N{REPLACEMENT CHARACTER}" not in values["p"]:
        assert not kept(schema, ["p"], values, compared("=", TEXT, other))


@pytest.mark.parametrize(
    ("base", "of", "sql", "value", "predicate", "is_kept"),
    [
        (LONG, LONG, "c", "7", compared("=", LONG, 7), True),
        (LONG, LONG, "`c`", "7", compared(">", LONG, 7), False),
        (LONG, LONG, "c + 0", "7", compared(">", LONG, 7), True),
        (LONG, INT, "c", "7", compared(">", LONG, 7), True),
        (TEXT, TEXT, "c", None, compared("=", TEXT, "a"), True),
        (TEXT, TEXT, "SUBSTRING(c, 2, 3)", "b", compared("=", TEXT, "a"), True),
        # The row's text may have had bytes that are no UTF-8.
        (
            TEXT,
            TEXT,
            "SUBSTRING(c, 1, 1)",
            "\N{REPLACEMENT CHARACTER}",
            compared(">", TEXT, "\U0001f600"),
            True,
        ),
        (TEXT, TEXT, "c", "a\N{REPLACEMENT CHARACTER}", compared("<", TEXT, "a\ue000"), True),
        (DATE, DATE, "TRUNC(c, 'MONTH')", "2024-02-01", compared("=", DATE, 19782), True),
        (DATE, DATE, "TRUNC(c, 'MONTH')", "2024-02-01", compared("=", DATE, 19700), False),
        (TEXT, DATE, "CAST(c AS DATE)", "2024-02-01", compared("=", TEXT, "x"), True),
        (TS, INT, "MONTH(c)", "2", compared("=", TS, 0), True),
        (TS, DATE, "CAST(c AS DATE)", "not a date", compared("=", TS, 0), True),
        (TS, DATE, "CAST(c AS DATE)", "+5881580-07-11", compared("=", TS, 0), True),
        (TS, DATE, "CAST(c AS DATE)", "1000-01-01", compared("=", TS, 0), True),
        (TS, TEXT, "date_format(c, 'MM-yyyy')", "01-2024", compared("=", TS, 0), True),
        (TS, TEXT, "date_format(c, 'yyyy-MM')", "+12024-01", compared("=", TS, 0), True),
        # Samoa had no 30 December 2011: Spark formats its ten o'clock as that of the 31st.
        (NTZ, TEXT, "date_format(c, 'yyyy-MM-dd')", "2011-12-31", compared("=", NTZ, SKIPPED), True),
        (LONG, LONG, "nothing", "1", compared("=", LONG, 2), True),
    ],
)
def test_what_is_known_and_what_is_not(
    base: T.DataType, of: T.DataType, sql: str, value: str | None, predicate: Any, is_kept: bool
) -> None:
    assert kept(table(base, p=(of, sql)), ["p"], {"p": value}, predicate) is is_kept


def test_negations_and_nested_fields() -> None:
    inner = T.StructType([T.StructField("at", DATE)])
    schema = T.StructType(
        [
            T.StructField("s", inner),
            T.StructField("p", INT, True, {"delta.generationExpression": "year(S.`at`)"}),
        ]
    )
    predicate = {"op": ">=", "column": ["s", "at"], "type": "date", "value": 19723}
    for negated, year, is_kept in (
        (False, "2024", True),
        (False, "2022", False),
        (True, "2022", True),
        (True, "2026", False),
    ):
        asked = {"op": "not", "args": [predicate]} if negated else predicate
        assert kept(schema, ["p"], {"p": year}, asked) is is_kept
