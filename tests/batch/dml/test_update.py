"""UPDATE: what it sets, which files it rewrites, what its commit says, what it refuses."""

from __future__ import annotations

import random
import re

import pytest
from pyspark.errors import AnalysisException, NumberFormatException
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentAppendException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
)
from tests.tables import (
    actions,
    commit_info,
    data_files,
    latest_version,
    load,
    read_commit,
    rows_by_deltalake,
    tuples,
    write,
)

pytestmark = pytest.mark.spark

TIMES = {"executionTimeMs", "scanTimeMs", "rewriteTimeMs"}


def metrics(path):
    found = commit_info(path)["operationMetrics"]
    return {name: int(value) for name, value in found.items()}


@pytest.fixture
def made(spark, table):
    """Makes the table of rows in SQL, each text one file's; returns the DeltaTable."""

    def make(*files, partition_by=()):
        for file in files:
            write(spark.sql(f"select * from {file}"), table, partition_by=partition_by)
        return DeltaTable.forPath(spark, table)

    return make


PARTS = "values (1, 'a', 10), (2, 'a', null), (3, 'b', 30) as t(id, P, x)"
MORE = "values (4, 'b', 40), (5, null, 50) as t(id, P, x)"


def all_rows(*changed):
    """Those of PARTS and MORE, with the changed ones instead."""
    rows = [(1, "a", 10), (2, "a", None), (3, "b", 30), (4, "b", 40), (5, None, 50)]
    return list(({row[0]: row for row in rows} | {row[0]: row for row in changed}).values())


