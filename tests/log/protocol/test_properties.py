from __future__ import annotations

import pytest

from deltaflow.errors import (
    ConcurrentWriteException,
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
)
from deltaflow.log import DeltaLog
from deltaflow.log.protocol.column_names import column_paths
from deltaflow.log.protocol.intervals import interval_ms
from deltaflow.log.protocol.properties import (
    APPEND_ONLY,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    CHECKPOINT_WRITE_STATS_AS_JSON,
    CHECKPOINT_WRITE_STATS_AS_STRUCT,
    DELETED_FILE_RETENTION_MS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    LOG_RETENTION_MS,
    SET_TRANSACTION_RETENTION_MS,
    TARGET_FILE_SIZE_BYTES,
    Property,
)
from tests.log.hand_written import WRITE, HandWrittenTable, add_file, append, create, new_metadata

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("30 days", 30 * DAY_MS),
        ("INTERVAL 36 Hours", 36 * 3_600_000),
        ("  interval  2 weeks -1 day ", 13 * DAY_MS),
        ("1 day 2 hours 3 minutes 4.5 seconds", DAY_MS + 2 * 3_600_000 + 3 * 60_000 + 4_500),
        ("- 1 day 25 hours", 3_600_000),
        ("250 milliseconds 1999 microseconds", 251),
        ("interval 0 days", 0),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "1",
        "days",
        "1 month",
        "2 years",
        "1.5 days",
        "-1 day",
        "1day",
        "1 day x",
        "١ day",
        "99999999999 weeks",
    ],
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(ValueError, match=r"interval|unit"):
        interval_ms(text)


@pytest.mark.parametrize(
    ("known", "default"),
    [
        (APPEND_ONLY, False),
        (CHECKPOINT_INTERVAL, 10),
        (CHECKPOINT_POLICY, "classic"),
        (CHECKPOINT_WRITE_STATS_AS_JSON, True),
        (CHECKPOINT_WRITE_STATS_AS_STRUCT, True),
        (DELETED_FILE_RETENTION_MS, 7 * DAY_MS),
        (ENABLE_EXPIRED_LOG_CLEANUP, True),
        (LOG_RETENTION_MS, 30 * DAY_MS),
        (SET_TRANSACTION_RETENTION_MS, None),
    ],
)
def test_defaults(known: Property[object], default: object) -> None:
    assert known.of({}, "t") == default


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "often"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.logRetentionDuration", "1 month"),
        ("delta.deletedFileRetentionDuration", "-1 day"),
        ("delta.enableExpiredLogCleanup", ""),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.checkpointInterval", "1_0"),
        ("delta.checkpointRetentionDuration", "soon"),
        ("delta.columnMapping.mode", "names"),
        ("delta.compatibility.symlinkFormatManifest.enabled", "yes"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.dataSkippingStatsColumns", "a,,b"),
        ("delta.dataSkippingStringPrefixLength", "-1"),
        ("delta.enableTypeWidening", "1"),
        ("delta.inCommitTimestampEnablementVersion", "x"),
        ("delta.randomPrefixLength", "0"),
        ("delta.randomPrefixLength", "256"),
        ("delta.targetFileSize", "0"),
        ("delta.targetFileSize", "128 mb"),
        ("delta.targetFileSize", "-1"),
    ],
)
def test_a_wrong_value_is_refused_by_name_before_anything_is_written(
    log: DeltaLog, name: str, value: str
) -> None:
    transaction = log.start_transaction()
    with pytest.raises(DeltaIllegalArgumentException) as raised:
        transaction.update_metadata(new_metadata(configuration={name: value}))
    assert name in str(raised.value)
    assert repr(value) in str(raised.value)
    assert not log.exists()


def test_names_are_found_whatever_their_case(log: DeltaLog) -> None:
    create(log, configuration={"DELTA.checkpointinterval": "3", "My.Own": "x"})
    assert log.snapshot().metadata.configuration == {"delta.checkpointInterval": "3", "My.Own": "x"}


