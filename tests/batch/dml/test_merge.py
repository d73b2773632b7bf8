"""MERGE: what becomes of the rows, which files it reads and rewrites, what its commit says, what it conflicts
with."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    DeltaIllegalStateException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.tables import actions, commit_file, commit_info, data_files, load, tuples, versions, write
from tests.trials import trials

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_left_open(spark) -> Iterator[None]:
    before, kept = dispatcher.open_handles, set(spark.sparkContext._jsc.getPersistentRDDs())
    yield
    set_observer(None)
    assert dispatcher.open_handles == before
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= kept


def write_files(spark, path, rows, schema="id long, v string", *, files=1, mode="append", partition_by=()):
    """Each file has its own range of the rows, in their order."""
    for start in range(files):
        part = rows[start * len(rows) // files : (start + 1) * len(rows) // files]
        write(spark.createDataFrame(part, schema), path, mode, partition_by)


def merging(spark, path, rows, condition="t.id = s.id", schema="id long, v string"):
    source = rows if not isinstance(rows, list) else spark.createDataFrame(rows, schema)
    return DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), condition)


def test_clauses_apply_in_order(spark, table):
    write_files(spark, table, [(i, "a") for i in range(6)])
    done = (
        merging(spark, table, [(i, "b") for i in range(2, 9)])
        .whenMatchedDelete("s.id = 2")
        .whenMatchedUpdate("s.id <= 3", {"v": "concat(t.v, s.v)"})
        .whenMatchedUpdateAll("s.id = 5")
        .whenNotMatchedInsert("s.id = 6", {"id": "s.id * 10"})
        .whenNotMatchedInsertAll("s.id < 8")
        .whenNotMatchedBySourceDelete("t.id = 0")
        .whenNotMatchedBySourceUpdate(set={"v": F.lit("z")})
        .execute()
    )
    assert done.columns == ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]
    assert done.collect() == [(7, 3, 2, 2)]
    assert tuples(load(spark, table)) == [(1, "z"), (3, "ab"), (4, "a"), (5, "b"), (60, None), (7, "b")]
    made = commit_info(table)
    assert made["operation"] == "MERGE"
    parameters = {name: json.loads(value) for name, value in made["operationParameters"].items()}
    [predicate] = parameters["predicate"]
    assert re.fullmatch(r"\(id#\d+L? = id#\d+L?\)", predicate)
    assert [clause["actionType"] for clause in parameters["matchedPredicates"]] == [
        "delete",
        "update",
        "update",
    ]
    assert [clause["actionType"] for clause in parameters["notMatchedPredicates"]] == ["insert", "insert"]
    assert parameters["notMatchedBySourcePredicates"][1] == {"actionType": "update"}
    by_source = parameters["notMatchedBySourcePredicates"][0]
    assert re.fullmatch(r"\(id#\d+L? = \d+\)", by_source["predicate"])
    metrics = {name: int(value) for name, value in made["operationMetrics"].items() if "Time" not in name}
    assert {name: value for name, value in metrics.items() if "Bytes" not in name} == {
        "numSourceRows": 7,
        "numTargetRowsInserted": 2,
        "numTargetRowsUpdated": 3,
        "numTargetRowsMatchedUpdated": 2,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsDeleted": 2,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 1,
        "numTargetRowsCopied": 1,
        "numOutputRows": 6,
        "numTargetFilesAdded": 2,
        "numTargetFilesRemoved": 1,
        "numTargetChangeFilesAdded": 0,
        "numTargetDeletionVectorsAdded": 0,
        "numTargetDeletionVectorsRemoved": 0,
        "numTargetDeletionVectorsUpdated": 0,
    }
    assert metrics["numTargetBytesAdded"] == sum(add["size"] for add in actions(table, "add"))
    assert metrics["numTargetBytesRemoved"] == sum(remove["size"] for remove in actions(table, "remove"))
    times = ("executionTimeMs", "materializeSourceTimeMs", "scanTimeMs", "rewriteTimeMs")
    assert all(int(made["operationMetrics"][name]) >= 0 for name in times)


@pytest.mark.long
def test_keys_whose_bytes_are_no_text(spark, tmp_path):
    """Python gets another text for them, which is beyond the bounds of the file that has the row."""
    table = str(tmp_path / "table")  # the check of `table` reads texts
    keys = [(bytearray(key),) for key in (b"a", b"b\x80", "bé".encode())]
    of_bytes = spark.createDataFrame(keys, "bytes binary").selectExpr(
        "cast(bytes AS string) AS id", "'a' AS v"
    )
    write(of_bytes.coalesce(1), table)
    source = of_bytes.where("length(bytes) = 2").selectExpr("id", "'b' AS v")
    merging(spark, table, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert load(spark, table).where("v = 'b'").selectExpr("hex(id)").collect() == [("6280",)]
    assert load(spark, table).count() == 3


def test_only_files_with_changed_rows_are_rewritten(spark, table):
    write_files(spark, table, [(i, "a") for i in range(12)], files=4)
    merging(spark, table, [(1, "b"), (7, "b"), (50, "b")]).whenMatchedUpdateAll("s.id < 5").execute()
    assert len(actions(table, "remove")) == len(actions(table, "add")) == 1
    assert tuples(load(spark, table)) == sorted([(i, "b" if i == 1 else "a") for i in range(12)], key=repr)


def test_insert_only_appends_what_matches_nothing(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)], files=2)
    merging(spark, table, [(3, "b"), (4, "b"), (4, "c"), (None, "n")]).whenNotMatchedInsertAll().execute()
    assert actions(table, "remove") == []
    assert len(actions(table, "add")) == 1
    assert commit_info(table)["isBlindAppend"] is False
    assert commit_info(table)["operationMetrics"]["numTargetRowsInserted"] == "3"
    assert len(tuples(load(spark, table))) == 7


@pytest.mark.long
def test_insert_only_into_an_append_only_table(spark, table):
    write_files(spark, table, [(1, "a")])
    spark.sql(f"alter table delta.`{table}` set tblproperties ('delta.appendOnly' = 'true')")
    merging(spark, table, [(1, "b"), (2, "b")]).whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table)) == [(1, "a"), (2, "b")]
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        merging(spark, table, [(1, "b")]).whenMatchedDelete().execute()


def test_nothing_to_do_commits_nothing(spark, table):
    write_files(spark, table, [(1, "a")])
    done = merging(spark, table, [(1, "b"), (5, "b")]).whenMatchedUpdateAll("s.v = 'x'").execute()
    assert done.collect() == [(0, 0, 0, 0)]
    merging(spark, table, []).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert len(versions(table)) == 1


@pytest.mark.long
def test_an_empty_source_still_has_rows_that_it_does_not_match(spark, table):
    write_files(spark, table, [(1, "a"), (2, "a")], files=2)
    done = merging(spark, table, []).whenNotMatchedBySourceDelete("t.id = 2").execute()
    assert done.collect() == [(1, 0, 1, 0)]
    assert (actions(table, "add"), len(actions(table, "remove"))) == ([], 1)
    assert tuples(load(spark, table)) == [(1, "a")]


def test_an_empty_table(spark, table):
    write_files(spark, table, [])
    merging(spark, table, [(1, "b")]).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table)) == [(1, "b")]


def test_several_source_rows_for_one_row(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)])
    twice = [(1, "x"), (1, "y"), (2, "z")]
    refused = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    for builder in (
        merging(spark, table, twice).whenMatchedUpdateAll(),
        merging(spark, table, twice).whenMatchedDelete("s.v = 'x'"),
        merging(spark, table, twice).whenMatchedUpdateAll("s.id = 3").whenMatchedDelete(),
    ):
        with pytest.raises(DeltaUnsupportedOperationException, match=refused) as error:
            builder.execute()
        assert "id = 1 (2 source rows)" in str(error.value)
    assert len(versions(table)) == 1
    done = merging(spark, table, [*twice, (9, "n")]).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert done.collect() == [(3, 0, 2, 1)]
    assert tuples(load(spark, table)) == [(0, "a"), (3, "a"), (9, "n")]


@pytest.mark.long
def test_conditions_that_compare_no_keys(spark, table):
    write_files(spark, table, [(i, "a") for i in range(6)])
    merging(spark, table, [(2, "b"), (9, "n")], "t.id > s.id and t.id < s.id + 2").whenMatchedUpdate(
        set={"v": "s.v"}
    ).whenNotMatchedInsertAll().execute()
    assert dict(tuples(load(spark, table))) == {**dict.fromkeys(range(6), "a"), 3: "b", 9: "n"}
    merging(spark, table, [(1, "y")], "t.id = 3").whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert 3 not in [row[0] for row in tuples(load(spark, table))]
    merging(spark, table, [(7, "y")], F.lit(False)).whenNotMatchedInsertAll().execute()
    assert (7, "y") in tuples(load(spark, table))


def test_null_keys_match_only_where_the_condition_says_so(spark, table):
    write_files(spark, table, [(None, "a"), (1, "a")])
    merging(spark, table, [(None, "b")]).whenMatchedUpdateAll().execute()
    assert tuples(load(spark, table)) == [(1, "a"), (None, "a")]
    merging(
        spark, table, [(None, "b")], "t.id <=> s.id"
    ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table)) == [(1, "a"), (None, "b")]


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        ("timestamp_ntz", ["2024-03-10 02:30:00", "1500-02-28 00:00:00", "0001-01-01 00:00:00.000001"]),
        ("timestamp", ["2024-03-10 03:30:00", "1500-02-28 00:00:00", "0001-01-02 00:00:00.000001"]),
        ("date", ["0001-01-01", "2024-03-10", "9999-12-31"]),
    ],
)
@pytest.mark.long
def test_days_and_times_match_whatever_the_time_zone(spark, table, setting, data_type, values):
    setting("spark.sql.session.timeZone", "America/New_York")
    for value in values:
        row = spark.sql(f"select cast('{value}' as {data_type}) id, 'a' v")
        row.write.format("delta").mode("append").save(table)
    source = spark.sql(
        " union all ".join(f"select cast('{value}' as {data_type}) id, 'b' v" for value in values)
    )
    done = merging(spark, table, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert done.collect() == [(3, 3, 0, 0)]


@pytest.mark.long
def test_times_without_a_zone_match_where_intervals_are_of_the_old_type(spark, table, setting):
    setting("spark.sql.legacy.interval.enabled", "true")
    rows = "select timestamp_ntz'2024-03-10 02:30:00' id, 'a' v"
    spark.sql(rows).write.format("delta").save(table)
    merging(spark, table, spark.sql(rows.replace("'a'", "'b'"))).whenMatchedUpdateAll().execute()
    assert [row["v"] for row in load(spark, table).collect()] == ["b"]


@pytest.mark.parametrize("data_type", ["timestamp_ntz", "timestamp"])
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("others", [0, 150])
@pytest.mark.sampled(8)
def test_the_last_microsecond_of_a_second(spark, tmp_path, data_type, partitioned, others):
    """Files are left out by the values of the source: by a list of them, or by the least and the greatest."""
    path = str(tmp_path / "last")
    days = ["0001-01-02", "1969-12-31", "9999-12-30"]
    keys = [f"{data_type}'{day} 23:59:59.999999'" for day in days]
    for key in keys:
        writer = spark.sql(f"select {key} id, 'a' v").write.format("delta").mode("append")
        (writer.partitionBy("id") if partitioned else writer).save(path)
    for key in keys:
        source = spark.range(others + 1).selectExpr(f"{key} - make_dt_interval(0, 0, 0, id) id", "'b' v")
        done = merging(spark, path, source).whenMatchedUpdateAll().execute()
        assert done.collect() == [(1, 1, 0, 0)], key
    assert [row["v"] for row in load(spark, path).collect()] == ["b"] * len(keys)


@pytest.mark.parametrize("data_type", ["timestamp_ntz", "timestamp", "date"])
@pytest.mark.parametrize("others", [0, 150])
@pytest.mark.sampled(6)
def test_keys_beyond_the_years_of_python(spark, tmp_path, data_type, others):
    path = str(tmp_path / "far")
    key = f"cast('12024-03-10' as {data_type}) id"
    spark.sql(f"select {key}, 'a' v").write.format("delta").save(path)
    source = spark.sql(f"select {key}, 'b' v")
    if others:
        source = source.union(
            spark.range(others).selectExpr(f"cast(date_add('2024-01-01', int(id)) as {data_type})", "'n'")
        )
    builder = merging(spark, path, source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert builder.execute().collect() == [(1 + others, 1, 0, others)]
    assert load(spark, path).where("v = 'b'").count() == 1


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("map('id', id) m, v", "s.m['id']"),
        ("named_struct('in', array(map('id', id), null)) m, v", "s.m.in[0]['id']"),
        ("if(id = 9, map('id', map('id', id)), map('id', map('id', id, 'x', null))) m, v", "s.m['id']['id']"),
    ],
)
@pytest.mark.long
def test_keys_in_maps_of_the_source(spark, table, columns, key):
    write_files(spark, table, [(1, "a"), (2, "a")])
    source = spark.sql(f"select {columns} from values (1L, 'b'), (9L, 'n') as x(id, v)")
    builder = merging(spark, table, source, f"t.id = {key}").whenMatchedUpdate(set={"v": "s.v"})
    builder.whenNotMatchedInsert(values={"id": key, "v": "s.v"}).execute()
    assert tuples(load(spark, table)) == [(1, "b"), (2, "a"), (9, "n")]


@pytest.mark.parametrize(
    ("keys", "condition"),
    [
        ("double(k) k from values ('0.0'), ('-0.0'), ('-0.0') as x(k)", "t.id = cast(s.k as string)"),
        ("float(k) k from values ('0.0'), ('-0.0'), ('-0.0') as x(k)", "t.id = cast(s.k as string)"),
        (
            "array(named_struct('in', double(k))) k from values ('0.0'), ('-0.0'), ('-0.0') as x(k)",
            "t.id = cast(s.k[0].in as string)",
        ),
        (
            "k collate UTF8_LCASE k from values ('x'), ('X'), ('X') as x(k)",
            "replace(t.id, '0.0', 'x') = s.k collate UTF8_BINARY",
        ),
        ("parse_json(k) k from values ('0.0'), ('1'), ('2') as x(k)", "t.id = double(s.k::string)::string"),
        (
            "make_interval(0, 0, 0, k) k from values (0), (1), (2) as x(k)",
            "t.id = double(extract(day from s.k))::string",
        ),
    ],
)
@pytest.mark.long
def test_keys_that_spark_takes_for_others_or_does_not_compare(spark, table, keys, condition):
    write_files(spark, table, [("0.0", 1), ("other", 2)], "id string, v int")
    builder = (
        DeltaTable.forPath(spark, table).alias("t").merge(spark.sql(f"select {keys}").alias("s"), condition)
    )
    inserts = {"id": "'new'", "v": "0"}
    clauses = builder.whenMatchedUpdate(set={"v": "9"}).whenNotMatchedInsert(values=inserts)
    clauses.whenNotMatchedBySourceDelete().execute()
    assert tuples(load(spark, table)) == [("0.0", 9), ("new", 0), ("new", 0)]
    builder.whenNotMatchedInsert(values=inserts).execute()
    assert load(spark, table).count() == 5


@pytest.mark.parametrize("number", [2, 150])
@pytest.mark.long
def test_keys_that_only_some_rows_of_the_source_have(spark, table, number):
    write_files(spark, table, [(1, "a"), (2, "b")])
    rows = [("1", "c"), *[("none", "x")] * (number - 1)]
    merge = merging(spark, table, rows, "s.v <> 'x' AND t.id = s.key", "key string, v string")
    assert merge.whenMatchedUpdate(set={"v": "s.v"}).execute().collect() == [(1, 1, 0, 0)]
    assert tuples(load(spark, table)) == [(1, "c"), (2, "b")]
    assert commit_info(table)["operationMetrics"]["numSourceRows"] == str(number)


def test_nan_equals_nan(spark, table):
    spark.sql("select double('nan') id, 'a' v union all select 2D, 'a'").write.format("delta").save(table)
    source = spark.sql("select double('nan') id, 'b' v")
    done = merging(spark, table, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert done.collect() == [(1, 1, 0, 0)]
    assert [v for _, v in tuples(load(spark, table))] == ["a", "b"]


@pytest.mark.long
def test_a_void_column_of_the_source(spark, table):
    write_files(spark, table, [(None, "a"), (2, "b")])
    source = spark.createDataFrame([(None, "c", 1), (None, "d", 2)], "id void, v string, n int")
    merge = merging(spark, table, source, "t.id <=> s.id AND s.n = 1")
    inserted = merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values={"v": "s.v"})
    assert inserted.execute().collect() == [(2, 1, 0, 1)]
    assert sorted(v for _, v in tuples(load(spark, table))) == ["b", "c", "d"]
    merge = merging(spark, table, source.where("n = 1"), "t.id <=> s.id AND t.v = 'c'")
    inserted = merge.whenMatchedUpdate(set={"v": "'e'"}).whenNotMatchedInsert(values={"v": "s.v"})
    assert inserted.execute().collect() == [(1, 1, 0, 0)]


def test_the_least_decimal(spark, table):
    frame = "select cast(1E-38BD as decimal(38, 38)) id"
    spark.sql(f"{frame}, 'a' v").write.format("delta").save(table)
    done = merging(spark, table, spark.sql(f"{frame}, 'b' v")).whenMatchedUpdateAll().execute()
    assert done.collect() == [(1, 1, 0, 0)]


# -- which files are read ----------------------------------------


@pytest.fixture
def files_read(spark):
    """The names of the files that the jobs of an action list."""

    def of(action):
        seen: set[str] = set()
        original = dispatcher._handlers["scan.files"]

        def spy(request):
            answer = original(request)
            import pyarrow as pa

            seen.update(pa.ipc.open_stream(answer).read_all()["path"].to_pylist())
            return answer

        dispatcher._handlers["scan.files"] = spy
        try:
            action()
        finally:
            dispatcher._handlers["scan.files"] = original
        return {Path(name).name for name in seen}

    return of


def files_of(spark, path, condition):
    found = load(spark, path).where(condition).select("_metadata.file_name").distinct()
    return {row[0] for row in found.collect()}


@pytest.mark.parametrize("many", [3, 300])
@pytest.mark.sampled(2)
def test_files_are_pruned_by_the_keys_of_the_source(spark, table, files_read, many):
    write_files(spark, table, [(i, "a") for i in range(4000)], files=4)
    source = spark.range(1500, 1500 + many).selectExpr("cast(id as int) id", "'b' v")
    expected = files_of(spark, table, "id >= 1500 and id < 1800")
    assert files_read(merging(spark, table, source).whenMatchedUpdateAll().execute) <= expected
    assert files_read(merging(spark, table, source).whenNotMatchedInsertAll().execute) <= files_of(
        spark, table, "id >= 1500 and id < 1800"
    )
    assert len(tuples(load(spark, table))) == 4000


def test_files_are_pruned_by_conditions_on_the_table(spark, table, files_read):
    write_files(spark, table, [(i, "a") for i in range(8)], files=4)
    source = spark.createDataFrame([(i, "b") for i in range(200)], "id long, v string")
    builder = merging(spark, table, source, "t.id = s.id and t.id > 5").whenMatchedUpdateAll()
    expected = files_of(spark, table, "id > 5")
    assert files_read(builder.execute) == expected
    assert tuples(load(spark, table)).count((7, "b")) == 1


@pytest.mark.long
def test_rows_without_a_match_need_the_files_that_their_condition_leaves(spark, table, files_read):
    write_files(spark, table, [(i, "a") for i in range(8)], files=4)
    last = files_of(spark, table, "id > 5")
    builder = merging(spark, table, [(0, "b")]).whenNotMatchedBySourceUpdate("t.id > 5", {"v": "'z'"})
    assert files_read(builder.execute) <= last | files_of(spark, table, "id = 0")
    assert tuples(load(spark, table))[-2:] == [(6, "z"), (7, "z")]


@pytest.mark.long
@pytest.mark.parametrize("days", [3, 150])
def test_partitions_by_a_source_of_many_rows(spark, table, files_read, days):
    """Of up to 100 days it looks for each, of more for their range."""
    spark.sql("select id, 'a' v, id * 2 day from range(200)").coalesce(1).write.format("delta").partitionBy(
        "day"
    ).save(table)
    source = spark.sql(f"select id, 'b' v, id % {days} * 2 day from range(200)")
    builder = merging(spark, table, source, "t.id = s.id and t.day = s.day").whenMatchedUpdateAll()
    expected = files_of(spark, table, f"day < {2 * days}")
    assert files_read(builder.whenNotMatchedInsertAll("s.id = 199").execute) == expected
    assert load(spark, table).where("v = 'b'").count() == days + 1


def test_a_window_of_days_reads_its_partitions(spark, table, files_read):
    days = [(i, f"2024-01-0{1 + i % 8}") for i in range(16)]
    write_files(spark, table, days, "id long, d string", partition_by=["d"])
    source = spark.createDataFrame([(1, "2024-01-02"), (99, "2024-01-08")], "id long, d string")
    window = "t.id = s.id and t.d > '2024-01-06'"
    read = files_read(merging(spark, table, source, window).whenNotMatchedInsertAll().execute)
    assert read <= files_of(spark, table, "d > '2024-01-06'")
    assert len(tuples(load(spark, table))) == 18  # the day of id 1 is outside of the window


# -- the source ----------------------------------------


def test_a_source_that_is_not_deterministic_is_read_once(spark, table):
    write_files(spark, table, [(i, "a") for i in range(50)])
    source = (
        spark.range(100).selectExpr("id", "if(rand() < 0.5, 'x', 'y') AS v", "uuid() AS u").where("v = 'x'")
    )
    merging(spark, table, source).whenMatchedUpdate(set={"v": "s.u"}).whenNotMatchedInsert(
        values={"id": "s.id", "v": "s.u"}
    ).execute()
    metrics = commit_info(table)["operationMetrics"]
    changed = int(metrics["numTargetRowsUpdated"]) + int(metrics["numTargetRowsInserted"])
    assert changed == int(metrics["numSourceRows"]) > 0


@pytest.mark.parametrize("mode", ["all", "none"])
@pytest.mark.sampled(2)
def test_the_session_says_whether_the_source_is_materialised(spark, table, setting, mode):
    write_files(spark, table, [(1, "a")])
    setting("spark.databricks.delta.merge.materializeSource", mode)
    source = spark.sql("select * from values (1L, 'b'), (2L, 'b') as s (id, v)")
    checkpoints = []
    source_class = type(source)
    original = source_class.localCheckpoint
    source_class.localCheckpoint = lambda self, **how: checkpoints.append(1) or original(self, **how)
    try:
        merging(spark, table, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    finally:
        source_class.localCheckpoint = original
    assert len(checkpoints) == (mode == "all")
    assert tuples(load(spark, table)) == [(1, "b"), (2, "b")]


def test_the_table_is_its_own_source(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)])
    own = DeltaTable.forPath(spark, table).toDF().where("id > 1").selectExpr("id + 1 as id", "'b' as v")
    merging(spark, table, own).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table)) == [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert commit_info(table)["readVersion"] == 0


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.long
def test_a_rival_of_a_self_merge_wins(spark, table, tmp_path, linked):
    write_files(spark, table, [(i, "a") for i in range(4)], files=4)
    (tmp_path / "link").symlink_to(table)
    own = DeltaTable.forPath(spark, str(tmp_path / "link") if linked else table).toDF()
    rival = once("files written", lambda: DeltaTable.forPath(spark, table).delete("id = 3"))
    set_observer(rival)
    with pytest.raises(ConcurrentDeleteReadException):
        merging(spark, table, own).whenMatchedUpdate("t.id = 0", {"v": "'x'"}).execute()


def test_a_cached_source_is_what_spark_has_cached(spark, table):
    write_files(spark, table, [(1, "a"), (2, "a")])
    source = spark.range(1, 4).selectExpr("id", "uuid() AS v").cache()
    try:
        values = {row.id: row.v for row in source.collect()}
        merging(spark, table, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert dict(tuples(load(spark, table))) == values
    finally:
        source.unpersist(blocking=True)


# -- checks of rows ----------------------------------------


def test_rows_are_checked(spark, table):
    spark.sql(f"create table delta.`{table}` (id long not null, v string, c char(3)) using delta")
    spark.sql(f"alter table delta.`{table}` add constraint small check (id < 100)")
    source = spark.sql("select 1L id, 'a' v, 'c' c")
    merging(spark, table, source).whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table)) == [(1, "a", "c  ")]
    for values in ({"v": "s.v"}, {"id": "200"}, {"id": "5", "c": "'toolong'"}):
        with pytest.raises(DeltaInvariantViolationException):
            merging(spark, table, source, "false").whenNotMatchedInsert(values=values).execute()
    with pytest.raises(DeltaInvariantViolationException):
        merging(spark, table, source).whenMatchedUpdate(set={"id": "null"}).execute()
    assert len(tuples(load(spark, table))) == 1


def test_a_row_that_gets_lost_fails_the_merge(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)])
    [add] = actions(table, "add")
    log = commit_file(table, 0)
    log.write_text(log.read_text().replace('\\"numRecords\\":4', '\\"numRecords\\":5'))
    before = data_files(table)
    with pytest.raises(DeltaIllegalStateException, match="DELTA_NUM_RECORDS_MISMATCH"):
        merging(spark, table, [(1, "b"), (7, "b")]).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert len(versions(table)) == 1
    assert data_files(table) == before
    log.write_text(log.read_text().replace('\\"numRecords\\":5', '\\"numRecords\\":4'))
    assert add["path"]


# -- races ----------------------------------------


def once(point, action):
    """An observer that runs the action when the point is reached for the first time."""
    done = []

    def observer(reached, _):
        if reached == point and not done:
            done.append(True)
            action()

    return observer


def upsert(spark, path, rows, condition="t.id = s.id", schema="id long, v string"):
    builder = merging(spark, path, rows, condition, schema)
    return builder.whenMatchedUpdateAll().whenNotMatchedInsertAll()


def test_a_rival_that_removes_what_was_read_wins(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)], files=4)
    set_observer(once("files written", lambda: DeltaTable.forPath(spark, table).delete("id = 3")))
    before = data_files(table)
    with pytest.raises(ConcurrentDeleteReadException):
        upsert(spark, table, [(1, "b")]).execute()
    assert data_files(table) == before
    assert tuples(load(spark, table)) == [(0, "a"), (1, "a"), (2, "a")]


@pytest.mark.parametrize("clause", ["insert", "upsert"])
def test_a_rival_that_may_have_added_the_keys_wins(spark, table, clause):
    write_files(spark, table, [(i, "a") for i in range(4)])

    def rival():
        merging(spark, table, [(9, "r")]).whenNotMatchedInsertAll().execute()

    set_observer(once("files written", rival))
    builder = merging(spark, table, [(9, "b")]).whenNotMatchedInsertAll()
    builder = builder if clause == "insert" else builder.whenMatchedUpdateAll()
    with pytest.raises(ConcurrentAppendException):
        builder.execute()
    assert [row for row in tuples(load(spark, table)) if row[0] == 9] == [(9, "r")]


@pytest.mark.parametrize("condition", ["t.id = s.id and t.d = 1", "t.id = s.id and t.d = s.d"])
@pytest.mark.long
def test_merges_into_disjoint_partitions_do_not_conflict(spark, table, condition):
    schema = "id long, v string, d int"
    write_files(spark, table, [(1, "a", 1), (2, "a", 2)], schema, partition_by=["d"])
    rival = upsert(spark, table, [(2, "r", 2), (3, "r", 2)], "t.id = s.id and t.d = 2", schema)
    set_observer(once("files written", rival.execute))
    upsert(spark, table, [(1, "b", 1), (4, "b", 1)], condition, schema).execute()
    assert tuples(load(spark, table)) == [(1, "b", 1), (2, "r", 2), (3, "r", 2), (4, "b", 1)]


# -- once only ----------------------------------------


def test_a_merge_with_a_version_of_an_application_is_made_once(spark, table, setting):
    write_files(spark, table, [(1, "a")])
    setting("spark.databricks.delta.write.txnAppId", "app")
    setting("spark.databricks.delta.write.txnVersion", "7")
    assert upsert(spark, table, [(2, "b")]).execute().collect() == [(1, 0, 0, 1)]
    assert [(txn["appId"], txn["version"]) for txn in actions(table, "txn")] == [("app", 7)]
    assert upsert(spark, table, [(3, "b")]).execute().collect() == []
    setting("spark.databricks.delta.write.txnVersion", "8")
    upsert(spark, table, []).execute()  # nothing to do, and it is remembered
    assert [txn["version"] for txn in actions(table, "txn")] == [8]
    assert tuples(load(spark, table)) == [(1, "a"), (2, "b")]


@pytest.mark.long
def test_upserts_in_foreach_batch(spark, table, tmp_path):
    write_files(spark, table, [(1, "a")])
    inbox = tmp_path / "inbox"
    runs = []

    def batch(frame, batch_id):
        session = frame.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", "stream")
        session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
        for _ in range(2):  # as after a restart
            target = DeltaTable.forPath(session, table).alias("t")
            builder = target.merge(frame.alias("s"), "t.id = s.id").whenMatchedUpdate(
                set={"v": "concat(t.v, s.v)"}
            )
            runs.append(builder.whenNotMatchedInsertAll().execute().count())

    for rows in ([(1, "b"), (2, "b")], [(2, "c")]):
        spark.createDataFrame(rows, "id long, v string").coalesce(1).write.mode("append").parquet(str(inbox))
        stream = spark.readStream.schema("id long, v string").parquet(str(inbox)).writeStream
        query = stream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "cp"))
        query.trigger(availableNow=True).start().awaitTermination()
    assert runs == [1, 0, 1, 0]
    assert tuples(load(spark, table)) == [(1, "ab"), (2, "bc")]


# -- against a model ----------------------------------------


def predicate(draw: random.Random, sides: str) -> tuple[str | None, Any]:
    """A condition in SQL and as a function of the two rows (id, v)."""
    side = draw.choice(sides)
    bound = draw.randrange(4)
    of = {"t": lambda t, s: t, "s": lambda t, s: s}[side]
    choice = draw.randrange(3)
    if choice == 0:
        return f"{side}.id % 4 > {bound}", lambda t, s: of(t, s)[0] % 4 > bound
    if choice == 1:
        return f"{side}.v <> {bound}", lambda t, s: of(t, s)[1] is not None and of(t, s)[1] != bound
    return (
        f"{side}.v is null or {side}.id = {bound}",
        lambda t, s: of(t, s)[1] is None or of(t, s)[0] == bound,
    )


def modelled(target, source, clauses):
    """SQL's semantics, a row at a time. clauses: (when, action, condition, value)."""
    result, counts = [], {"update": 0, "delete": 0, "insert": 0}

    def first(when, t, s):
        return next((c for c in clauses if c[0] == when and (c[2] is None or c[2](t, s))), None)

    for t in target:
        matches = [s for s in source if s[0] == t[0]]
        clause = first("matched", t, matches[0]) if matches else first("bySource", t, None)
        if clause is None:
            result.append(t)
            continue
        counts[clause[1]] += 1
        if clause[1] == "update":
            result.append(clause[3](t, matches[0] if matches else None))
    keys = {t[0] for t in target}
    for s in source:
        clause = None if s[0] in keys else first("notMatched", None, s)
        if clause is not None:
            counts["insert"] += 1
            result.append(clause[3](None, s))
    return sorted(result, key=repr), counts


