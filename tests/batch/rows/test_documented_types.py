"""Every line of the table in docs/types.md is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from tests.tables import actions, load

pytestmark = pytest.mark.spark

LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (Path(__file__).parents[3] / "docs" / "types.md").read_text().splitlines()
    if line.startswith("| `")
]
WRITTEN = [
    line
    for line in LINES
    if not line[1].startswith("refused") and not line[2].startswith("no column") and line[0] != "`variant`"
]
REFUSED = [line[0].strip("`") for line in LINES if line[1].startswith("refused")]
VALUES = {
    "interval day": "interval '1' day",
    "interval year": "interval '1' year",
}


def test_every_type_of_the_table_is_written_so(spark, table):
    type_names = [line[0].strip("`") for line in WRITTEN]
    columns = ", ".join(f"c{i} {type_name}" for i, type_name in enumerate(type_names))
    spark.sql(f"create table documented (id int, {columns}) using parquet")
    try:
        spark.table("documented").write.format("delta").save(table)
        spark.sql("select 1 id").write.format("delta").mode("append").save(table)
    finally:
        spark.sql("drop table documented")
    schema = json.loads(actions(table, "metaData", 0)[0]["schemaString"])
    for (type_name, in_log, in_parquet, _), field in zip(WRITTEN, schema["fields"][1:], strict=True):
        found = field["type"]
        assert (found if isinstance(found, str) else found["type"]) == in_log.strip("`"), type_name
        declared = field["metadata"].get("__CHAR_VARCHAR_TYPE_STRING")
        assert declared == (type_name.strip("`") if "char" in type_name else None)
        assert in_parquet.strip("`") == _in_parquet(table, field["name"])


def test_variants_are_written_so(spark, tmp_path):
    """In a table of their own, which the other implementation cannot read."""
    path = tmp_path / "t"
    spark.sql("select parse_json('1') c").write.format("delta").save(str(path))
    [line] = [line for line in LINES if line[0] == "`variant`"]
    [field] = json.loads(actions(path, "metaData", 0)[0]["schemaString"])["fields"]
    assert line[1:] == [f"`{field['type']}`", _in_parquet(path, "c"), "no"]


def _in_parquet(table, column):
    [file] = Path(table).glob("*.parquet")
    arrow = pq.read_schema(file).field(column).type
    if "struct" in str(arrow):
        return "MAP" if str(arrow).startswith("map") else "a group"
    if str(arrow).startswith(("list", "map")):
        return str(arrow).partition("<")[0].upper()
    schema = pq.ParquetFile(file).schema
    [leaf] = [schema.column(i) for i in range(len(schema)) if schema.column(i).path == column]
    logical = str(leaf.logical_type)
    timestamp = re.search(r"isAdjustedToUTC=(true|false), timeUnit=microseconds", logical)
    if timestamp:
        logical = f"Timestamp(MICROS, {'UTC' if timestamp[1] == 'true' else 'local'})"
    logical = re.sub(r"precision=(\d+), scale=(\d+)", r"\1, \2", logical)
    logical = re.sub(r"Int\(bitWidth=(\d+), isSigned=true\)", r"INT(\1, signed)", logical)
    name = logical if logical.startswith("INT(") else re.sub(r"^\w+", lambda word: word[0].upper(), logical)
    return leaf.physical_type + ("" if name == "NONE" else f" ({name})")


@pytest.mark.parametrize("line", WRITTEN, ids=lambda line: line[0])
@pytest.mark.sampled(3)
def test_partition_columns_of_the_table(spark, tmp_path, line):
    type_name, allowed = line[0].strip("`"), line[3]
    data_type = type_name.replace("char(3)", "string").replace("varstring", "string")
    frame = spark.sql(f"select 1 id, cast(null as {data_type}) p")
    write = frame.write.format("delta").partitionBy("p")
    if allowed == "yes":
        write.save(str(tmp_path / "t"))
        assert load(spark, str(tmp_path / "t")).where("p is null").count() == 1
    else:
        with pytest.raises(AnalysisException):
            write.save(str(tmp_path / "t"))


@pytest.mark.parametrize("type_name", REFUSED)
def test_refused_types_of_the_table(spark, tmp_path, type_name):
    if type_name == "time" and not hasattr(T, "TimeType"):
        pytest.skip("this Spark has no such type")
    select = f"select 1 id, {VALUES.get(type_name, f'cast(null as {type_name})')} c"
    with pytest.raises(AnalysisException):
        spark.sql(select).write.format("delta").save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()
