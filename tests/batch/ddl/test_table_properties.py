"""ALTER TABLE … SET and UNSET TBLPROPERTIES on the log's side: what is committed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaflow.batch.ddl.table_properties import set_properties, unset_properties
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaError,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
    UnsupportedFeatureError,
)
from deltaflow.log import Commit, DeltaLog
from tests.log.hand_written import create


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = DeltaLog.for_table(str(tmp_path / "table"))
    create(log, configuration={"delta.appendOnly": "false", "Team": "A"}, description="old")
    return log


def newest_commit(log: DeltaLog) -> Commit:
    return list(log.commits(0))[-1]


def test_properties_are_set_in_one_commit(log: DeltaLog) -> None:
    version = set_properties(log, {"DELTA.appendonly": "TRUE", "Team": "B b ", "team": "c"}, {})
    assert version == log.latest_version() == 1
    assert log.snapshot().metadata.configuration == {
        "delta.appendOnly": "TRUE",
        "Team": "B b ",
        "team": "c",
    }
    info = newest_commit(log).commit_info
    assert info is not None
    assert info.operation == "SET TBLPROPERTIES"
    assert info.operation_parameters == {"properties": '{"delta.appendOnly":"TRUE","Team":"B b ","team":"c"}'}


def test_properties_are_unset_in_one_commit(log: DeltaLog) -> None:
    assert unset_properties(log, ["delta.APPENDONLY", "none"], True, {}) == 1
    assert log.snapshot().metadata.configuration == {"Team": "A"}
    info = newest_commit(log).commit_info
    assert info is not None
    assert info.operation == "UNSET TBLPROPERTIES"
    assert info.operation_parameters == {"properties": '["delta.appendOnly","none"]', "ifExists": "true"}


def test_what_is_not_set_cannot_be_unset(log: DeltaLog) -> None:
    with pytest.raises(DeltaAnalysisException, match="non-existent property 'team'") as raised:
        unset_properties(log, ["Team", "team"], False, {})
    assert raised.value.error_class == "DELTA_UNSET_NON_EXISTENT_PROPERTY"
    assert log.latest_version() == 0


def test_the_comment_is_the_tables_description(log: DeltaLog) -> None:
    set_properties(log, {"comment": "new"}, {})
    assert log.snapshot().metadata.description == "new"
    assert "comment" not in log.snapshot().metadata.configuration
    unset_properties(log, ["comment"], False, {})
    assert log.snapshot().metadata.description is None


def test_a_feature_of_tables_goes_into_the_protocol(log: DeltaLog) -> None:
    set_properties(log, {"Delta.Feature.v2Checkpoint": "supported", "delta.checkpointPolicy": "v2"}, {})
    snapshot = log.snapshot()
    assert "v2Checkpoint" in (snapshot.protocol.reader_features or ())
    assert "delta.checkpointPolicy" in snapshot.metadata.configuration
    assert not [name for name in snapshot.metadata.configuration if "eature" in name]


@pytest.mark.parametrize(
    ("properties", "error_type", "code"),
    [
        ({"delta.apendOnly": "true"}, DeltaAnalysisException, "DELTA_UNKNOWN_CONFIGURATION"),
        (
            {"Team": "B", "delta.appendOnly": "yes"},
            DeltaIllegalArgumentException,
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
        ),
        (
            {"delta.columnMapping.maxColumnId": "3"},
            DeltaIllegalArgumentException,
            "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        ),
        (
            {"clusteringColumns": "id"},
            DeltaIllegalArgumentException,
            "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        ),
        ({"delta.constraints.c": "id > 0"}, DeltaAnalysisException, "DELTA_ADD_CONSTRAINTS"),
        ({"location": "/tmp/x"}, DeltaAnalysisException, "DELTA_CANNOT_CHANGE_LOCATION"),
        ({"provider": "parquet"}, DeltaAnalysisException, "DELTA_CANNOT_CHANGE_PROVIDER"),
        (
            {"delta.feature.catalogManaged": "supported"},
            UnsupportedFeatureError,
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        ),
    ],
)
def test_what_delta_refuses_changes_nothing(
    log: DeltaLog, properties: dict[str, str], error_type: type[DeltaError], code: str
) -> None:
    with pytest.raises(error_type) as raised:
        set_properties(log, properties, {})
    assert raised.value.error_class == code
    assert log.latest_version() == 0


def test_the_session_may_allow_unknown_names(log: DeltaLog) -> None:
    settings = {"spark.databricks.delta.allowArbitraryProperties.enabled": "true"}
    set_properties(log, {"delta.apendOnly": "true"}, settings)
    assert log.snapshot().metadata.configuration["delta.apendOnly"] == "true"


def test_without_a_table_nothing_is_set(tmp_path: Path) -> None:
    nothing = DeltaLog.for_table(str(tmp_path / "nothing"))
    with pytest.raises(DeltaTableNotFoundError):
        set_properties(nothing, {"a": "b"}, {})
    with pytest.raises(DeltaTableNotFoundError):
        unset_properties(nothing, ["a"], True, {})
    assert not (tmp_path / "nothing").exists()
