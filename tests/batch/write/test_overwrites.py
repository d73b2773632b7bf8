"""Overwrites of a part of a table, by a predicate or by the partitions; and writes that change no data."""

from __future__ import annotations

import datetime as dt
import itertools
import re

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltaflow.errors import (
    ConcurrentAppendException,
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import set_observer
from tests.tables import actions, files_below, ids, load, rows, versions, write

pytestmark = pytest.mark.spark

DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


def frame(spark, *rows):
    """(id, p, s) rows."""
    return spark.createDataFrame(
        [(*row, *("a",) * (3 - len(row))) for row in rows], "id int, p int, s string"
    )


def overwrite(data, table, **options):
    write(data, table, "overwrite", **options)


def test_replace_where_on_a_partition(spark, table):
    write(frame(spark, (1, 1), (2, 2), (3, None)), table, partition_by=["p"])
    before = {add["partitionValues"]["p"]: add["path"] for add in actions(table, "add")}
    overwrite(frame(spark, (9, 2)), table, replaceWhere="p = 2")
    assert ids(load(spark, table)) == [1, 3, 9]
    assert [remove["path"] for remove in actions(table, "remove")] == [before["2"]]
    [info] = actions(table, "commitInfo")
    assert info["operationParameters"] == {"mode": "Overwrite", "partitionBy": "[]", "predicate": "p = 2"}
    metrics = info["operationMetrics"]
    removed, [added] = actions(table, "remove"), actions(table, "add")
    assert metrics == {
        "numFiles": "1",
        "numOutputRows": "1",
        "numOutputBytes": str(added["size"]),
        "numRemovedFiles": "1",
        "numRemovedBytes": str(sum(remove["size"] for remove in removed)),
        "numDeletedRows": "1",
        "numCopiedRows": "0",
        "numAddedChangeFiles": "0",
    }
    assert info["isBlindAppend"] is False


@pytest.mark.parametrize(
    ("predicate", "replaced"),
    [
        ("id > 5 and id <= 8", {6, 7, 8}),
        ("p = 1 and id >= 4", {4, 7}),
        ("P = 1 AND ID BETWEEN 2 AND 5", {4}),
        ("s like 's%' and (id = 3 or id = 4)", {3, 4}),
        ("s is null", {0}),
        ("p = 5", set()),
        ("true", set(range(9))),
        ("upper(s) = 'S3'", {3}),
        ("p in (0, 2)", {0, 2, 3, 5, 6, 8}),
        ("p is null", set()),
        ("not (p <=> 1)", {0, 2, 3, 5, 6, 8}),
        ("false", set()),
    ],
)
@pytest.mark.sampled(6)
def test_replace_where_keeps_the_other_rows(spark, table, predicate, replaced):
    data = spark.range(9).selectExpr(
        "cast(id as int) id", "cast(id % 3 as int) p", "case when id > 0 then 's' || id end s"
    )
    write(data, table, partition_by=["p"])
    new = data.where(predicate).selectExpr("id", "p", "s")
    overwrite(new, table, replaceWhere=predicate)
    read = load(spark, table)
    assert rows(read) == rows(data)
    overwrite(new.where("false"), table, replaceWhere=predicate)
    assert ids(load(spark, table)) == sorted(set(range(9)) - replaced)


def test_replace_where_leaves_files_without_a_match_alone(spark, table):
    write(frame(spark, (1, 1), (2, 1)), table)
    write(frame(spark, (5, 1), (6, 1)), table)
    write(frame(spark, (7, 1), (8, None)), table)
    untouched, both, one = (actions(table, "add", version)[0]["path"] for version in range(3))
    overwrite(frame(spark, (50, 1)), table, replaceWhere="id >= 5 and p = 1")
    assert {remove["path"] for remove in actions(table, "remove")} == {both, one}
    assert untouched not in {add["path"] for add in actions(table, "add")}
    assert ids(load(spark, table)) == [1, 2, 8, 50]
    metrics = actions(table, "commitInfo")[0]["operationMetrics"]
    assert [metrics[name] for name in ("numDeletedRows", "numCopiedRows", "numOutputRows")] == ["3", "1", "2"]


@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.sampled(2)
def test_rows_outside_the_predicate(spark, table, partition_by):
    write(frame(spark, (1, 1), (2, 2)), table, partition_by=partition_by)
    for predicate, bad in (
        ("p = 2", (77, 3, "odd")),
        ("p = 2 and id > 100", (78, 2, "odd")),
        ("id > 1", (None, 2)),
    ):
        with pytest.raises(DeltaAnalysisException) as caught:
            overwrite(frame(spark, (200, 2), bad), table, replaceWhere=predicate)
        assert caught.value.getErrorClass() == "DELTA_REPLACE_WHERE_MISMATCH"
        assert caught.value.getSqlState() == "44000"
        assert predicate in str(caught.value)
        values = {"id": bad[0], "p": bad[1]}
        for name in {"id", "p"} & set(predicate.split()):
            assert f"\n - {name} : {'null' if values[name] is None else values[name]}" in str(caught.value)
        assert isinstance(caught.value, AnalysisException)
    assert ids(load(spark, table)) == [1, 2]
    assert len(versions(table)) == 1


def test_rows_outside_the_predicate_without_the_check(spark, table, setting):
    write(frame(spark, (1, 1), (2, 2)), table, partition_by=["p"])
    setting("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")
    overwrite(frame(spark, (9, 3)), table, replaceWhere="p = 2")
    assert ids(load(spark, table)) == [1, 9]


def test_replace_where_for_partition_columns_alone(spark, table, setting):
    write(frame(spark, (1, 1), (2, 2)), table, partition_by=["p"])
    setting("spark.databricks.delta.replaceWhere.dataColumns.enabled", "false")
    before = files_below(table)
    message = "non-partition column 'id'. Only the partition columns may be referenced: [p]"
    for predicate in ("id = 2", "p = 2 and id = 2"):
        with pytest.raises(DeltaAnalysisException, match=re.escape(message)) as caught:
            overwrite(frame(spark, (2, 2)), table, replaceWhere=predicate)
        assert caught.value.getErrorClass() == "DELTA_NON_PARTITION_COLUMN_REFERENCE"
    assert files_below(table) == before
    overwrite(frame(spark, (9, 2)), table, replaceWhere="p = 2")
    assert ids(load(spark, table)) == [1, 9]


@pytest.mark.parametrize(
    ("predicate", "error_class"),
    [
        ("nope = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("p = ", "DELTA_FAILED_RECOGNIZE_PREDICATE"),
        ("p", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
        ("p = (select 1)", "DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES"),
    ],
)
def test_predicates_that_are_none(spark, table, predicate, error_class):
    write(frame(spark, (1, 1)), table)
    before = files_below(table)
    with pytest.raises(AnalysisException) as caught:
        overwrite(frame(spark, (2, 2)), table, replaceWhere=predicate)
    assert caught.value.getCondition() == error_class
    assert files_below(table) == before


def test_replace_where_makes_a_table_and_means_nothing_to_an_append(spark, table):
    overwrite(frame(spark, (1, 1), (3, 3)), table, replaceWhere="p = 1 and nope is null")
    write(frame(spark, (2, 2)), table, replaceWhere="p = 1")
    assert ids(load(spark, table)) == [1, 2, 3]


def test_replace_where_from_the_table_itself(spark, table):
    write(frame(spark, (1, 1), (2, 2), (3, 2)), table)
    same = load(spark, table).where("p = 2").selectExpr("id * 10 as id", "p", "s")
    overwrite(same, table, replaceWhere="p = 2")
    assert ids(load(spark, table)) == [1, 20, 30]


@pytest.mark.long
def test_replace_where_of_odd_partition_values(spark, table):
    data = spark.createDataFrame(
        [(1, "a b/%", dt.date(2024, 1, 1)), (2, "é=:", None), (3, None, dt.date(2024, 1, 2))],
        "id int, p string, d date",
    )
    write(data, table, partition_by=["p", "d"])
    for predicate in (
        "p = 'a b/%'",
        "d is null",
        "p is null and d = '2024-01-02'",
        "id = 3 and d > '2020-01-01'",
    ):
        overwrite(data.where(predicate), table, replaceWhere=predicate)
        assert rows(load(spark, table)) == rows(data)


@pytest.mark.parametrize("escaped", ["true", "false"])
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.long
def test_replace_where_of_texts_with_backslashes_and_quotes(spark, table, setting, escaped, partitioned):
    texts = ["a\\b", "a\\\\b", "it's", "a\\\"'b", "\\", "plain"]
    data = spark.createDataFrame([(i, 0, text) for i, text in enumerate(texts)], "id int, p int, s string")
    write(data, table, partition_by=["s"] if partitioned else [])
    setting("spark.sql.parser.escapedStringLiterals", escaped)
    for i, text in enumerate(texts):
        new = spark.createDataFrame([(10 + i, 1, text)], "id int, p int, s string")
        new.writeTo(f"delta.`{table}`").overwrite(F.col("s") == F.lit(text))
    assert ids(load(spark, table)) == [10, 11, 12, 13, 14, 15]
    literal = "'a\\b'" if escaped == "true" else "'a\\\\b'"
    spark.createDataFrame([(20, 1, "a\\b")], "id int, p int, s string").createOrReplaceTempView("new_rows")
    spark.sql(f"INSERT INTO delta.`{table}` REPLACE WHERE s = {literal} SELECT * FROM new_rows")
    assert ids(load(spark, table)) == [11, 12, 13, 14, 15, 20]
    overwrite(
        spark.table("new_rows").selectExpr("id + 1 AS id", "p", "s"), table, replaceWhere=f"s = {literal}"
    )
    assert ids(load(spark, table)) == [11, 12, 13, 14, 15, 21]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("door", ["sql", "writer"])
@pytest.mark.sampled(2)
def test_a_condition_keeps_its_instants_and_texts(spark, table, setting, door, partitioned):
    """09:30 and 08:30 UTC are the same local time; ${…} is the value of a variable in SQL."""
    times = [dt.datetime(2020, 11, 1, hour, 30, tzinfo=dt.UTC) for hour in (8, 9, 10)]
    data = spark.createDataFrame(
        [
            (i, at, text)
            for i, (at, text) in enumerate(zip(times, ["x", "${spark.app.name}", "y"], strict=True))
        ],
        "id int, t timestamp, s string",
    )
    setting("spark.sql.session.timeZone", "America/Los_Angeles")
    write(data, table, partition_by=["t"] if partitioned else [])
    none = load(spark, table).where("false")
    if door == "sql":
        spark.sql(
            f"INSERT INTO delta.`{table}` REPLACE WHERE t = TIMESTAMP'2020-11-01 09:30:00Z' SELECT 9, t, s "
            f"FROM delta.`{table}` WHERE id = 1"
        )
    else:
        new = load(spark, table).where("id = 1").withColumn("id", F.lit(9))
        new.writeTo(f"delta.`{table}`").overwrite(F.col("t") == F.lit(times[1]))
    assert ids(load(spark, table)) == [0, 2, 9]
    none.writeTo(f"delta.`{table}`").overwrite(F.col("s") == F.lit("${spark.app.name}"))
    assert ids(load(spark, table)) == [0, 2]
    setting("spark.sql.timestampType", "TIMESTAMP_NTZ")
    if door == "sql":
        spark.sql(
            f"INSERT INTO delta.`{table}` REPLACE WHERE t < '2020-11-01T10:00:00Z' "
            f"SELECT * FROM delta.`{table}` WHERE false"
        )
    else:
        none.writeTo(f"delta.`{table}`").overwrite(F.col("t") < F.lit("2020-11-01T10:00:00Z"))
    assert ids(load(spark, table)) == [2]


@pytest.mark.parametrize("by_setting", [False, True])
@pytest.mark.sampled(2)
def test_dynamic_partition_overwrite(spark, table, setting, by_setting):
    write(frame(spark, (1, 1), (2, 2), (3, None)), table, partition_by=["p"])
    write(frame(spark, (4, 2)), table)
    options = {} if by_setting else {"partitionOverwriteMode": "Dynamic"}
    if by_setting:
        setting(DYNAMIC, "dynamic")
    overwrite(frame(spark, (9, 2), (8, None), (7, 5)), table, **options)
    assert ids(load(spark, table)) == [1, 7, 8, 9]
    [info] = actions(table, "commitInfo")
    assert info["operationParameters"] == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "isDynamicPartitionOverwrite": True,
    }
    assert info["operationMetrics"]["numRemovedFiles"] == "3"
    overwrite(frame(spark, (9, 2)).where("false"), table, **options)
    assert ids(load(spark, table)) == [1, 7, 8, 9]
    overwrite(frame(spark, (6, 6)), table, partitionOverwriteMode="static")
    assert ids(load(spark, table)) == [6]


def test_dynamic_partition_overwrite_of_several_columns(spark, table):
    data = spark.range(8).selectExpr(
        "id", "cast(id % 2 as string) a", "case when id % 4 > 1 then id % 4 end b"
    )
    write(data, table, partition_by=["a", "b"])
    new = spark.sql("select 100L id, '0' a, cast(null as long) b union all select 101L, '1', 3L")
    overwrite(new, table, partitionOverwriteMode="dynamic")
    expected = data.where("not (a = '0' and b is null) and not (a <=> '1' and b <=> 3)").union(new)
    assert rows(load(spark, table)) == rows(expected)


def test_dynamic_overwrite_means_all_of_a_table_without_partitions(spark, table, setting):
    setting(DYNAMIC, "dynamic")
    overwrite(frame(spark, (1, 1)), table)
    overwrite(frame(spark, (2, 2)), table)
    assert ids(load(spark, table)) == [2]
    # A table that gets partitions by this write is replaced, too.
    overwrite(
        frame(spark, (3, 3)),
        table,
        partitionOverwriteMode="static",
        overwriteSchema="true",
        partition_by=["p"],
    )
    overwrite(frame(spark, (4, 4)), table, overwriteSchema="true")
    assert ids(load(spark, table)) == [4]


@pytest.mark.parametrize(
    ("options", "error_class"),
    [
        (
            {"partitionOverwriteMode": "dynamic", "replaceWhere": "p = 1"},
            "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        (
            {"partitionOverwriteMode": "dynamic", "overwriteSchema": "true", "partition_by": ["p"]},
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        ({"partitionOverwriteMode": "sometimes"}, "DELTA_ILLEGAL_OPTION"),
    ],
)
def test_options_that_contradict_each_other(spark, table, options, error_class):
    write(frame(spark, (1, 1)), table, partition_by=["p"])
    before = files_below(table)
    with pytest.raises(DeltaIllegalArgumentException) as caught:
        overwrite(frame(spark, (2, 1)), table, **options)
    assert caught.value.getErrorClass() == error_class
    assert files_below(table) == before


def test_a_setting_of_dynamic_overwrite_gives_way_to_replace_where(spark, table, setting):
    write(frame(spark, (1, 1), (2, 2)), table, partition_by=["p"])
    setting(DYNAMIC, "dynamic")
    overwrite(frame(spark, (9, 1)), table, replaceWhere="p < 3")
    assert ids(load(spark, table)) == [9]


def test_dynamic_overwrite_can_be_switched_off(spark, table, setting):
    write(frame(spark, (1, 1)), table, partition_by=["p"])
    setting("spark.databricks.delta.dynamicPartitionOverwrite.enabled", "false")
    with pytest.raises(DeltaIllegalArgumentException) as caught:
        overwrite(frame(spark, (2, 1)), table, partitionOverwriteMode="dynamic")
    assert caught.value.getErrorClass() == "DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replaceWhere": "p = 1"},
        {"partitionOverwriteMode": "dynamic"},
        {"overwriteSchema": "true"},
        {"dataChange": "false"},
    ],
)
@pytest.mark.sampled(2)
def test_a_table_that_only_takes_appends(spark, table, options):
    write(frame(spark, (1, 1)), table, partition_by=["p"], **{"delta.appendOnly": "true"})
    before = files_below(table)
    with pytest.raises(DeltaUnsupportedOperationException) as caught:
        overwrite(frame(spark, (2, 1)), table, **options)
    assert caught.value.getErrorClass() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert files_below(table) == before
    write(frame(spark, (2, 1)), table)
    assert ids(load(spark, table)) == [1, 2]