def random_clauses(draw: random.Random, builder):
    """Adds clauses to a builder; returns it with them as the model takes them."""
    model = []
    for when in draw.sample(["matched", "notMatched", "bySource"], draw.randint(1, 3)):
        number = draw.randint(1, 3)
        for i in range(number):
            last = i == number - 1 and draw.random() < 0.6
            sides = {"matched": "ts", "notMatched": "s", "bySource": "t"}[when]
            sql, holds = (None, None) if last else predicate(draw, sides)
            if when == "notMatched":
                if draw.random() < 0.5:
                    builder = builder.whenNotMatchedInsertAll(sql)
                    model.append((when, "insert", holds, lambda t, s: s))
                else:
                    builder = builder.whenNotMatchedInsert(sql, {"id": "s.id", "v": "s.v + 10"})
                    model.append(
                        (when, "insert", holds, lambda t, s: (s[0], None if s[1] is None else s[1] + 10))
                    )
            elif draw.random() < 0.4:
                add = builder.whenMatchedDelete if when == "matched" else builder.whenNotMatchedBySourceDelete
                builder = add(sql)
                model.append((when, "delete", holds, None))
            elif when == "matched" and draw.random() < 0.5:
                builder = builder.whenMatchedUpdateAll(sql)
                model.append((when, "update", holds, lambda t, s: s))
            else:
                add = builder.whenMatchedUpdate if when == "matched" else builder.whenNotMatchedBySourceUpdate
                builder = add(sql, {"v": "t.id + 100"})
                model.append((when, "update", holds, lambda t, s: (t[0], t[0] + 100)))
    return builder, model


