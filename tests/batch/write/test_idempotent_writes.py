"""Writes with an application's number are in the table once; user metadata of a commit."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentTransactionException,
    DeltaIllegalArgumentException,
    DeltaTableAlreadyExistsError,
)
from deltaflow.log import DeltaLog
from deltaflow.log.observer import set_observer
from tests.tables import actions, ids, load

pytestmark = pytest.mark.spark

WRITE = "spark.databricks.delta.write."


def write_numbered(spark, table, number, app="app", mode="append"):
    writer = spark.range(number, number + 1).write.format("delta").mode(mode)
    writer.option("txnAppId", app).option("TXNVERSION", number).save(table)


def test_spark_counts_what_is_repeated(spark, table):
    repeated = spark._jvm.io.deltaflow.spark.bridge.Metrics.repeatedWrites
    before = repeated()
    write_numbered(spark, table, 1)
    assert repeated() == before
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.writeStream.option("checkpointLocation", table + " checkpoint").trigger(once=True)
    writer.foreachBatch(lambda batch, number: write_numbered(spark, table, 1)).start().awaitTermination()
    assert ids(load(spark, table)) == [1]
    assert repeated() == before + 1
    spark.range(9).write.format("delta").mode("ignore").save(table)
    assert repeated() == before + 1


def test_a_write_is_made_once(spark, table, caplog):
    write_numbered(spark, table, 1)
    write_numbered(spark, table, 1, app="other")
    assert actions(table, "txn", 0)[0].items() >= {"appId": "app", "version": 1}.items()
    with caplog.at_level(logging.WARNING, logger="deltaflow.batch.idempotent"):
        write_numbered(spark, table, 1)
        write_numbered(spark, table, 0, mode="overwrite")
        write_numbered(spark, table, 1, mode="error")
    assert len([r for r in caplog.records if "txnVersion" in r.message and table in r.message]) == 3
    assert DeltaLog.for_table(table).latest_version() == 1
    write_numbered(spark, table, 3)
    assert ids(load(spark, table)) == [1, 1, 3]
    with pytest.raises(DeltaTableAlreadyExistsError):
        write_numbered(spark, table, 4, mode="error")


def test_the_session_may_number_writes(spark, table, settings):
    with settings({WRITE + "txnAppId": "session", WRITE + "txnVersion": "7"}):
        spark.range(1).write.format("delta").save(table)
        spark.range(5).write.format("delta").mode("append").save(table)
        # An option outranks the session's setting.
        write_numbered(spark, table, 8, app="session")
        spark.range(6).write.format("delta").mode("append").save(table)
    assert [txn["version"] for version in (0, 1) for txn in actions(table, "txn", version)] == [7, 8]
    assert ids(load(spark, table)) == [0, 8]


def test_the_version_of_the_session_may_stand_for_one_write(spark, table, settings):
    auto_reset = {WRITE + "txnVersion.autoReset.enabled": "true", WRITE + "txnAppId": "reset"}
    with settings(auto_reset):
        for _ in range(2):  # written, and skipped
            spark.conf.set(WRITE + "txnVersion", "1")
            spark.range(1).write.format("delta").mode("append").save(table)
            assert spark.conf.get(WRITE + "txnVersion", None) is None
        with pytest.raises(DeltaIllegalArgumentException, match=WRITE + "txnVersion must be") as raised:
            spark.range(1).write.format("delta").mode("append").save(table)
        code = "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS"
        assert raised.value.getErrorClass() == code
        # A write that fails does not use up its number.
        spark.conf.set(WRITE + "txnVersion", "2")
        with pytest.raises(DeltaTableAlreadyExistsError):
            spark.range(1).write.format("delta").save(table)
        assert spark.conf.get(WRITE + "txnVersion") == "2"
        write_numbered(spark, table, 3)
        assert spark.conf.get(WRITE + "txnVersion") == "2"
        spark.conf.unset(WRITE + "txnVersion")
    assert ids(load(spark, table)) == [0, 3]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"txnAppId": "a"}, "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"),
        ({"txnVersion": "1"}, "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "DELTA_ILLEGAL_OPTION"),
        ({"txnAppId": "a", "txnVersion": "one"}, "DELTA_ILLEGAL_OPTION"),
        ({"txnAppId": "a", "txnVersion": str(2**63)}, "DELTA_ILLEGAL_OPTION"),
    ],
)
def test_half_a_name_or_a_wrong_number_is_refused(spark, table, options, code):
    with pytest.raises(DeltaIllegalArgumentException) as raised:
        spark.range(1).write.format("delta").options(**options).save(table)
    assert raised.value.getErrorClass() == code
    assert raised.value.getSqlState() == "42616"
    assert not Path(table).exists()


def _overwrite_dynamically(spark, rows, table):
    rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(table)


def _replace_where(spark, rows, table):
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id = 7").save(table)


def _merge(spark, rows, table):
    return DeltaTable.forPath(spark, table).alias("t").merge(rows.alias("s"), "t.id = s.id")


# Operations that change no row of the table; each of them would change rows with id 7.
CHANGE_NO_ROW = {
    "append": lambda spark, rows, table: rows.write.format("delta").mode("append").save(table),
    "replaceWhere": _replace_where,
    "dynamic overwrite": _overwrite_dynamically,
    "writeTo": lambda spark, rows, table: rows.writeTo(f"delta.`{table}`").append(),
    "writeTo overwrite": lambda spark, rows, table: rows.writeTo(f"delta.`{table}`").overwrite(
        F.expr("id = 7")
    ),
    "INSERT": "INSERT INTO {t} SELECT * FROM none",
    "INSERT VALUES": "INSERT INTO {t} SELECT 1L, 'a' WHERE 1 = 0",
    "INSERT REPLACE WHERE": "INSERT INTO {t} REPLACE WHERE id = 7 SELECT * FROM none",
    "INSERT OVERWRITE PARTITION": "INSERT OVERWRITE {t} PARTITION (p = 'q') SELECT id FROM none",
    "DELETE": "DELETE FROM {t} WHERE id = 7",
    "DELETE of a partition": "DELETE FROM {t} WHERE p = 'q'",
    "DeltaTable.delete": lambda spark, rows, table: DeltaTable.forPath(spark, table).delete("id = 7"),
    "UPDATE": "UPDATE {t} SET id = 8 WHERE id = 7",
    "UPDATE of a partition": "UPDATE {t} SET id = 8 WHERE p = 'q'",
    "DeltaTable.update": lambda spark, rows, table: DeltaTable.forPath(spark, table).update(
        "id = 7", {"id": "8"}
    ),
    "MERGE": "MERGE INTO {t} t USING sevens s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE of an empty source": "MERGE INTO {t} t USING none s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "MERGE that inserts alone": "MERGE INTO {t} t USING ones s ON t.id = s.id "
    "WHEN NOT MATCHED AND s.id = 7 THEN INSERT *",
    "MERGE by source": "MERGE INTO {t} t USING none s ON t.id = s.id "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 7 THEN DELETE",
    "DeltaTable.merge": lambda spark, rows, table: (
        _merge(spark, rows, table).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    ),
    "DeltaTable.merge that inserts alone": lambda spark, rows, table: (
        _merge(spark, rows, table).whenNotMatchedInsertAll().execute()
    ),
}


@pytest.mark.parametrize("write", CHANGE_NO_ROW.values(), ids=CHANGE_NO_ROW)
@pytest.mark.sampled(12)
def test_a_write_that_changes_no_row_is_made_once(spark, table, settings, write):
    def run():
        rows = spark.table("none")
        if callable(write):
            write(spark, rows, table)
        else:
            spark.sql(write.format(t=f"delta.`{table}`")).collect()

    one = spark.createDataFrame([(1, "a")], "id long, p string")
    one.write.format("delta").partitionBy("p").save(table)
    seven = spark.createDataFrame([(7, "q")], "id long, p string")
    for rows, view in ((one, "ones"), (seven, "sevens"), (seven.where("id = 1"), "none")):
        rows.createOrReplaceTempView(view)
    numbered = {WRITE + "txnAppId": "app", WRITE + "txnVersion": "3"}
    with settings(numbered):
        run()
    assert [(txn["appId"], txn["version"]) for txn in actions(table, "txn")] == [("app", 3)]
    assert not actions(table, "add")
    assert not actions(table, "remove")
    seven.write.format("delta").mode("append").save(table)
    with settings(numbered):
        run()
    assert DeltaLog.for_table(table).latest_version() == 2
    assert ids(load(spark, table)) == [1, 7]


@pytest.mark.parametrize("options", [{"mode": "append"}, {"mode": "overwrite", "replaceWhere": "id = 7"}])
def test_options_name_a_write_that_changes_no_row(spark, table, options):
    spark.range(1).write.format("delta").save(table)
    for _ in range(2):
        writer = spark.range(0).write.format("delta").options(**options, txnAppId="app", txnVersion=1)
        writer.mode(options["mode"]).save(table)
    assert DeltaLog.for_table(table).latest_version() == 1
    assert [txn["version"] for txn in actions(table, "txn")] == [1]


def test_two_at_once_are_one(spark, table):
    write_numbered(spark, table, 1)
    rival = iter([2])

    def race(point, facts):
        if point == "files written":
            for number in rival:
                write_numbered(spark, table, number)

    set_observer(race)
    try:
        with pytest.raises(ConcurrentTransactionException):
            write_numbered(spark, table, 2)
    finally:
        set_observer(None)
    assert ids(load(spark, table)) == [1, 2]


def test_a_commit_says_what_its_user_wants(spark, table, settings):
    def said():
        return actions(table, "commitInfo")[0].get("userMetadata")

    frame = spark.range(1)
    frame.write.format("delta").option("USERMETADATA", "of the write").save(table)
    assert said() == "of the write"
    with settings({"spark.databricks.delta.commitInfo.userMetadata": "of the session"}):
        frame.write.format("delta").mode("append").save(table)
        assert said() == "of the session"
        frame.write.format("delta").mode("append").option("userMetadata", "").save(table)
        assert said() == ""
    frame.write.format("delta").mode("append").save(table)
    assert said() is None