def test_a_new_table_has_the_sessions_defaults(log: DeltaLog) -> None:
    defaults = "spark.databricks.delta.properties.defaults."
    transaction = log.start_transaction(
        {
            defaults + "checkpointInterval": "5",
            defaults + "logRetentionDuration": "interval 60 days",
            defaults + "unheardOf": "1",
            defaults + "feature.v2Checkpoint": "supported",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    transaction.update_metadata(new_metadata(configuration={"delta.checkpointInterval": "7"}))
    transaction.commit([], WRITE)
    snapshot = log.snapshot()
    assert snapshot.metadata.configuration == {
        "delta.checkpointInterval": "7",
        "delta.logRetentionDuration": "interval 60 days",
    }
    assert "v2Checkpoint" in (snapshot.protocol.writer_features or ())


def test_an_unknown_name_is_refused_unless_the_session_allows_it(log: DeltaLog) -> None:
    transaction = log.start_transaction()
    with pytest.raises(DeltaAnalysisException, match=r"delta\.Bogus.*allowArbitraryProperties") as raised:
        transaction.update_metadata(new_metadata(configuration={"delta.Bogus": "1"}))
    assert raised.value.error_class == "DELTA_UNKNOWN_CONFIGURATION"
    assert raised.value.getSqlState() == "F0000"
    transaction = log.start_transaction({"spark.databricks.delta.allowArbitraryProperties.enabled": "true"})
    transaction.update_metadata(new_metadata(configuration={"delta.Bogus": "1"}))
    transaction.commit([], WRITE)
    assert log.snapshot().metadata.configuration == {"delta.Bogus": "1"}


def test_what_another_writer_has_set_stays_and_does_not_hinder(table: HandWrittenTable) -> None:
    foreign = {"delta.unheardOf": "1", "delta.checkpointRetentionDuration": "soon", "DELTA.appendonly": "x"}
    table.first_commit(configuration=foreign)
    log = table.log()
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(configuration={**foreign, "delta.APPENDonly": "false"}))
    transaction.commit([], WRITE)
    assert log.snapshot().metadata.configuration == {**foreign, "delta.appendOnly": "false"}


def test_defaults_of_the_protocol_can_be_left_out(log: DeltaLog) -> None:
    defaults = "spark.databricks.delta.properties.defaults."
    session = {
        defaults + "appendOnly": "false",
        defaults + "minWriterVersion": "5",
        defaults + "feature.v2Checkpoint": "supported",
    }
    transaction = log.start_transaction(session)
    transaction.update_metadata(new_metadata(configuration={"delta.ignoreProtocolDefaults": "true"}))
    transaction.commit([], WRITE)
    assert log.snapshot().metadata.configuration == {"delta.appendOnly": "false"}
    assert log.snapshot().protocol.min_writer_version == 2


def test_a_default_with_a_wrong_value_is_refused(log: DeltaLog) -> None:
    transaction = log.start_transaction({"spark.databricks.delta.properties.defaults.appendOnly": "yes"})
    with pytest.raises(DeltaIllegalArgumentException, match=r"delta\.appendOnly is 'yes'"):
        transaction.update_metadata(new_metadata())


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2k", 2048), ("3KB", 3072), ("128mb", 128 << 20), ("1g", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert TARGET_FILE_SIZE_BYTES.of({TARGET_FILE_SIZE_BYTES.name: text}, "t") == size


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", []),
        (" a , b.c ", [("a",), ("b", "c")]),
        ("`a.b`.`c``d`, _1", [("a.b", "c`d"), ("_1",)]),
    ],
)
def test_lists_of_columns(text: str, columns: list[tuple[str, ...]]) -> None:
    assert column_paths(text) == columns


@pytest.mark.parametrize("text", [",", "a,", "a b", "a..b", "a.", "`a", "é", "a-b"])
def test_what_is_no_list_of_columns(text: str) -> None:
    with pytest.raises(ValueError, match="no name of a column"):
        column_paths(text)


def test_a_table_that_is_there_keeps_its_properties(log: DeltaLog) -> None:
    create(log)
    transaction = log.start_transaction({"spark.databricks.delta.properties.defaults.appendOnly": "true"})
    transaction.update_metadata(new_metadata(name="named"))
    transaction.commit([], WRITE)
    assert log.snapshot().metadata.configuration == {}


def test_the_session_bounds_the_attempts_of_a_commit(log: DeltaLog) -> None:
    create(log)
    transaction = log.start_transaction({"spark.databricks.delta.maxCommitAttempts": "1"})
    append(log, "a")
    with pytest.raises(ConcurrentWriteException, match="lost the race for the next version"):
        transaction.commit([add_file("b")], WRITE)