@pytest.mark.parametrize("seed", trials(8, short=1))
def test_random_clauses_do_what_sql_says(spark, table, seed):
    draw = random.Random(seed)

    def value():
        return draw.choice([None, 0, 1, 2, 3])

    target = [(i, value()) for i in draw.sample(range(40), 20)]
    write_files(spark, table, target, "id long, v long", files=3)
    for _ in range(2):
        source = [(i, value()) for i in draw.sample(range(60), draw.choice([0, 1, 15]))]
        builder, model = random_clauses(draw, merging(spark, table, source, schema="id long, v long"))
        target, counts = modelled(target, source, model)
        [done] = builder.execute().collect()
        assert done == (sum(counts.values()), counts["update"], counts["delete"], counts["insert"])
        assert tuples(load(spark, table)) == target


# -- SQL ----------------------------------------


def test_sql_by_path(spark, table):
    write_files(spark, table, [(i, "a") for i in range(4)])
    done = spark.sql(
        f"""
        merge into delta.`{table}` as t
        using (select id, v from values (1L, 'b'), (7L, 'b') as x (id, v)) s
        on t.id = s.id
        when matched and s.v = :v then update set t.v = concat(t.v, :v)
        when not matched then insert (id, v) values (s.id, s.v)
        when not matched by source and t.id = 0 then delete
        """,
        {"v": "b"},
    )
    assert done.collect() == [(3, 1, 1, 1)]
    assert tuples(load(spark, table)) == [(1, "ab"), (2, "a"), (3, "a"), (7, "b")]
    assert commit_info(table)["operation"] == "MERGE"


@pytest.mark.long
def test_sql_by_name(spark, table):
    write_files(spark, table, [(i, "a") for i in range(3)])
    spark.sql(f"create table merged using delta location '{table}'")
    try:
        spark.sql(
            """
            with s as (select 1L as id, 'b' as v union all select 8L, 'b')
            merge into merged using s on merged.id = s.id
            when matched then update set * when not matched then insert *
            """
        )
        on = "default.merged.id = s.id + 8"
        spark.sql(f"merge into default.merged using merged as s on {on} when matched then delete")
        assert tuples(load(spark, table)) == [(0, "a"), (1, "b"), (2, "a")]
        assert spark.table("merged").count() == 3
    finally:
        spark.sql("drop table merged")


def test_sql_with_schema_evolution(spark, table):
    write_files(spark, table, [(1, "a")])
    spark.sql(
        f"merge with schema evolution into delta.`{table}` t using (select 2L id, 'b' v, 5 w) s "
        "on t.id = s.id when not matched then insert *"
    )
    assert tuples(load(spark, table)) == [(1, "a", None), (2, "b", 5)]
