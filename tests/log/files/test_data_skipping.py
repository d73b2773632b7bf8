"""Which files a predicate may skip, by their statistics alone; and what statistics are not to be believed."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.file_rows import DELETION_VECTOR
from deltaflow.log.files.file_statistics import FileStatistics

SCHEMA = T.StructType(
    [
        T.StructField("i", T.IntegerType()),
        T.StructField("l", T.LongType()),
        T.StructField("f", T.FloatType()),
        T.StructField("d", T.DoubleType()),
        T.StructField("dec", T.DecimalType(38, 10)),
        T.StructField("s", T.StringType()),
        T.StructField("day", T.DateType()),
        T.StructField("ts", T.TimestampType()),
        T.StructField("ntz", T.TimestampNTZType()),
        T.StructField("flag", T.BooleanType()),
        T.StructField("n", T.StructType([T.StructField("x", T.IntegerType())])),
    ]
)


def stats(
    column: str, low: Any = None, high: Any = None, nulls: int | None = 0, rows: int | None = 10
) -> dict[str, Any]:
    """The statistics of a file with these bounds of one column, left out where None."""

    def of(value: Any) -> Any:
        for name in reversed(column.split(".")):
            value = {name: value}
        return value

    all_of = {"minValues": low, "maxValues": high, "nullCount": nulls}
    found: dict[str, Any] = {group: of(value) for group, value in all_of.items() if value is not None}
    return found if rows is None else {"numRecords": rows, **found}


def files_with(texts: list[pa.Array]) -> pa.Table:
    """Files with these statistics, and without deletion vectors."""
    stats = pa.chunked_array(texts, pa.string())
    return pa.table({"stats": stats, "deletion_vector": pa.nulls(len(stats), DELETION_VECTOR)})


def kept(predicate: dict[str, Any], *files: Any) -> list[bool]:
    texts = [file if file is None or isinstance(file, str) else json.dumps(file) for file in files]
    statistics = FileStatistics(files_with([pa.array(texts, pa.string())]), SCHEMA)
    mask: list[bool] = may_match(predicate, statistics).to_pylist()
    return mask


def compare(op: str, column: str, value: Any, data_type: str = "int") -> dict[str, Any]:
    return {"op": op, "column": column.split("."), "type": data_type, "value": value}


def negated(predicate: dict[str, Any]) -> dict[str, Any]:
    return {"op": "not", "args": [predicate]}


FILES = [
    stats("i", 1, 5),
    stats("i", 5, 5),
    stats("i", 6, 9, nulls=3),
    stats("i", nulls=10),
    None,
    "{}",
    stats("l", 1, 5),
]
"""The last three say nothing about i."""


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (compare("=", "i", 5), [1, 1, 0, 0]),
        (compare("<", "i", 5), [1, 0, 0, 0]),
        (compare("<=", "i", 5), [1, 1, 0, 0]),
        (compare(">", "i", 5), [0, 0, 1, 0]),
        (compare(">=", "i", 5), [1, 1, 1, 0]),
        (compare("<=>", "i", 5), [1, 1, 0, 0]),
        (compare("<=>", "i", None), [0, 0, 1, 1]),
        (compare("=", "i", None), [0, 0, 0, 0]),
        (negated(compare("=", "i", 5)), [1, 0, 1, 0]),
        (negated(compare("<=>", "i", 5)), [1, 0, 1, 1]),
        (negated(compare("<=>", "i", None)), [1, 1, 1, 0]),
        (negated(compare("<", "i", 5)), [1, 1, 1, 0]),
        (negated(negated(compare("<", "i", 5))), [1, 0, 0, 0]),
        ({"op": "isNull", "column": ["i"]}, [0, 0, 1, 1]),
        ({"op": "isNotNull", "column": ["i"]}, [1, 1, 1, 0]),
        (negated({"op": "isNull", "column": ["i"]}), [1, 1, 1, 0]),
        ({"op": "in", "column": ["i"], "type": "int", "values": [0, 4, 20]}, [1, 0, 0, 0]),
        ({"op": "in", "column": ["i"], "type": "int", "values": [None, 6]}, [0, 0, 1, 0]),
        ({"op": "in", "column": ["i"], "type": "int", "values": list(range(6, 1000))}, [0, 0, 1, 0]),
        (negated({"op": "in", "column": ["i"], "type": "int", "values": [5, 7]}), [1, 0, 1, 0]),
        (negated({"op": "in", "column": ["i"], "type": "int", "values": [5, None]}), [0, 0, 0, 0]),
        (negated({"op": "in", "column": ["i"], "type": "int", "values": []}), [1, 1, 1, 1]),
        ({"op": "and", "args": [compare(">", "i", 4), compare("<", "i", 6)]}, [1, 1, 0, 0]),
        ({"op": "or", "args": [compare("=", "i", 1), compare("=", "i", 9)]}, [1, 0, 1, 0]),
        ({"op": "or", "args": [compare("=", "i", 1), {"op": "unknown"}]}, [1, 1, 1, 1]),
        ({"op": "and", "args": [compare("=", "i", 1), {"op": "unknown"}]}, [1, 0, 0, 0]),
        (negated({"op": "and", "args": [compare(">", "i", 5), {"op": "unknown"}]}), [1, 1, 1, 1]),
        (negated({"op": "or", "args": [compare("<=", "i", 5), {"op": "unknown"}]}), [0, 0, 1, 0]),
    ],
    ids=lambda value: "",
)
def test_predicates(predicate: dict[str, Any], expected: list[int]) -> None:
    # A literal null is true for no row, whatever the statistics say.
    rest = not expected or predicate.get("op") != "=" or predicate["value"] is not None
    if predicate["op"] == "not" and None in predicate["args"][0].get("values", ()):
        rest = False
    assert kept(predicate, *FILES) == [*map(bool, expected), rest, rest, rest]


def test_every_pair_of_outcomes_agrees_with_the_rows() -> None:
    """Files of one or two rows of null, 1, 2, 3: whatever a row satisfies is kept."""
    rows = [list(r) for n in (1, 2) for r in itertools.product([None, 1, 2, 3], repeat=n)]
    files = []
    for values in rows:
        present = [v for v in values if v is not None]
        bounds = (min(present), max(present)) if present else (None, None)
        files.append(stats("i", *bounds, nulls=values.count(None), rows=len(values)))
    evaluate = {
        "=": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    for op, value in itertools.product(evaluate, (0, 1, 2, 3, 4)):
        for outcome in (True, False):
            predicate = compare(op, "i", value) if outcome else negated(compare(op, "i", value))
            needed = [
                any(v is not None and evaluate[op](v, value) is outcome for v in values) for values in rows
            ]
            # With bounds alone, 2 may lie between 1 and 3.
            allowed = [
                need or (op == "=" and outcome and value == 2 and {1, 3} == set(values))
                for need, values in zip(needed, rows, strict=True)
            ]
            assert kept(predicate, *files) == allowed, predicate


def test_nested_columns() -> None:
    files = [stats("n.x", 1, 5), stats("n.x", 6, 9), {"numRecords": 1, "nullCount": {"n": {"x": 1}}}]
    assert kept(compare("=", "n.x", 7), *files) == [False, True, False]
    assert kept({"op": "isNull", "column": ["n", "x"]}, *files) == [False, False, True]
    assert kept({"op": "isNull", "column": ["n"]}, *files) == [True, True, True]
    assert kept(compare("=", "n.y", 7), *files) == [True, True, True]


def test_strings() -> None:
    files = [stats("s", "a", "b\U0010ffff"), stats("s", "bc", "bcd"), stats("s", "é", "é")]
    assert kept(compare("=", "s", "bzz", "string"), *files) == [True, False, False]
    assert kept(compare(">", "s", "z", "string"), *files) == [False, False, True]
    assert kept({"op": "startsWith", "column": ["s"], "value": "bc"}, *files) == [True, True, False]
    assert kept({"op": "startsWith", "column": ["s"], "value": "bcde"}, *files) == [True, False, False]
    assert kept({"op": "startsWith", "column": ["s"], "value": ""}, *files) == [True, True, True]
    assert kept(negated({"op": "startsWith", "column": ["s"], "value": "bc"}), *files) == [True, False, True]
    quoted = stats("s", 'a"NaN"', 'say: "NaN"\n')
    assert kept(compare("=", "s", "b", "string"), quoted) == [True]
    assert kept(compare("=", "s", "zz", "string"), quoted) == [False]


def test_numbers_that_json_lacks_bound_nothing() -> None:
    file = stats("d", 1.5, "NaN")
    assert kept(compare(">", "d", "100.0", "double"), file, stats("d", 1.0, 2.0)) == [True, False]
    assert kept(compare("<", "d", "1.0", "double"), file) == [False]
    assert kept(compare("<", "d", "-5.0", "double"), stats("d", "-Infinity", 2.0)) == [True]
    bare = '{"numRecords":9,"minValues":{"d":NaN},"maxValues":{"d":NaN},"nullCount":{"d":0}}'
    assert kept(compare("=", "d", "1.5", "double"), bare, stats("d", 2.0, 3.0)) == [True, False]
    for op in ("=", ">=", "<"):
        assert kept(compare(op, "d", "NaN", "double"), stats("d", 1.0, 2.0)) == [True]
    assert kept(compare("=", "d", "0.0", "double"), stats("d", -0.0, -0.0)) == [True]
    assert kept(compare("=", "d", "-0.0", "double"), stats("d", 0.0, 0.0)) == [True]
    assert kept(compare("<", "d", "0.0", "double"), stats("d", -0.0, 1.0)) == [False]


def test_floats_are_compared_as_floats() -> None:
    near = str(0.10000000149011612)  # the float nearest to 0.1, as a double
    assert kept(compare("=", "f", near, "float"), stats("f", 0.1, 0.1)) == [True]


def test_decimals_that_a_writer_took_for_doubles() -> None:
    exact = "12345678901234567890.1234567890"
    rounded = stats("dec", 12345678901234567000.0, 12345678901234567000.0)
    assert kept(compare("=", "dec", exact, "decimal(38,10)"), rounded) == [True]
    assert kept(compare("=", "dec", "3.0000000000", "decimal(38,10)"), stats("dec", 1, 2)) == [False]
    assert kept(compare("<", "dec", "1.5", "decimal(38,10)"), '{"minValues":{"dec":1.25}}') == [True]


def test_moments_are_known_to_the_millisecond() -> None:
    file = stats("ts", "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.123Z")
    start = 1_704_067_200_000_000
    for micros, expected in ((start + 123_999, True), (start + 124_001, False), (start - 1_001, False)):
        assert kept(compare("=", "ts", micros, "timestamp"), file) == [expected]
    zoned = stats("ts", "2024-01-01T08:00:00.000+08:00", "2024-01-01T08:00:00.000+08:00")
    assert kept(compare("=", "ts", start, "timestamp"), zoned) == [True]
    assert kept(compare("<", "ts", start - 5_000, "timestamp"), zoned) == [False]
    for text in ("+12024-01-01T00:00:00.000Z", "soon", "1582-01-01T00:00:00.000Z"):
        assert kept(compare(">", "ts", start, "timestamp"), stats("ts", text, text), file) == [True, True]


def test_moments_without_a_zone() -> None:
    file = stats("ntz", "2024-01-01T00:00:00.000", "2024-01-01T00:00:00.123")
    start = 1_704_067_200_000_000
    assert kept(compare("=", "ntz", start, "timestamp_ntz"), file) == [True]
    assert kept(compare("=", "ntz", start + 125_000, "timestamp_ntz"), file) == [False]


def test_days() -> None:
    day = 19_723  # 2024-01-01
    files = [stats("day", "2024-01-01", "2024-01-02"), stats("day", "2024-01-03", "2024-01-03")]
    assert kept(compare("=", "day", day, "date"), *files) == [True, False]
    for text in ("1500-02-29", "1582-10-14", "+12024-01-01", "x"):
        assert kept(compare("=", "day", day, "date"), stats("day", text, text), files[1]) == [True, False]


@pytest.mark.parametrize(
    "odd",
    [
        {"numRecords": 10, "minValues": {"i": "1"}, "maxValues": {"i": "2"}},
        {"numRecords": 10, "minValues": {"i": 1.5}, "maxValues": {"i": 2.5}},
        {"numRecords": 10, "minValues": {"i": {"x": 1}}, "maxValues": []},
        {"numRecords": 10, "minValues": {"I": 1}, "maxValues": {"I": 2}},
        {"minValues": {"i": 1}},
        "not json",
        "",
        "[]",
        '{\n"numRecords":1\r\n}',
    ],
)
def test_statistics_that_are_none_keep_their_file(odd: Any) -> None:
    assert kept(compare("=", "i", 7), odd, stats("i", 1, 9)) == [True, True]
    assert kept({"op": "isNotNull", "column": ["i"]}, odd) == [True]


def test_odd_statistics_of_a_file_leave_others_as_they_are() -> None:
    for odd in ("null", "not json", '{"numRecords":1,"minValues":{"i":7.0}}', '{"minValues":{"i":9,"i":1}}'):
        assert kept(compare("=", "i", 7), odd, stats("i", 1, 5)) == [True, False]


def test_a_literal_of_another_type_skips_nothing() -> None:
    assert kept(compare("=", "i", 7, "bigint"), stats("i", 1, 5)) == [True]
    assert kept(compare("=", "flag", True, "boolean"), stats("flag")) == [True]
    assert kept({"op": "startsWith", "column": ["i"], "value": "1"}, stats("i", 1, 5)) == [True]


def test_columns_are_parsed_once() -> None:
    texts = [json.dumps(stats("i", n, n)) for n in range(40_000)]
    chunks = [pa.array(texts[:30_000]), pa.array([], pa.string()), pa.array(texts[30_000:])]
    statistics = FileStatistics(files_with(chunks), SCHEMA)
    assert sum(may_match(compare(">=", "i", 39_990), statistics).to_pylist()) == 10
    assert statistics.column(("i",)) is statistics.column(("i",))
    assert statistics.num_records.to_pylist() == [10] * 40_000
    empty = FileStatistics(files_with([]), SCHEMA)
    assert may_match(compare("=", "i", 1), empty).to_pylist() == []