def test_rearranged_data(spark, tmp_path):
    path = str(tmp_path / "t")
    for part in ((1, 1), (2, 2), (3, 1)):
        write(frame(spark, part), path)
    overwrite(load(spark, path), path, dataChange="false")
    assert ids(load(spark, path)) == [1, 2, 3]
    [info] = actions(path, "commitInfo")
    assert info["isolationLevel"] == "SnapshotIsolation"
    changes = [action["dataChange"] for name in ("add", "remove") for action in actions(path, name)]
    assert changes == [False] * 4
    write(frame(spark, (4, 1)), path, dataChange="false")
    assert [add["dataChange"] for add in actions(path, "add")] == [False]


@pytest.mark.parametrize(
    ("columns", "options", "operation"),
    [
        (["id", "p", "s", "1 as extra"], {"mergeSchema": "true"}, "Change the Delta table schema"),
        (["id", "p"], {"overwriteSchema": "true"}, "Overwrite the Delta table schema"),
        (["id", "p", "s"], {"overwriteSchema": "true", "partition_by": ["p"]}, "change the partition schema"),
    ],
)
def test_rearranged_data_has_the_tables_schema(spark, tmp_path, columns, options, operation):
    path = str(tmp_path / "t")
    with pytest.raises(DeltaAnalysisException, match="Create a Delta table") as caught:
        write(frame(spark, (1, 1)), path, dataChange="false")
    assert caught.value.getErrorClass() == "DELTA_DATA_CHANGE_FALSE"
    write(frame(spark, (1, 1)), path)
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException, match=operation) as caught:
        overwrite(frame(spark, (1, 1)).selectExpr(*columns), path, dataChange="false", **options)
    assert caught.value.getErrorClass() == "DELTA_DATA_CHANGE_FALSE"
    assert files_below(path) == before


