"""DELETE: which files it removes and rewrites, what its commit says, what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    StoreError,
)
from tests.tables import (
    actions,
    commit_file,
    commit_info,
    data_files,
    edit_commit,
    ids,
    latest_version,
    load,
    read_commit,
    rows_by_deltalake,
)

pytestmark = pytest.mark.spark

TIMES = {"executionTimeMs", "scanTimeMs", "rewriteTimeMs"}


@pytest.fixture
def jobs(spark):
    """Runs something; answers with the number of Spark jobs that it took."""

    def count(action):
        spark.sparkContext.setJobGroup("counted", "")
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
        try:
            action()
        finally:
            after = len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
            spark.sparkContext._jsc.clearJobGroup()
        return after - before

    return count


@pytest.fixture
def days(spark, table):
    """100 rows in 5 partitions, one of them null, of 2 files each; 10 rows a file."""
    frame = spark.range(100).selectExpr(
        "id",
        "if(id % 5 = 4, null, date_add(date'2024-01-01', cast(id % 5 as int))) as Day",
        "cast(id as string) as s",
    )
    for half in ("id < 50", "id >= 50"):
        frame.where(half).repartition(1).write.format("delta").mode("append").partitionBy("Day").save(table)
    return table


def without_statistics(spark, tmp_path):
    """A table of files without statistics."""
    path = str(tmp_path / "table")
    spark.range(10).write.format("delta").save(path)
    edit_commit(path, lambda action: action.get("add", {}).pop("stats", None))
    return path


class TestMetadataOnly:
    @pytest.mark.parametrize(
        ("condition", "kept"),
        [
            (None, lambda i: False),
            ("true", lambda i: False),
            ("day = '2024-01-02'", lambda i: i % 5 != 1),
            ("Day > '2024-01-02' or day is null", lambda i: i % 5 in (0, 1)),
            ("day <=> null", lambda i: i % 5 != 4),
            ("not (day = '2024-01-01')", lambda i: i % 5 in (0, 4)),
            (
                lambda: F.col("DAY").isin(dt.date(2024, 1, 1), dt.date(2024, 1, 3)),
                lambda i: i % 5 not in (0, 2),
            ),
            ("month(day) = 1 and dayofmonth(day) >= 3", lambda i: i % 5 not in (2, 3)),
        ],
    )
    @pytest.mark.sampled(5)
    def test_of_whole_partitions_reads_no_file(self, spark, days, jobs, condition, kept):
        files = data_files(days)
        condition = condition() if callable(condition) else condition
        assert jobs(lambda: DeltaTable.forPath(spark, days).delete(condition)) == 0
        assert data_files(days) == files
        assert ids(load(spark, days)) == [i for i in range(100) if kept(i)]
        commit = read_commit(days)
        assert {next(iter(action)) for action in commit} == {"commitInfo", "remove"}
        assert all(action["remove"]["dataChange"] for action in commit[1:])

    def test_metrics(self, spark, days):
        DeltaTable.forPath(spark, days).delete("day = '2024-01-02'")
        found = commit_info(days)
        assert found["operation"] == "DELETE"
        [predicate] = json.loads(found["operationParameters"].pop("predicate"))
        assert re.fullmatch(r"\(day#\d+ = 2024-01-02\)", predicate)
        assert found["operationParameters"] == {}
        assert found["isBlindAppend"] is False
        metrics = found["operationMetrics"]
        removed = actions(days, "remove")
        assert {name: value for name, value in metrics.items() if name not in TIMES} == {
            "numRemovedFiles": "2",
            "numRemovedBytes": str(sum(remove["size"] for remove in removed)),
            "numAddedFiles": "0",
            "numAddedBytes": "0",
            "numAddedChangeFiles": "0",
            "numDeletionVectorsAdded": "0",
            "numDeletionVectorsRemoved": "0",
            "numDeletionVectorsUpdated": "0",
            "numDeletedRows": "20",
            "numCopiedRows": "0",
        }
        assert set(metrics) > TIMES

    def test_without_statistics_nobody_knows_the_rows(self, spark, tmp_path):
        path = without_statistics(spark, tmp_path)
        DeltaTable.forPath(spark, path).delete()
        assert not {"numDeletedRows", "numCopiedRows", "numAddedFiles"} & set(
            commit_info(path)["operationMetrics"]
        )


class TestRewrite:
    def test_only_touched_files_are_rewritten(self, spark, days, jobs):
        before = {add["path"] for add in actions(days, "add")}
        assert jobs(lambda: DeltaTable.forPath(spark, days).delete("id in (1, 50, 51)")) == 2
        assert ids(load(spark, days)) == [i for i in range(100) if i not in (1, 50, 51)]
        removed = {remove["path"] for remove in actions(days, "remove")}
        added = actions(days, "add")
        assert len(removed) == 3
        assert len(removed & before) == 2
        assert sorted(json.loads(add["stats"])["numRecords"] for add in added) == [9, 9, 9]
        metrics = commit_info(days)["operationMetrics"]
        assert (metrics["numDeletedRows"], metrics["numCopiedRows"]) == ("3", "27")
        assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("3", "3")
        assert metrics["numAddedBytes"] == str(sum(add["size"] for add in added))

    @pytest.mark.parametrize("adaptive", ["true", "false"])
    def test_one_job_of_few_tasks_finds_the_files(self, spark, days, adaptive):
        """In the session of a stream Spark has no adaptive execution."""
        tracker = spark.sparkContext.statusTracker()
        session = spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", adaptive)
        session.conf.set("spark.sql.shuffle.partitions", "7")
        group = f"a delete, adaptive: {adaptive}"
        spark.sparkContext.setJobGroup(group, "")
        try:
            DeltaTable.forPath(session, days).delete("id = 1")
        finally:
            spark.sparkContext._jsc.clearJobGroup()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        assert len(jobs) == 2
        assert 7 not in {tracker.getStageInfo(stage).numTasks for job in jobs for stage in job.stageIds}

    def test_files_of_which_all_rows_go_are_removed_without_a_rewrite(self, spark, days):
        DeltaTable.forPath(spark, days).delete("day = '2024-01-01' and id < 50 or id = 51")
        metrics = commit_info(days)["operationMetrics"]
        assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("2", "1")
        assert (metrics["numDeletedRows"], metrics["numCopiedRows"]) == ("11", "9")
        DeltaTable.forPath(spark, days).delete("day = '2024-01-01' and id >= 50 and s is not null")
        assert {next(iter(action)) for action in read_commit(days)} == {"commitInfo", "remove"}
        assert commit_info(days)["operationMetrics"]["numDeletedRows"] == "10"

    def test_rows_for_which_the_condition_is_null_stay(self, spark, table):
        spark.sql("select * from values (1, 1), (2, null), (3, 3) as t(id, x)").coalesce(1).write.format(
            "delta"
        ).save(table)
        DeltaTable.forPath(spark, table).delete("x > 1")
        assert ids(load(spark, table)) == [1, 2]

    @pytest.mark.parametrize(
        "condition",
        ["id < 0", "false", "day = '2030-01-01'", "boolean(null)", "id = 1000 and s = '1'"],
    )
    @pytest.mark.sampled(4)
    def test_without_a_row_there_is_no_commit(self, spark, days, condition):
        DeltaTable.forPath(spark, days).delete(condition)
        assert latest_version(days) == 1

    def test_names(self, spark, tmp_path):
        path = str(tmp_path / "a table")
        frame = spark.sql("select id, struct(id as `b.c`) as `a-s`, id % 2 = 0 as `p%41` from range(10)")
        frame.write.format("delta").partitionBy("p%41").save(path)
        DeltaTable.forPath(spark, path).alias("t").delete("T.`A-s`.`b.c` = 3 and not t.`P%41`")
        DeltaTable.forPath(spark, path).delete("`p%41` and id = 4")
        assert ids(load(spark, path)) == [0, 1, 2, 5, 6, 7, 8, 9]

    @pytest.mark.long
    def test_a_function_of_python(self, spark, days):
        even = F.udf(lambda i: i % 2 == 0, "boolean")
        DeltaTable.forPath(spark, days).delete(even("id") & (F.col("day") == "2024-01-01"))
        assert ids(load(spark, days)) == [i for i in range(100) if i % 10 != 0]
        later = F.udf(lambda day: day is not None and day.day == 2, "boolean")
        DeltaTable.forPath(spark, days).delete(later("day"))
        assert ids(load(spark, days)) == [i for i in range(100) if i % 10 != 0 and i % 5 != 1]

    def test_random_conditions(self, spark, table, random_table):
        chance = random.Random(7)
        model = random_table(chance)
        parts = [
            ("p = 'a'", lambda r: None if r["p"] is None else r["p"] == "a"),
            ("p is null", lambda r: r["p"] is None),
            ("x >= 8", lambda r: None if r["x"] is None else r["x"] >= 8),
            ("x is null", lambda r: r["x"] is None),
            ("id % 7 = 3", lambda r: r["id"] % 7 == 3),
        ]
        for _ in range(5):
            (left, is_left), (right, is_right) = chance.sample(parts, 2)
            number = chance.randrange(60)
            condition = f"({left}) and ({right}) or id = {number}"
            DeltaTable.forPath(spark, table).delete(condition)
            model = [
                r for r in model if not ((is_left(r) is True and is_right(r) is True) or r["id"] == number)
            ]
            assert rows_by_deltalake(table) == sorted(model, key=repr), condition


class TestRefused:
    @pytest.mark.parametrize(
        ("condition", "error_class"),
        [
            ("id in (select cast(rand() as int))", "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
            ("rand() < 0.5", "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
            ("nothing = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
            ("id", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
            ("max(id) = 1", "INVALID_WHERE_CONDITION"),
        ],
    )
    def test_conditions(self, spark, days, condition, error_class):
        with pytest.raises(AnalysisException) as caught:
            DeltaTable.forPath(spark, days).delete(condition)
        assert caught.value.getCondition() == error_class
        assert latest_version(days) == 1

    def test_what_is_no_condition(self, spark, days):
        with pytest.raises(TypeError, match="condition"):
            DeltaTable.forPath(spark, days).delete(1)

    def test_append_only(self, spark, table):
        spark.range(3).write.format("delta").option("delta.appendOnly", "true").save(table)
        with pytest.raises(DeltaUnsupportedOperationException) as caught:
            DeltaTable.forPath(spark, table).delete("id = 1")
        assert caught.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"

    def test_a_table_that_went_away(self, spark, tmp_path):
        path = str(tmp_path / "table")
        spark.range(3).write.format("delta").save(path)
        table = DeltaTable.forPath(spark, path)
        Path(path, "_delta_log").rename(tmp_path / "gone")
        with pytest.raises(AnalysisException) as caught:
            table.delete("id = 1")
        assert caught.value.getCondition() == "DELTA_TABLE_NOT_FOUND"


@pytest.fixture
def name(spark, days):
    """The table in the catalog."""
    spark.sql(f"create table dml.days using delta location '{days}'")
    yield "dml.days"
    spark.sql("drop table dml.days")


@pytest.fixture(scope="module", autouse=True)
def _dml_database(spark):
    spark.sql("create database dml")
    yield
    spark.sql("drop database dml cascade")


class TestSql:
    @pytest.mark.parametrize(
        ("statement", "deleted"),
        [
            ("delete from {name}", range(100)),
            ("DELETE FROM {name} WHERE day = '2024-01-02'", range(1, 100, 5)),
            ("delete from {path} where ID < 3 and {path}.s is not null", range(3)),
            ("delete from {path} as t where t.id = 7", [7]),
            (
                "delete from {name} where days.id = 7 or dml.days.id = 8 or spark_catalog.dml.days.id = 9",
                [7, 8, 9],
            ),
            ("delete from {name} where id < 0", []),
        ],
    )
    @pytest.mark.sampled(3)
    def test_statements(self, spark, days, name, statement, deleted):
        rows = spark.sql(statement.format(name=name, path=f"delta.`{days}`")).collect()
        assert [row.asDict() for row in rows] == [{"num_affected_rows": len(deleted)}]
        assert ids(load(spark, days)) == [i for i in range(100) if i not in deleted]
        assert latest_version(days) == (2 if len(deleted) else 1)

    def test_without_a_condition_the_commit_has_no_predicate(self, spark, days, name):
        spark.sql(f"delete from {name}")
        assert commit_info(days)["operationParameters"] == {"predicate": "[]"}

    def test_without_statistics_minus_one_says_that_nobody_knows(self, spark, tmp_path):
        path = without_statistics(spark, tmp_path)
        assert spark.sql(f"delete from delta.`{path}`").collect() == [(-1,)]

    def test_by_name_of_the_api(self, spark, days, name):
        DeltaTable.forName(spark, name).delete("days.id = 1 and dml.days.s = '1'")
        assert ids(load(spark, days)) == [0, *range(2, 100)]

    def test_a_subquery_over_a_query_behind_with(self, spark, days, name):
        spark.sql(f"with c as (select 1 as x) delete from {name} where id in (select x from c)")
        assert ids(load(spark, days)) == [0, *range(2, 100)]


class TestTransaction:
    def test_rows_that_are_missing_are_noticed(self, spark, tmp_path):
        """A file that was changed in place."""
        path = str(tmp_path / "table")
        spark.range(10).coalesce(1).write.format("delta").save(path)
        other = tmp_path / "other"
        spark.range(9).coalesce(1).write.parquet(str(other))
        file, changed = next(Path(path).glob("*.parquet")), next(other.glob("*.parquet"))
        changed.replace(file)
        next(Path(path).glob(".*.parquet.crc")).unlink()
        with pytest.raises(DeltaIllegalStateException) as caught:
            DeltaTable.forPath(spark, path).delete("id = 1")
        assert caught.value.getCondition() == "DELTA_NUM_RECORDS_MISMATCH"
        assert latest_version(path) == 0
        assert list(Path(path).glob("*.parquet")) == [file]

    def test_files_that_are_gone_are_no_rows_to_lose(self, spark, tmp_path, setting):
        path = without_statistics(spark, tmp_path)
        next(Path(path).glob("*.parquet")).unlink()
        setting("spark.sql.files.ignoreMissingFiles", "true")
        with pytest.raises(StoreError, match="DELTA_FILE_NOT_FOUND_DETAILED"):
            DeltaTable.forPath(spark, path).delete("id = 1")
        assert latest_version(path) == 0

    def test_a_failed_job_leaves_nothing(self, spark, days):
        files = data_files(days)
        with pytest.raises(Exception, match="by the condition"):
            DeltaTable.forPath(spark, days).delete(
                "if(id = 7, raise_error('raised by the condition'), id = 8)"
            )
        assert data_files(days) == files
        assert latest_version(days) == 1

    def test_idempotent(self, spark, days, settings):
        prefix = "spark.databricks.delta.write."
        numbered = {"txnAppId": "app", "txnVersion": "3", "txnVersion.autoReset.enabled": "true"}
        with settings({prefix + name: value for name, value in numbered.items()}):
            for condition, at in (("id = 1", 2), ("id = 2", 2)):
                spark.conf.set(prefix + "txnVersion", "3")
                DeltaTable.forPath(spark, days).delete(condition)
                assert latest_version(days) == at
                assert spark.conf.get(prefix + "txnVersion", None) is None
            assert [txn["version"] for txn in actions(days, "txn")] == [3]
            spark.conf.unset(prefix + "txnVersion")
            with pytest.raises(DeltaIllegalArgumentException):
                DeltaTable.forPath(spark, days).delete("id = 2")
        assert 2 in ids(load(spark, days))

    @pytest.mark.parametrize(
        ("condition", "rival", "error"),
        [
            ("id = 1", "id = 56", ConcurrentAppendException),
            ("id = 1", "id = 6", ConcurrentAppendException),
            ("id = 1", "day = '2024-01-02'", ConcurrentDeleteReadException),
            ("day = '2024-01-02'", "day = '2024-01-02' and id = 1", ConcurrentAppendException),
            ("day = '2024-01-02'", "day = '2024-01-02'", ConcurrentDeleteReadException),
            ("day = '2024-01-02' and id = 1", "day = '2024-01-03' and id = 2", None),
            ("day = '2024-01-02'", "day = '2024-01-03'", None),
        ],
    )
    @pytest.mark.sampled(6)
    def test_races(self, spark, days, at, condition, rival, error):
        deltas = DeltaTable.forPath(spark, days)
        at("commit prepared", lambda: deltas.delete(rival))
        files = data_files(days)
        if error is None:
            deltas.delete(condition)
            assert latest_version(days) == 3
            return
        with pytest.raises(error):
            deltas.delete(condition)
        assert latest_version(days) == 2
        added = {unquote(add["path"]) for add in actions(days, "add")}
        assert data_files(days) - files == added

    def test_a_frame_in_the_cache_is_read_anew(self, spark, days):
        frame = load(spark, days).cache()
        try:
            assert frame.count() == 100
            DeltaTable.forPath(spark, days).delete("id < 10")
            assert frame.count() == 90
        finally:
            frame.unpersist()

    def test_from_many_threads(self, spark, table):
        spark.range(12).selectExpr("id", "id % 4 as p").write.format("delta").partitionBy("p").save(table)
        errors: list[Any] = []

        def run(part):
            try:
                DeltaTable.forPath(spark, table).delete(f"p = {part} and id >= 4")
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert ids(load(spark, table)) == [0, 1, 2, 3]
        assert latest_version(table) == 4


@pytest.mark.parametrize("operation", ["delete", "merge"])
def test_a_file_is_not_removed_unread_because_its_statistics_are_wrong(spark, table, operation):
    spark.range(0, 10, 1, 1).write.format("delta").save(table)
    log = commit_file(table, 0)
    log.write_text(log.read_text().replace('\\"numRecords\\":10', '\\"numRecords\\":3'))
    target = DeltaTable.forPath(spark, table).alias("t")
    merge = target.merge(spark.range(3).alias("s"), "t.id = s.id").whenMatchedDelete()
    run = merge.execute if operation == "merge" else lambda: target.delete("id < 3")
    with pytest.raises(DeltaIllegalStateException, match="DELTA_NUM_RECORDS_MISMATCH"):
        run()
    assert latest_version(table) == 0
    log.write_text(log.read_text().replace('\\"numRecords\\":3', '\\"numRecords\\":10'))


# Spark folds no function with a lambda.
_FALSE = "array_contains(transform(split('a, b', ','), x -> trim(x)), 'c')"


@pytest.mark.parametrize("partition_by", [[], ["p"]])
@pytest.mark.parametrize(
    ("condition", "excluded"),
    [(_FALSE, ""), ("1 = 0", "ConstantFolding"), ("false", "PruneFilters"), ("1 = 0", "PruneFilters")],
)
@pytest.mark.sampled(8)
def test_a_condition_without_columns_is_evaluated(spark, table, settings, condition, excluded, partition_by):
    rules = excluded and f"org.apache.spark.sql.catalyst.optimizer.{excluded}"
    rows = spark.range(5).selectExpr("id", "id % 2 AS p")
    writer = rows.write.format("delta").option("delta.enableChangeDataFeed", "true")
    writer.partitionBy(partition_by).save(table)
    sql, target = f"delta.`{table}`", DeltaTable.forPath(spark, table)
    with settings({"spark.sql.optimizer.excludedRules": rules}):
        assert spark.sql(f"SELECT count(*), max(id), max(p) FROM {sql} WHERE {condition}").first()[:] == (
            0,
            None,
            None,
        )
        assert spark.sql(f"SELECT count(*) FROM {sql} WHERE NOT ({condition})").first()[0] == 5
        assert spark.sql(f"SELECT id FROM {sql} WHERE {condition} LIMIT 1").collect() == []
        for statement in ("DELETE FROM {0} WHERE {1}", "UPDATE {0} SET id = -1 WHERE {1}"):
            assert spark.sql(statement.format(sql, condition)).first()[0] == 0
        target.delete(condition)
        target.update(condition, {"id": F.lit(-1)})
        none = load(spark, table).where("false")
        none.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(table)
        assert ids(load(spark, table)) == [0, 1, 2, 3, 4]
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        if latest_version(table):
            assert feed.load(table).count() == 0
        target.delete(f"NOT ({condition})")
        assert ids(load(spark, table)) == []


def test_a_column_with_the_name_of_a_condition(spark, table):
    spark.sql(f"CREATE TABLE delta.`{table}` (id LONG, `true` BOOLEAN) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, true), (2, false), (3, null)")
    assert spark.sql(f"DELETE FROM delta.`{table}` WHERE `true`").first()[0] == 1
    assert ids(load(spark, table)) == [2, 3]
    assert spark.sql(f"DELETE FROM delta.`{table}`").first()[0] == 2
    assert ids(load(spark, table)) == []
