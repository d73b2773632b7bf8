from __future__ import annotations

import pytest

from deltaflow.errors import ConcurrentWriteException, DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.log.intervals import interval_ms
from deltaflow.log.properties import (
    APPEND_ONLY,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    CHECKPOINT_WRITE_STATS_AS_JSON,
    CHECKPOINT_WRITE_STATS_AS_STRUCT,
    DELETED_FILE_RETENTION_MS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    LOG_RETENTION_MS,
    SET_TRANSACTION_RETENTION_MS,
    Property,
)
from tests.log.tables import WRITE, add_file, append, create, new_metadata

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
    ["", "interval", "1", "days", "1 month", "2 years", "1.5 days", "-1 day", "1day", "1 day x", "١ day"],
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
        (CHECKPOINT_WRITE_STATS_AS_STRUCT, False),
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
