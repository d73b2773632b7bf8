"""Files get row ids, and lose them, beside other writers; no Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deltaflow.batch.ddl import row_tracking
from deltaflow.batch.ddl.drop_feature import drop_feature
from deltaflow.batch.ddl.table_properties import set_properties
from deltaflow.errors import (
    ConcurrentDeleteReadException,
    DeltaAnalysisException,
    MetadataChangedException,
    ProtocolChangedException,
    UnsupportedFeatureError,
)
from deltaflow.log import DeltaLog, remove_files, set_observer
from deltaflow.store import LocalLogStore
from tests.log.hand_written import WRITE, add_file, create
from tests.tables import actions, operations

ENABLED = {"delta.enableRowTracking": "true"}
FILES = ["a", "b", "c"]


@pytest.fixture
def log(tmp_path: Any) -> Iterator[DeltaLog]:
    log = DeltaLog(LocalLogStore(), str(tmp_path / "table"))
    create(log)
    log.start_transaction().commit([file(name) for name in FILES], WRITE)
    yield log
    set_observer(None)


def file(name: str) -> Any:
    return add_file(name, stats='{"numRecords":2}')


def base_row_ids(log: DeltaLog) -> dict[str, int | None]:
    files = log.snapshot().files
    return dict(zip(files["path"].to_pylist(), files["base_row_id"].to_pylist(), strict=True))


def before_commit(log: DeltaLog, at: int, action: Any) -> None:
    """Does this once, before the commit of this version is put."""

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == "commit prepared" and facts["version"] == at:
            set_observer(None)
            action(DeltaLog(LocalLogStore(), log.path))

    set_observer(observer)


def remove_b(log: DeltaLog) -> None:
    snapshot = log.snapshot()
    second = snapshot.with_stats(snapshot.files.slice(1, 1))
    log.start_transaction().commit(remove_files(second, 1), WRITE)


def test_a_file_that_is_removed_meanwhile_does_not_come_back(log: DeltaLog) -> None:
    before_commit(log, 3, remove_b)
    set_properties(log, ENABLED, {})
    assert base_row_ids(log) == {"a": 0, "c": 2}
    assert operations(log.path)[2:] == [
        "UPGRADE PROTOCOL",
        "WRITE",
        "ROW TRACKING BACKFILL",
        "SET TBLPROPERTIES",
    ]


def test_a_file_that_is_added_meanwhile_has_ids(log: DeltaLog) -> None:
    before_commit(log, 3, lambda rival: rival.start_transaction().commit([file("d")], WRITE))
    set_properties(log, ENABLED, {})
    assert base_row_ids(log) == {"d": 0, "a": 2, "b": 4, "c": 6}


def test_it_takes_as_many_commits_as_it_needs(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tracking, "_FILES_OF_A_COMMIT", 2)
    set_properties(log, ENABLED, {})
    assert sorted(base_row_ids(log).values()) == [0, 2, 4]
    backfills = [
        version for version, name in enumerate(operations(log.path)) if name == "ROW TRACKING BACKFILL"
    ]
    assert [len(actions(log.path, "add", version)) for version in backfills] == [2, 1]
    drop_feature(log, "rowTracking", False, {})
    assert set(base_row_ids(log).values()) == {None}
    assert operations(log.path).count("ROW TRACKING UNBACKFILL") == 2


def test_it_gives_up_after_so_many_conflicts(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tracking, "_ATTEMPTS", 0)
    before_commit(log, 3, remove_b)
    with pytest.raises(ConcurrentDeleteReadException):
        set_properties(log, ENABLED, {})
    assert set(base_row_ids(log).values()) == {None}
    set_properties(log, ENABLED, {})
    assert base_row_ids(log) == {"a": 0, "c": 2}


def test_it_is_not_enabled_while_it_is_suspended(log: DeltaLog) -> None:
    set_properties(log, {"delta.rowTrackingSuspended": "true"}, {})
    for properties in (ENABLED, {**ENABLED, "delta.rowTrackingSuspended": "false"}):
        with pytest.raises(DeltaAnalysisException) as raised:
            set_properties(log, properties, {})
        assert raised.value.error_class == "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"
    set_properties(log, {"delta.rowTrackingSuspended": "false"}, {})
    set_properties(log, ENABLED, {})
    assert sorted(base_row_ids(log).values()) == [0, 2, 4]


def test_no_file_gets_ids_if_another_property_is_wrong(log: DeltaLog) -> None:
    before = log.latest_version()
    with pytest.raises(UnsupportedFeatureError):
        set_properties(log, {**ENABLED, "delta.feature.unheard": "supported"}, {})
    assert log.latest_version() == before


def test_a_file_that_comes_while_the_feature_is_dropped_has_no_ids(log: DeltaLog) -> None:
    set_properties(log, ENABLED, {})
    version = log.latest_version()
    before_commit(log, version + 2, lambda rival: rival.start_transaction().commit([file("d")], WRITE))
    drop_feature(log, "rowTracking", False, {})
    assert base_row_ids(log) == dict.fromkeys([*FILES, "d"])
    assert not log.snapshot().domains


def test_appends_go_on_while_it_is_enabled(log: DeltaLog) -> None:
    appends = [log.start_transaction() for _ in range(2)]
    with_removes, snapshot = log.start_transaction(), log.snapshot()
    first = snapshot.with_stats(snapshot.files.slice(0, 1))
    before_commit(log, 3, lambda _: appends[0].commit([file("early")], WRITE))
    set_properties(log, ENABLED, {})
    appends[1].commit([file("late")], WRITE)
    assert base_row_ids(log) == {"early": 0, "a": 2, "b": 4, "c": 6, "late": 8}
    with pytest.raises(MetadataChangedException):
        with_removes.commit([file("rewritten"), *remove_files(first, 1)], WRITE)


def test_another_change_with_it_is_a_conflict(log: DeltaLog) -> None:
    append = log.start_transaction()
    set_properties(log, {"delta.feature.rowTracking": "supported", "delta.appendOnly": "true"}, {})
    with pytest.raises(MetadataChangedException):
        append.commit([file("d")], WRITE)
    append = log.start_transaction()
    set_properties(log, {"delta.feature.v2Checkpoint": "supported"}, {})
    with pytest.raises(ProtocolChangedException):
        append.commit([file("d")], WRITE)