class TestRewrite:
    def test_only_touched_files_are_rewritten(self, spark, made, table):
        deltas = made(PARTS, MORE)
        deltas.update("id = 3", {"x": "x + 1"})
        assert tuples(load(spark, table)) == [
            (1, "a", 10),
            (2, "a", None),
            (3, "b", 31),
            (4, "b", 40),
            (5, None, 50),
        ]
        commit = read_commit(table)
        assert [len([a for a in commit if name in a]) for name in ("remove", "add")] == [1, 1]
        assert commit[0]["commitInfo"]["operation"] == "UPDATE"
        predicate = commit[0]["commitInfo"]["operationParameters"]["predicate"]
        assert re.fullmatch(r'\["\(id#\d+L? = 3\)"\]', predicate)
        added, removed = (next(a[name] for a in commit if name in a) for name in ("add", "remove"))
        assert {name: value for name, value in metrics(table).items() if name not in TIMES} == {
            "numRemovedFiles": 1,
            "numRemovedBytes": removed["size"],
            "numAddedFiles": 1,
            "numAddedBytes": added["size"],
            "numAddedChangeFiles": 0,
            "numDeletionVectorsAdded": 0,
            "numDeletionVectorsRemoved": 0,
            "numDeletionVectorsUpdated": 0,
            "numUpdatedRows": 1,
            "numCopiedRows": 2,
        }
        assert set(metrics(table)) > TIMES

    def test_all_rows(self, spark, made, table):
        made(PARTS, MORE, partition_by=["P"]).update(set={"x": F.lit(7)})
        assert tuples(load(spark, table)) == [
            (i, p, 7) for i, p in zip(range(1, 6), ["a", "a", "b", "b", None], strict=True)
        ]
        assert commit_info(table)["operationParameters"] == {"predicate": "[]"}
        assert (metrics(table)["numUpdatedRows"], metrics(table)["numCopiedRows"]) == (5, 0)

    def test_by_partitions_alone_no_job_looks_for_files(self, spark, made, table):
        made(PARTS, MORE, partition_by=["P"]).update("p = 'b'", {"X": "id"})
        assert tuples(load(spark, table)) == [
            (1, "a", 10),
            (2, "a", None),
            (3, "b", 3),
            (4, "b", 4),
            (5, None, 50),
        ]
        assert (metrics(table)["numRemovedFiles"], metrics(table)["numUpdatedRows"]) == (2, 2)

    def test_partition_columns_move_rows(self, spark, made, table):
        deltas = made(PARTS, MORE, partition_by=["P"])
        deltas.update("id in (1, 4)", {"p": "if(id = 1, null, 'new')"})
        assert tuples(load(spark, table)) == [
            (1, None, 10),
            (2, "a", None),
            (3, "b", 30),
            (4, "new", 40),
            (5, None, 50),
        ]
        values = {add["partitionValues"]["P"] for add in actions(table, "add")}
        assert values == {None, "a", "new"}

    def test_rows_for_which_the_condition_is_null_stay(self, spark, made, table):
        made(PARTS).update("x > 10", {"P": "'set'"})
        assert tuples(load(spark, table)) == [(1, "a", 10), (2, "a", None), (3, "set", 30)]

    def test_values_see_the_old_row(self, spark, made, table):
        made("values (1, 2) as t(a, b)").update(set={"a": "b", "b": "a"})
        assert tuples(load(spark, table)) == [(2, 1)]

    @pytest.mark.parametrize("condition", ["id < 0", "false", "p = 'c'"])
    def test_without_a_row_there_is_no_commit(self, made, table, condition):
        made(PARTS, partition_by=["P"]).update(condition, {"x": "1"})
        assert latest_version(table) == 0

    def test_values_of_other_rows_are_not_computed(self, spark, made, table):
        made("values (1, 0), (2, 4) as t(id, x)").update("x <> 0", {"id": "8 div x"})
        assert tuples(load(spark, table)) == [(1, 0), (2, 4)]

    def test_other_rows_keep_values_that_the_new_ones_type_lacks(self, spark, made, table):
        made(f"values (1, {2**62 + 1}), (2, 5) as t(id, x)").update("id = 2", {"x": "cast(7 as double)"})
        assert tuples(load(spark, table)) == [(1, 2**62 + 1), (2, 7)]

    @pytest.mark.long
    def test_values_by_functions_of_python_and_of_chance(self, spark, made, table):
        double = F.udf(lambda x: None if x is None else x * 2, "int")  # Spark runs it for all rows
        made(PARTS).update(F.col("x").isNotNull(), {"x": double("x"), "P": F.expr("uuid()")})
        rows = tuples(load(spark, table))
        assert [(i, x) for i, _, x in rows] == [(1, 20), (2, None), (3, 60)]
        assert [len(p) for _, p, _ in rows] == [36, 1, 36]

    def test_random_conditions(self, spark, table, random_table):
        chance = random.Random(11)
        model = random_table(chance)
        conditions = [
            ("p = 'a'", lambda r: r["p"] == "a"),
            ("p is null and x > 3", lambda r: r["p"] is None and r["x"] is not None and r["x"] > 3),
            ("x >= 8", lambda r: r["x"] is not None and r["x"] >= 8),
            ("id % 7 = 3 or x is null", lambda r: r["id"] % 7 == 3 or r["x"] is None),
        ]
        sets = [
            ({"x": "id % 5"}, lambda r: {"x": r["id"] % 5}),
            ({"p": "'b'", "x": "null"}, lambda r: {"p": "b", "x": None}),
            ({"p": "nullif(p, 'b')"}, lambda r: {"p": None if r["p"] == "b" else r["p"]}),
        ]
        for _ in range(5):
            (condition, holds), (values, new) = chance.choice(conditions), chance.choice(sets)
            DeltaTable.forPath(spark, table).update(condition, values)
            model = [{**r, **new(r)} if holds(r) else r for r in model]
            assert rows_by_deltalake(table) == sorted(model, key=repr), (condition, values)


