"""Values in a form that has an order: equal only if they are the same."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltaflow.spark.expressions.orderable import orderable, orderable_sql

pytestmark = pytest.mark.spark

SAME = {
    "binary keys": ["map(X'01', 1, X'0203', 2)"] * 2,
    "structs as keys": ["array(map(named_struct('a', X'01'), 1))"] * 2,
    "order of entries": ["named_struct('m', map('a', 1, 'b', 2))", "named_struct('m', map('b', 2, 'a', 1))"],
    "maps in maps": ["map(1, map('a', 1, 'b', 2))", "map(1, map('b', 2, 'a', 1))"],
    "NaN": ["map(1, array(double('NaN')))"] * 2,
    "fields": ['parse_json(\'{"a": 1, "b": null}\')', 'parse_json(\'{"b": null, "a": 1}\')'],
    "void": ["array(null)"] * 2,
}
OTHER = {
    "microseconds": [f"struct(map('a', 1), timestamp_micros({n}))" for n in (1, 2)],
    "digits": ["map(1, 12345678901234567890.12BD)", "map(1, 12345678901234567890.13BD)"],
    "types": [
        "to_variant_object(named_struct('a', '2020-01-01'))",
        "to_variant_object(named_struct('a', date'2020-01-01'))",
    ],
    "cases": ["collate('a', 'UTF8_LCASE')", "collate('A', 'UTF8_LCASE')"],
    "cases in maps": [f"map(1, array(named_struct('s', collate('{a}', 'UTF8_LCASE'))))" for a in "aA"],
    "null and empty": ["map('a', CAST(NULL AS MAP<INT, INT>))", "map('a', CAST(map() AS MAP<INT, INT>))"],
    "null and its field": [
        "map(1, CAST(NULL AS STRUCT<`a b`: MAP<INT, INT>>))",
        "map(1, named_struct('a b', CAST(NULL AS MAP<INT, INT>)))",
    ],
    "null and JSON's": ["CAST(NULL AS VARIANT)", "parse_json('null')"],
}


@pytest.mark.parametrize("name", [*SAME, *OTHER])
def test_a_form_equals_that_of_the_same_value_alone(spark: SparkSession, name: str) -> None:
    one, other = (SAME | OTHER)[name]
    rows = spark.sql(f"SELECT {one} AS one, {other} AS other")
    data_type = rows.schema["one"].dataType
    assert rows.schema["other"].dataType.simpleString() == data_type.simpleString()
    by_column = [orderable(F.col(column), data_type) for column in ("one", "other")]
    by_sql = [F.expr(orderable_sql(column, data_type)) for column in ("one", "other")]
    # In a struct, because a form may be null itself.
    found = [F.struct(a).eqNullSafe(F.struct(b)) for a, b in (by_column, by_sql)]
    nothing = F.lit(None).cast(data_type)
    is_greater = F.struct(by_column[1]) >= F.struct(orderable(nothing, data_type))
    assert rows.select(*found, is_greater).collect() == [(name in SAME, name in SAME, True)]
