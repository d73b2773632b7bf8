"""Batch writes: save modes, partitioning, paths, and commitInfo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from deltaflow.errors import (
    DeltaTableAlreadyExistsError,
    SchemaError,
)
from tests.tables import actions, commit_file, load, rows, rows_by_deltalake, versions

pytestmark = pytest.mark.spark


def numbers(spark, *values):
    return spark.createDataFrame([(value, f"m{value % 2}") for value in values], "n int, m string")


def read_numbers(spark, table):
    return sorted(row.n for row in load(spark, table).collect())


def test_modes(spark, table):
    numbers(spark, 1, 2).write.format("delta").save(table)
    with pytest.raises(DeltaTableAlreadyExistsError, match="mode 'errorifexists'") as caught:
        numbers(spark, 3).write.format("delta").save(table)
    assert isinstance(caught.value, AnalysisException)
    assert caught.value.getErrorClass() == "DELTA_PATH_EXISTS"
    assert table in str(caught.value)
    with pytest.raises(DeltaTableAlreadyExistsError):
        numbers(spark, 3).write.format("delta").mode("error").save(table)
    numbers(spark, 4).write.format("delta").mode("ignore").save(table)
    assert versions(table) == [0]
    numbers(spark, 5).write.format("delta").mode("append").save(table)
    assert read_numbers(spark, table) == [1, 2, 5]
    numbers(spark, 6).write.format("delta").mode("overwrite").save(table)
    assert read_numbers(spark, table) == [6]
    assert versions(table) == [0, 1, 2]


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore", "errorifexists"])
def test_every_mode_creates_a_table(spark, table, mode):
    numbers(spark, 1).write.format("delta").mode(mode).save(table)
    assert read_numbers(spark, table) == [1]
    [info] = actions(table, "commitInfo")
    assert info["operationParameters"]["mode"].lower() == mode
    assert info["isBlindAppend"] is (mode != "overwrite")


@pytest.mark.timeout(60)  # A write that reported nothing let its observer wait for ever.
@pytest.mark.parametrize("way", ["save", "saveAsTable", "writeTo"])
def test_what_a_written_frame_is_observed_by_is_reported(spark, table, way):
    observation = Observation()
    name = f"delta.`{table}`"
    numbers(spark, 1).write.format("delta").save(table)
    observed = numbers(spark, 2, 3).observe(observation, F.sum("n").alias("sum"))
    writer = observed.write.format("delta").mode("append")
    {
        "save": lambda: writer.save(table),
        "saveAsTable": lambda: writer.saveAsTable(name),
        "writeTo": lambda: observed.writeTo(name).append(),
    }[way]()
    assert observation.get == {"sum": 5}
    assert read_numbers(spark, table) == [1, 2, 3]


def test_an_unknown_mode(spark, table):
    with pytest.raises(Exception, match=r"INVALID_SAVE_MODE|Unknown save mode") as caught:
        numbers(spark, 1).write.format("delta").mode("upsert").save(table)
    assert "\tat org.apache" not in str(caught.value)
    assert not os.path.exists(table)


def test_partitioning(spark, table):
    data = spark.range(12).selectExpr("id", "id % 2 as b", "cast(id % 3 as string) as a", "id * 2 as v")
    data.write.format("delta").partitionBy("a", "b").save(table)
    assert actions(table, "metaData")[0]["partitionColumns"] == ["a", "b"]
    for add in actions(table, "add"):
        values = add["partitionValues"]
        assert add["path"].startswith(f"a={values['a']}/b={values['b']}/part-")
        assert not {"a", "b"} & set(json.loads(add["stats"])["nullCount"])
    data.write.format("delta").mode("append").save(table)
    data.write.format("delta").mode("append").partitionBy("A", "b").save(table)
    for other in (["b", "a"], ["a"], ["a", "b", "v"]):
        with pytest.raises(SchemaError, match="do not match the partition columns") as caught:
            data.write.format("delta").mode("append").partitionBy(*other).save(table)
        assert caught.value.getErrorClass() == "DELTA_METADATA_MISMATCH"
        assert str(other) in str(caught.value)
    assert versions(table) == [0, 1, 2]
    read = load(spark, table)
    assert read.columns == ["id", "b", "a", "v"]
    assert rows(read) == rows(data.union(data).union(data))


@pytest.mark.parametrize(
    ("columns", "error_class", "text"),
    [
        (["nope"], "DELTA_PARTITION_COLUMN_NOT_FOUND", "nope"),
        (["n", "m"], "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", "all columns"),
        (["m", "M"], None, "(?i)duplicate"),
    ],
)
def test_partition_columns_that_cannot_be(spark, table, columns, error_class, text):
    with pytest.raises(AnalysisException, match=text) as caught:
        numbers(spark, 1).write.format("delta").partitionBy(*columns).save(table)
    if error_class:
        assert caught.value.getErrorClass() == error_class
    assert not os.path.exists(table)


@pytest.mark.parametrize("type_name", ["array<int>", "map<string,int>", "struct<x:int>"])
def test_partition_columns_of_types_that_cannot_be(spark, table, type_name):
    with pytest.raises(AnalysisException):
        spark.range(1).selectExpr("id", f"cast(null as {type_name}) as p").write.format("delta").partitionBy(
            "p"
        ).save(table)
    assert not os.path.exists(table)


def test_partition_columns_by_another_case(spark, table):
    numbers(spark, 1, 2, 3).write.format("delta").partitionBy("M").save(table)
    assert actions(table, "metaData")[0]["partitionColumns"] == ["m"]
    data = numbers(spark, 4, 5).selectExpr("m as M", "n as N")
    data.write.format("delta").mode("append").partitionBy("M").save(table)
    read = load(spark, table)
    assert read.columns == ["n", "m"]
    assert read_numbers(spark, table) == [1, 2, 3, 4, 5]
    assert read.where("M = 'm0'").count() == 2


def test_only_the_first_commit_has_protocol_and_metadata(spark, table):
    numbers(spark, 1).write.format("delta").save(table)
    numbers(spark, 2).write.format("delta").mode("append").save(table)
    numbers(spark, 3).write.format("delta").mode("overwrite").save(table)
    assert actions(table, "protocol", 0) == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    [metadata] = actions(table, "metaData", 0)
    assert json.loads(metadata["schemaString"])["fields"] == [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "m", "type": "string", "nullable": True, "metadata": {}},
    ]
    assert metadata["format"] == {"provider": "parquet", "options": {}}
    assert metadata["configuration"] == {}
    for version in (1, 2):
        assert actions(table, "protocol", version) == actions(table, "metaData", version) == []


def test_commit_info(spark, table):
    data = numbers(spark, 1, 2, 3).coalesce(1)
    data.write.format("delta").partitionBy("m").mode("append").save(table)
    data.write.format("delta").mode("append").save(table)
    data.limit(1).write.format("delta").mode("overwrite").save(table)
    infos = [actions(table, "commitInfo", version)[0] for version in range(3)]
    for version, info in enumerate(infos):
        log_file = commit_file(table, version)
        assert json.loads(log_file.read_text().splitlines()[0]) == {"commitInfo": info}
        assert abs(info["timestamp"] - log_file.stat().st_mtime * 1000) < 60_000
        assert info["operation"] == "WRITE"
        assert info["operationParameters"] == {
            "mode": "Overwrite" if version == 2 else "Append",
            "partitionBy": "[]" if version else '["m"]',
        }
        assert info["isolationLevel"] == "Serializable"
        assert info["engineInfo"].startswith("deltaflow/")
        adds = actions(table, "add", version)
        metrics = info["operationMetrics"]
        assert metrics["numFiles"] == str(len(adds))
        assert metrics["numOutputBytes"] == str(sum(add["size"] for add in adds))
        assert metrics["numOutputRows"] == ("1" if version == 2 else "3")
    assert ["readVersion" in info and info["readVersion"] for info in infos] == [False, 0, 1]
    assert [info["isBlindAppend"] for info in infos] == [True, True, False]
    assert len({info["txnId"] for info in infos}) == 3
    assert infos[2]["operationMetrics"]["numRemovedFiles"] == "4"
    removes = actions(table, "remove", 2)
    assert infos[2]["operationMetrics"]["numRemovedBytes"] == str(sum(r["size"] for r in removes))
    assert len(removes) == 4
    assert all(remove["dataChange"] and remove["deletionTimestamp"] > 0 for remove in removes)


def test_a_frame_without_rows_leaves_no_file(spark, table):
    empty = numbers(spark, 1).where("n > 1")
    empty.write.format("delta").save(table)
    assert [entry for entry in os.listdir(table) if entry != "_delta_log"] == []
    assert load(spark, table).schema == empty.schema
    empty.write.format("delta").mode("append").save(table)
    numbers(spark, 1).write.format("delta").mode("append").save(table)
    # Tasks without rows next to one with rows.
    numbers(spark, 1, 2, 3, 4).repartition(4).where("n = 3").write.format("delta").mode("append").save(table)
    assert read_numbers(spark, table) == [1, 3]
    empty.write.format("delta").mode("overwrite").save(table)
    assert actions(table, "add") == []
    assert rows(load(spark, table)) == []


ODD_PATHS = [
    "with space",
    "100%",
    "%20 %41",
    "übung/日本語/😀",
    "a#b",
    "a+b&c=d",
    "x=1/y=2",
    "[a]{b}*",
    "a:b",
]


@pytest.mark.parametrize("name", ODD_PATHS)
@pytest.mark.sampled(3)
def test_odd_paths(spark, tmp_path, name, sound):
    path = str(tmp_path / name)
    data = spark.createDataFrame([(1, "a b"), (2, "c%/d")], "n int, p string")
    data.write.format("delta").partitionBy("p").save(path)
    data.write.format("delta").mode("append").save("file:" + path)
    assert read_numbers(spark, path) == [1, 1, 2, 2]
    sound(path)


def test_one_table_by_many_names(spark, tmp_path, monkeypatch, sound):
    path = str(tmp_path / "t")
    write = numbers(spark, 1).write.format("delta").mode("append")
    for name in (
        path,
        f"file:{path}",
        f"file://{path}",
        path + "/",
        f"{tmp_path}//t",
        f"{tmp_path}/./x/../t",
    ):
        write.save(name)
    link = tmp_path / "link"
    link.symlink_to(path)
    write.save(str(link))
    relative = os.path.relpath(path)
    monkeypatch.chdir(tmp_path)  # Spark does not go there
    write.save(relative)
    write.option("path", path).save()
    assert versions(path) == list(range(9))
    for name in (path, f"file:{path}", f"file://{path}/", str(link), relative, f"./{relative}/"):
        assert read_numbers(spark, name) == [1] * 9
    assert spark.read.format("delta").option("path", path).load().count() == 9
    sound(path)


ODD_COLUMNS = [
    "ünï",
    "日本",
    "😀",
    "a.b",
    "a-b",
    "x/y",
    "q'\"",
    "per%cent",
    "1st",
    "select",
    "a`b",
    "p[0]",
    "a:b",
]


@pytest.mark.long
def test_odd_column_names(spark, table):
    data = spark.createDataFrame(
        [(*range(len(ODD_COLUMNS)), "x"), (*range(10, 10 + len(ODD_COLUMNS)), "y")],
        [*ODD_COLUMNS, "p.ü-%"],
    )
    data.write.format("delta").partitionBy("p.ü-%").save(table)
    assert rows(load(spark, table)) == rows_by_deltalake(table) == rows(data)
    for name in [*ODD_COLUMNS, "p.ü-%"]:
        quoted = "`" + name.replace("`", "``") + "`"
        read = load(spark, table).select(quoted).where(f"{quoted} is not null")
        assert read.count() == 2


def test_options_of_the_files(spark, table):
    import pyarrow.parquet as pq

    write = spark.range(100).coalesce(1).write.format("delta").option("compression", "zstd")
    write.option("maxRecordsPerFile", 30).save(table)
    adds = actions(table, "add")
    assert sorted(json.loads(add["stats"])["numRecords"] for add in adds) == [10, 30, 30, 30]
    for add in adds:
        assert pq.read_metadata(Path(table, add["path"])).row_group(0).column(0).compression == "ZSTD"


def test_a_table_may_overwrite_itself(spark, table):
    numbers(spark, 1, 2, 3).write.format("delta").partitionBy("m").save(table)
    for expected in ([2, 3, 4], [3, 4, 5]):
        frame = load(spark, table).selectExpr("n + 1 as n", "m")
        frame.write.format("delta").mode("overwrite").save(table)
        assert read_numbers(spark, table) == expected
    frame = load(spark, table)
    for _ in range(2):
        frame.write.format("delta").mode("append").save(table)
    assert read_numbers(spark, table) == [*[3] * 4, *[4] * 4, *[5] * 4]
    for _ in range(2):
        frame.where("n > 3").write.format("delta").mode("overwrite").save(table)
    assert read_numbers(spark, table) == [*[4] * 4, *[5] * 4]


def test_the_plan_runs_once(spark, table):
    from pyspark.sql import functions as F

    def counted(frame):
        seen = spark.sparkContext.accumulator(0)

        def look(value):
            seen.add(1)
            return value

        # Not deterministic, so that no rule may run it twice or drop it.
        return frame.withColumn("n", F.udf(look, "long").asNondeterministic()("id")), seen

    base = spark.range(0, 1000, 1, 4).selectExpr("id", "id % 5 as p")
    small = spark.range(5).selectExpr("id as p", "id * 10 as w")
    expected = 0
    for number, (frame, partitioned) in enumerate(
        [
            (base, False),
            (base, True),
            (base.repartition(3, "p"), True),
            (base.join(small, "p"), True),
            (base.join(small.hint("merge"), "p"), True),
            (base.orderBy("id"), False),
        ]
    ):
        data, seen = counted(frame)
        path = f"{table}/{number}"
        write = data.select("id", "p", "n").write.format("delta")
        (write.partitionBy("p") if partitioned else write).save(path)
        expected = 1000
        assert seen.value == expected, number
        assert load(spark, path).where("n = id").count() == 1000
    data, seen = counted(base)
    cached = data.cache()
    try:
        for number in range(2):
            cached.write.format("delta").mode("append").save(f"{table}/cached{number}")
        assert seen.value == 1000
    finally:
        cached.unpersist()