class TestAssignments:
    NESTED = "values (1, named_struct('a', 1, 'In', named_struct('b', 'x', 'c.d', 2))), (2, null) as t(id, S)"

    def test_fields(self, spark, made, table):
        deltas = made(self.NESTED)
        deltas.alias("t").update("id = 1", {"t.s.in.B": "concat(s.in.b, '!')", "s.A": "s.a + id"})
        deltas.update("id = 1", {"`S`.In.`c.d`": "7"})
        deltas.update("id = 2", {"S.a": "5"})
        assert [row.asDict(recursive=True) for row in load(spark, table).sort("id").collect()] == [
            {"id": 1, "S": {"a": 2, "In": {"b": "x!", "c.d": 7}}},
            {"id": 2, "S": {"a": 5, "In": None}},
        ]

    def test_structs_are_matched_by_name(self, spark, made, table):
        deltas = made("values (1, named_struct('a', 1, 'b', 2L)) as t(id, s)")
        deltas.update(set={"s": "named_struct('B', 20, 'a', 10)"})
        assert load(spark, table).first().s.asDict() == {"a": 10, "b": 20}

    def test_fields_whose_names_differ_in_case_alone(self, spark, made, table, settings):
        deltas = made("values (1, named_struct('a', 1)) as t(id, s)")
        with (
            settings({"spark.sql.caseSensitive": "true"}),
            pytest.raises(AnalysisException, match="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION"),
        ):
            deltas.update(set={"s": "named_struct('a', 10, 'A', 20)"})
        assert load(spark, table).first().s.a == 1

    @pytest.mark.parametrize(
        ("data_type", "value", "stored"),
        [
            ("int", "7L", 7),
            ("int", "3.7D", 3),
            ("tinyint", "127L", 127),
            ("string", "5", "5"),
            ("decimal(5, 2)", "1.005", None),
            ("date", "timestamp'2024-01-02 03:04:05'", None),
            ("array<bigint>", "array(1, 2)", [1, 2]),
            ("struct<a: bigint>", "null", None),
        ],
    )
    @pytest.mark.sampled(3)
    def test_casts(self, spark, table, data_type, value, stored):
        spark.sql(f"create table delta.`{table}` (id int, v {data_type}) using delta")
        spark.sql(f"insert into delta.`{table}` values (1, null)")
        DeltaTable.forPath(spark, table).update("id = 1", {"v": value})
        found = load(spark, table)
        assert found.schema["v"].dataType.simpleString().replace(" ", "") == data_type.replace(" ", "")
        if stored is not None:
            assert found.first().v == stored

    @pytest.mark.parametrize(
        ("data_type", "value", "condition"),
        [
            ("int", "array(1)", "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION"),
            ("int", "current_date()", "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION"),
            (
                "struct<a: int, b: int>",
                "named_struct('a', 1)",
                "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
            ),
            (
                "array<struct<a: int>>",
                "array(named_struct('a', 1, 'z', 2))",
                "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
            ),
        ],
    )
    def test_casts_that_are_refused(self, spark, table, data_type, value, condition):
        spark.sql(f"create table delta.`{table}` (id int, v {data_type}) using delta")
        spark.sql(f"insert into delta.`{table}` values (1, null)")
        with pytest.raises(AnalysisException) as caught:
            DeltaTable.forPath(spark, table).update("id = 1", {"v": value})
        assert caught.value.getCondition() == condition
        assert latest_version(table) == 1

    def test_a_string_is_cast_while_the_job_runs(self, spark, made, table):
        deltas = made("values (1, '8', 10), (2, 'x', 20) as t(id, s, v)")
        deltas.update("id = 1", {"v": "s"})
        with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
            deltas.update("id = 2", {"v": "s"})
        assert tuples(load(spark, table)) == [(1, "8", 8), (2, "x", 20)]

    def test_a_value_that_fails_is_computed_of_no_row(self, made, table):
        made(PARTS).update("id > 3", {"x": "1 div 0"})
        assert latest_version(table) == 0

    @pytest.mark.parametrize(
        ("policy", "value", "stored"),
        [("LEGACY", "'x'", None), ("LEGACY", "3000000000", -1294967296), ("STRICT", "8S", 8)],
    )
    def test_the_session_decides_what_may_be_stored(
        self, spark, made, table, settings, policy, value, stored
    ):
        deltas = made(PARTS)
        with settings({"spark.sql.storeAssignmentPolicy": policy}):
            deltas.update("id = 1", {"x": value})
        assert tuples(load(spark, table))[0] == (1, "a", stored)

    def test_the_metadata_of_files_are_values(self, spark, made, table):
        deltas = made(PARTS)
        deltas.update("_metadata.file_size > 0 and id = 1", {"P": "_metadata.file_name"})
        name = actions(table, "remove")[0]["path"]
        assert tuples(load(spark, table))[0] == (1, name, 10)

    def test_overflow(self, spark, table):
        spark.sql(f"create table delta.`{table}` (id int, v tinyint) using delta")
        spark.sql(f"insert into delta.`{table}` values (1, 1), (2000, 2)")
        with pytest.raises(Exception, match="CAST_OVERFLOW_IN_TABLE_INSERT"):
            DeltaTable.forPath(spark, table).update("v = 2", {"v": "id"})
        DeltaTable.forPath(spark, table).update("v = 1", {"v": "id + 1"})
        assert tuples(load(spark, table)) == [(1, 2), (2000, 2)]

    def test_checks_of_the_table(self, spark, table):
        spark.sql(
            f"create table delta.`{table}` (id int not null, c char(3), v varchar(2)) using delta "
            "tblproperties ('delta.constraints.small' = 'id < 100')"
        )
        spark.sql(f"insert into delta.`{table}` values (1, 'a', 'b')")
        deltas = DeltaTable.forPath(spark, table)
        for values, message in (
            ({"id": "null"}, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
            ({"id": "100"}, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
            ({"v": "'abc'"}, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"),
        ):
            with pytest.raises(DeltaInvariantViolationException, match=message):
                deltas.update(set=values)
        deltas.update(set={"c": "'x'"})
        assert tuples(load(spark, table)) == [(1, "x  ", "b")]
        assert len(data_files(table)) == 2


_TWO_COLUMNS = "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN"


class TestRefused:
    @pytest.mark.parametrize(
        ("values", "condition", "error_class"),
        [
            ({}, None, "DELTA_MISSING_SET_COLUMN"),
            ({"nothing": "1"}, None, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
            ({"s.nothing": "1"}, None, "FIELD_NOT_FOUND"),
            ({"_metadata.file_path": "'a'"}, None, "DELTA_MISSING_SET_COLUMN"),
            ({"id": "1", "ID": "2"}, None, "DELTA_CONFLICT_SET_COLUMN"),
            ({"s": "null", "s.a": "2"}, None, "DELTA_CONFLICT_SET_COLUMN"),
            ({"arr.a": "1"}, None, "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE"),
            ({"m.k": "1"}, None, "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE"),
            ({"id": "(select 1 as a, 2 as b)"}, None, _TWO_COLUMNS),
            ({"id": "1"}, "rand() < 2", "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
            ({"id": "max(id)"}, None, "DELTA_AGGREGATION_NOT_SUPPORTED"),
            ({"id": "explode(array(1, 2))"}, None, "DELTA_AGGREGATION_NOT_SUPPORTED"),
            ({"id": "row_number() over (order by id)"}, None, "DELTA_AGGREGATION_NOT_SUPPORTED"),
            ({"id": "nothing"}, None, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ],
        ids=str,
    )
    @pytest.mark.sampled(3)
    def test_columns_and_values(self, made, table, values, condition, error_class):
        deltas = made(
            "values (1, named_struct('a', 1), array(named_struct('a', 1)), map('k', 1)) as t(id, s, arr, m)"
        )
        with pytest.raises(AnalysisException) as caught:
            deltas.update(condition, values)
        assert caught.value.getCondition() == error_class
        assert latest_version(table) == 0

    @pytest.mark.parametrize(
        ("values", "error"),
        [(None, ValueError), ("id = 1", TypeError), ({1: "id"}, TypeError), ({"id": 1}, TypeError)],
        ids=str,
    )
    def test_arguments(self, made, values, error):
        with pytest.raises(error, match="'set'"):
            made(PARTS).update("id = 1", values)

    def test_append_only(self, spark, table):
        spark.range(3).write.format("delta").option("delta.appendOnly", "true").save(table)
        with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            DeltaTable.forPath(spark, table).update(set={"id": "1"})


class TestSql:
    def test_statements(self, spark, made, table):
        made(PARTS, MORE, partition_by=["P"])
        statement = f"update delta.`{table}` as t set t.x = t.x + 1, p = 'c' where x between 10 and 30"
        assert [row.asDict() for row in spark.sql(statement).collect()] == [{"num_affected_rows": 2}]
        assert tuples(load(spark, table)) == all_rows((1, "c", 11), (3, "c", 31))
        assert spark.sql(f"update delta.`{table}` set x = 0").collect() == [(5,)]
        assert commit_info(table)["operationParameters"] == {"predicate": "[]"}
        assert spark.sql(f"update delta.`{table}` set x = 1 where id > 9").collect() == [(0,)]

    def test_fields_of_structs(self, spark, made, table):
        made(TestAssignments.NESTED)
        spark.sql(f"update delta.`{table}` t set t.S.In.`c.d` = 9, s.a = s.a + 1 where s is not null")
        rows = load(spark, table).where("id = 1").collect()
        assert rows[0].asDict(recursive=True)["S"] == {"a": 2, "In": {"b": "x", "c.d": 9}}

    @pytest.mark.parametrize(
        ("assignments", "error_class"),
        [
            ("x = 1, X = 2", "DELTA_CONFLICT_SET_COLUMN"),
            ("nothing = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
            ("x = array(1)", "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION"),
        ],
    )
    def test_refused(self, spark, made, table, assignments, error_class):
        made(PARTS)
        with pytest.raises(AnalysisException) as caught:
            spark.sql(f"update delta.`{table}` set {assignments}")
        assert caught.value.getCondition() == error_class
        assert latest_version(table) == 0


class TestTransaction:
    def test_a_lost_race_leaves_nothing(self, spark, made, table, at):
        deltas = made(PARTS, MORE)
        at("files written", lambda: deltas.update("id = 3", {"x": "0"}))
        with pytest.raises(ConcurrentAppendException):
            deltas.update("id = 3", {"x": "1"})
        assert tuples(load(spark, table))[2] == (3, "b", 0)
        assert len(data_files(table)) == 3

    def test_of_other_partitions_both_stand(self, spark, made, table, at):
        deltas = made(PARTS, MORE, partition_by=["P"])
        at("files written", lambda: deltas.update("P = 'a' and id = 1", {"x": "0"}))
        deltas.update("P = 'b' and id = 3", {"x": "1"})
        assert tuples(load(spark, table))[:3] == [(1, "a", 0), (2, "a", None), (3, "b", 1)]

    def test_small_files_are_compacted_after_it(self, spark, made, table, settings):
        deltas = made(PARTS, MORE)
        spark.sql(
            f"alter table delta.`{table}` set tblproperties ('delta.autoOptimize.autoCompact' = 'true')"
        )
        with settings({"spark.databricks.delta.autoCompact.minNumFiles": "2"}):
            deltas.update("id = 1", {"x": "0"})
        assert commit_info(table)["operation"] == "OPTIMIZE"
        assert tuples(load(spark, table)) == all_rows((1, "a", 0))

    @pytest.mark.long
    def test_streams_of_the_table(self, spark, made, table, tmp_path):
        """They see what delta-spark's see: the rewritten files, whole, if they ignore changes."""
        deltas = made(PARTS, MORE, partition_by=["P"])

        def seen(**options):
            rows = []
            stream = spark.readStream.format("delta").options(**options).load(table).writeStream
            stream = stream.foreachBatch(lambda frame, _: rows.extend(row.id for row in frame.collect()))
            place = str(tmp_path / "-".join(["checkpoint", *options]))
            query = stream.option("checkpointLocation", place).trigger(availableNow=True).start()
            query.awaitTermination()
            return sorted(rows)

        for options in ({"ignoreChanges": "true"}, {"ignoreDeletes": "true"}, {"skipChangeCommits": "true"}):
            assert seen(**options) == [1, 2, 3, 4, 5]
        deltas.delete("P = 'b'")
        assert seen(ignoreDeletes="true") == seen(ignoreChanges="true") == []
        deltas.update("id = 1", {"x": "0"})
        assert seen(ignoreChanges="true") == [1, 2]
        assert seen(skipChangeCommits="true") == []
        with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
            seen(ignoreDeletes="true")

    def test_idempotent(self, made, table, setting):
        deltas = made(PARTS)
        setting("spark.databricks.delta.write.txnAppId", "app")
        setting("spark.databricks.delta.write.txnVersion", "3")
        for condition in ("id = 1", "id = 2"):
            deltas.update(condition, {"x": "0"})
        assert latest_version(table) == 1
        assert [txn["version"] for txn in actions(table, "txn")] == [3]