def test_rearranged_data_and_a_predicate_on_data(spark, tmp_path):
    path = str(tmp_path / "t")
    write(frame(spark, (1, 1), (2, 2)), path, partition_by=["p"])
    with pytest.raises(DeltaAnalysisException) as caught:
        overwrite(frame(spark, (1, 1)), path, dataChange="false", replaceWhere="id = 1")
    assert caught.value.getErrorClass() == "DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET"
    overwrite(frame(spark, (1, 1)), path, dataChange="false", replaceWhere="p = 1")
    assert ids(load(spark, path)) == [1, 2]


PARTS = [
    {"replaceWhere": "p = 1"},
    {"replaceWhere": "p = 1 and id > 0"},
    {"replaceWhere": "p < 2"},
    {"partitionOverwriteMode": "dynamic"},
]


@pytest.mark.parametrize(("options", "rival"), [*itertools.product(PARTS, [1, 2])])
@pytest.mark.sampled(6)
def test_a_rival_in_the_same_partition_and_in_another(spark, table, options, rival):
    """The rival commits after this write has read the table and written its files."""
    write(frame(spark, (1, 1), (2, 2)), table, partition_by=["p"])
    once = iter([True])

    def append_meanwhile(event, facts):
        if event == "commit prepared" and facts["version"] == 1 and next(once, False):
            write(frame(spark, (10, rival)), table)

    set_observer(append_meanwhile)
    try:
        if rival == 1:
            with pytest.raises(ConcurrentAppendException, match="p=1"):
                overwrite(frame(spark, (5, 1)), table, **options)
        else:
            overwrite(frame(spark, (5, 1)), table, **options)
    finally:
        set_observer(None)
    assert ids(load(spark, table)) == ([1, 2, 10] if rival == 1 else [2, 5, 10])
