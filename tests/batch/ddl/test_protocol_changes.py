"""Table features that come and go: what is committed, what has to be gone before, and what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from deltaflow import DeltaTable
from deltaflow.batch.ddl.drop_feature import drop_feature
from deltaflow.batch.ddl.table_properties import set_properties
from deltaflow.errors import CorruptLogError, DeltaAnalysisException, UnsupportedFeatureError
from deltaflow.log import DeltaLog, DomainMetadata, Protocol, set_observer
from tests.log.hand_written import WRITE, HandWrittenTable, append, create, meta_data
from tests.log.hand_written import protocol as protocol_action
from tests.tables import rows_by_deltalake

SLOW = {"spark.databricks.delta.tableFeatures.fastDropFeature.enabled": "false"}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog.for_table(str(tmp_path / "table"))


def protocol(reader: int, writer: int, *features: str) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, writer_features=list(features) or None
    )


def changes(log: DeltaLog) -> list[tuple[str, dict[str, Any]]]:
    infos = [commit.commit_info for commit in log.commits(1)]
    return [(info.operation, dict(info.operation_parameters)) for info in infos if info is not None]  # type: ignore[misc, arg-type]


def refused(code: str, *texts: str) -> Any:
    return pytest.raises(DeltaAnalysisException, match=rf"^\[{code}\].*{'.*'.join(texts)}")


def dropped(name: str, truncates: bool = False) -> tuple[str, dict[str, Any]]:
    return "DROP FEATURE", {"featureName": name, "truncateHistory": truncates}


class TestDrops:
    @pytest.mark.parametrize(
        ("feature", "given", "truncates"),
        [
            ("domainMetadata", "DOMAINMETADATA", False),
            ("vacuumProtocolCheck", "vacuumProtocolCheck", False),
            ("vacuumProtocolCheck", "vacuumProtocolCheck", True),
            ("v2Checkpoint", "v2Checkpoint", False),
            ("inCommitTimestamp", "inCommitTimestamp", False),
        ],
    )
    def test_what_has_no_trace(self, log: DeltaLog, feature: str, given: str, truncates: bool) -> None:
        create(log, "a", configuration={f"delta.feature.{feature}": "supported", "mine": "1"})
        before = log.snapshot()
        assert drop_feature(log, given, truncates, {}) == 1
        snapshot = log.snapshot()
        assert snapshot.protocol == protocol(1, 2)
        assert snapshot.metadata == before.metadata
        assert changes(log) == [dropped(feature, truncates)]
        append(log, "b")
        assert deltalake.DeltaTable(log.path).version() == 2

    def test_one_of_a_version_without_lists(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.minWriterVersion": "3"})
        drop_feature(log, "checkConstraints", False, {})
        assert log.snapshot().protocol == protocol(1, 2)

    def test_constraints_have_to_be_dropped_before(self, log: DeltaLog) -> None:
        create(
            log, configuration={"delta.constraints.positive": "id > 0", "delta.constraints.small": "id < 9"}
        )
        with refused("DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE", "positive, small"):
            drop_feature(log, "checkConstraints", False, {})
        assert log.latest_version() == 0

    def test_domains_are_removed(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
        log.start_transaction().commit([domain], WRITE)
        drop_feature(log, "domainMetadata", False, {})
        assert log.snapshot().protocol == protocol(1, 2)
        assert log.snapshot().domains == {}
        removal = "DOMAIN METADATA CLEANUP", {"domainMetadataRemovedCount": "1"}
        assert changes(log)[1:] == [removal, dropped("domainMetadata")]

    def test_in_commit_timestamps_are_ended(self, log: DeltaLog) -> None:
        create(log)
        set_properties(log, {"delta.enableInCommitTimestamps": "true", "mine": "1"}, {})
        drop_feature(log, "inCommitTimestamp", False, {})
        append(log, "a")
        assert log.snapshot().protocol == protocol(1, 2)
        assert log.snapshot().metadata.configuration == {
            "delta.enableInCommitTimestamps": "false",
            "mine": "1",
        }
        stamped = [commit.commit_info.in_commit_timestamp is not None for commit in log.commits(0)]  # type: ignore[union-attr]
        assert stamped == [False, True, False, False]


class TestV2Checkpoints:
    @pytest.fixture
    def log(self, log: DeltaLog) -> DeltaLog:
        """A table with a V2 checkpoint."""
        create(log, "a", configuration={"delta.checkpointPolicy": "v2"})
        append(log, "b")
        log.checkpoint()
        return log

    def age(self, log: DeltaLog) -> None:
        """Makes all of the log two days old."""
        past = time.time() - 2 * 86_400
        for file in Path(log.path, "_delta_log").iterdir():
            os.utime(file, (past, past))

    def test_first_the_table_leaves_them(self, log: DeltaLog) -> None:
        with refused("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", "v2Checkpoint", "24 hours"):
            drop_feature(log, "v2Checkpoint", True, {})
        assert log.snapshot().metadata.configuration == {"delta.checkpointPolicy": "classic"}
        assert Path(log.path, f"_delta_log/{2:020}.checkpoint.parquet").exists()
        # A day has not gone by: the history is as it was.
        for truncates in (False, True):
            with refused("DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", "v2Checkpoint"):
                drop_feature(log, "v2Checkpoint", truncates, SLOW)
        assert log.snapshot().protocol.reader_features == ["v2Checkpoint"]
        assert log.snapshot_at(0).num_files == 1

    def test_when_they_are_old_their_history_is_truncated(self, log: DeltaLog) -> None:
        with refused("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
            drop_feature(log, "v2Checkpoint", True, {})
        self.age(log)
        with refused("DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"):
            drop_feature(log, "v2Checkpoint", False, SLOW)
        drop_feature(log, "v2Checkpoint", True, {})
        assert log.snapshot().protocol == protocol(1, 2)
        assert log.available_versions() == [2, 3]
        assert log.snapshot().num_files == 2
        assert not list(Path(log.path, "_delta_log").glob("*.json.tmp"))
        assert len(deltalake.DeltaTable(log.path).file_uris()) == 2

    def test_a_v2_checkpoint_of_a_classic_name_is_one(self, log: DeltaLog) -> None:
        with refused("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
            drop_feature(log, "v2Checkpoint", True, {})
        set_properties(log, {"delta.checkpointPolicy": "v2"}, {})
        log.checkpoint({"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"})
        set_properties(log, {"delta.checkpointPolicy": "classic"}, {})
        folder = Path(log.path, "_delta_log")
        (named,) = folder.glob(f"{3:020}.checkpoint.*-*.parquet")
        named.rename(folder / f"{3:020}.checkpoint.parquet")
        for version in range(4):
            (folder / f"{version:020}.json").unlink()
        for v2 in folder.glob(f"{1:020}.checkpoint.*"):
            v2.unlink()
        assert log.has_v2_checkpoint_history()
        checkpoint = folder / f"{3:020}.checkpoint.parquet"
        checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
        with pytest.raises(CorruptLogError, match=f"{checkpoint}, a part of a checkpoint, cannot be read"):
            log.has_v2_checkpoint_history()
        checkpoint.unlink()
        assert not log.has_v2_checkpoint_history()

    def test_at_once_their_checkpoints_are_protected(self, log: DeltaLog) -> None:
        drop_feature(log, "v2Checkpoint", False, {})
        assert log.snapshot().protocol == protocol(1, 7, "appendOnly", "checkpointProtection", "invariants")
        assert log.snapshot().metadata.configuration == {
            "delta.checkpointPolicy": "classic",
            "delta.requireCheckpointProtectionBeforeVersion": "6",
        }
        empty = [("Empty Commit", {})] * 3
        assert changes(log)[2:] == [*empty, dropped("v2Checkpoint")]
        names = [f"_delta_log/{version:020}.checkpoint.parquet" for version in range(3, 7)]
        assert all(Path(log.path, name).exists() for name in names)
        assert log.snapshot_at(0).num_files == 1
        assert len(deltalake.DeltaTable(log.path).file_uris()) == 2

    def test_the_protection_goes_with_the_versions_before_it(self, log: DeltaLog) -> None:
        drop_feature(log, "v2Checkpoint", False, {})
        with refused("DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"):
            drop_feature(log, "checkpointProtection", False, {})
        with refused("DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD", "24 hours"):
            drop_feature(log, "checkpointProtection", True, {})
        assert min(log.available_versions()) == 0
        self.age(log)
        drop_feature(log, "checkpointProtection", True, {})
        assert log.snapshot().protocol == protocol(1, 2)
        assert log.snapshot().metadata.configuration == {"delta.checkpointPolicy": "classic"}
        assert min(log.available_versions()) == 6


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("appendOnly", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
            ("invariants", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
            ("domainMetadata", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
            ("deletionVectors", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
            ("delta.appendOnly", "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"),
            ("no_feature", "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        ],
    )
    def test_names(self, log: DeltaLog, name: str, code: str) -> None:
        create(log)
        with refused(code, name):
            drop_feature(log, name, False, {})
        assert log.latest_version() == 0

    def test_no_history_to_truncate(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        with refused("DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED", "domainMetadata"):
            drop_feature(log, "domainMetadata", True, {})

    def test_a_table_that_is_not_written(self, tmp_path: Path) -> None:
        table = HandWrittenTable(tmp_path / "written")
        features = ["domainMetadata", "coordinatedCommits-preview"]
        table.commit(0, protocol_action(1, 7, writerFeatures=features), meta_data())
        with pytest.raises(UnsupportedFeatureError, match="coordinatedCommits-preview"):
            drop_feature(table.log(), "domainMetadata", False, {})
        with refused("DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", "coordinatedCommits-preview"):
            drop_feature(table.log(), "coordinatedCommits-preview", False, {})

    def test_a_feature_that_another_one_needs(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.feature.rowTracking": "supported"})
        with refused("DELTA_FEATURE_DROP_DEPENDENT_FEATURE", "rowTracking"):
            drop_feature(log, "domainMetadata", False, {})


class TestRaces:
    @pytest.fixture
    def before_the_drop(self) -> Any:
        """Lets `rival` commit between each drop's preparation and its put, `times` times."""

        def begin(rival: Callable[[], Any], times: int = 1) -> None:
            left = [rival] * times

            def observe(point: str, facts: dict[str, Any]) -> None:
                if point == "commit prepared" and left:
                    set_observer(None)
                    left.pop()()
                    set_observer(observe)

            set_observer(observe)

        yield begin
        set_observer(None)

    def test_an_append_is_no_hindrance(self, log: DeltaLog, before_the_drop: Any) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        before_the_drop(lambda: append(log, "a"), times=3)
        assert drop_feature(log, "domainMetadata", False, {}) == 4
        assert log.snapshot().protocol == protocol(1, 2)

    def test_many_are(self, log: DeltaLog, before_the_drop: Any) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        names = iter("abcdefghij")
        before_the_drop(lambda: append(log, next(names)), times=10)
        with refused("DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", "domainMetadata"):
            drop_feature(log, "domainMetadata", False, {})

    def test_who_uses_the_feature_meanwhile_keeps_it(self, log: DeltaLog, before_the_drop: Any) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
        before_the_drop(lambda: log.start_transaction().commit([domain], WRITE))
        with refused("DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", "domainMetadata"):
            drop_feature(log, "domainMetadata", False, {})
        assert list(log.snapshot().domains) == ["mine"]
        assert log.snapshot().protocol.writer_features is not None


@pytest.mark.spark
class TestTheAPI:
    @pytest.fixture
    def made(self, spark: SparkSession, log: DeltaLog) -> DeltaTable:
        spark.range(3).write.format("delta").save(log.path)
        return DeltaTable.forPath(spark, log.path)

    def test_versions_are_raised_and_never_lowered(self, made: DeltaTable, log: DeltaLog) -> None:
        made.upgradeTableProtocol(1, 3)
        assert log.snapshot().protocol == protocol(1, 3)
        made.upgradeTableProtocol(1, 2)
        assert log.snapshot().protocol == protocol(1, 3)
        name, parameters = changes(log)[0]
        assert name == "SET TBLPROPERTIES"
        assert parameters == {"properties": '{"delta.minReaderVersion":"1","delta.minWriterVersion":"3"}'}
        for reader, writer in ((4, 7), (1, 8), (0, 2)):
            with pytest.raises(UnsupportedFeatureError, match="DELTA_INVALID_PROTOCOL_VERSION"):
                made.upgradeTableProtocol(reader, writer)

    def test_a_feature_comes_and_goes(self, made: DeltaTable, log: DeltaLog) -> None:
        made.addFeatureSupport("appendOnly")
        assert log.snapshot().protocol == protocol(1, 2)
        made.addFeatureSupport("inCommitTimestamp")
        assert log.snapshot().protocol == protocol(1, 7, "appendOnly", "inCommitTimestamp", "invariants")
        made.addFeatureSupport("vacuumProtocolCheck")
        assert log.snapshot().protocol.reader_features == ["vacuumProtocolCheck"]
        made.dropFeatureSupport("vacuumProtocolCheck", True)
        made.dropFeatureSupport("inCommitTimestamp")
        assert log.snapshot().protocol == protocol(1, 2)
        assert changes(log)[-2:] == [dropped("vacuumProtocolCheck", True), dropped("inCommitTimestamp")]
        assert made.toDF().count() == len(rows_by_deltalake(log.path)) == 3

    def test_names_of_nothing_and_of_what_is_lacking(self, made: DeltaTable, log: DeltaLog) -> None:
        with pytest.raises(UnsupportedFeatureError, match=r"DELTA_UNSUPPORTED_FEATURES_IN_CONFIG.*abc"):
            made.addFeatureSupport("abc")
        for name in ("coordinatedCommits-preview", "catalogManaged"):
            with pytest.raises(UnsupportedFeatureError, match=name):
                made.addFeatureSupport(name)
        assert log.latest_version() == 0

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda made: made.upgradeTableProtocol("abc", 3), "readerVersion needs to be an integer"),
            (lambda made: made.upgradeTableProtocol(1, [3]), "writerVersion needs to be an integer"),
            (lambda made: made.addFeatureSupport(1), "featureName needs to be a string"),
            (lambda made: made.dropFeatureSupport([]), "featureName needs to be a string"),
            (lambda made: made.dropFeatureSupport("a", 1), "truncateHistory needs to be a boolean"),
        ],
    )
    def test_arguments_of_a_wrong_type(self, spark: SparkSession, call: Any, message: str) -> None:
        from deltaflow.spark.sql.statements import NamedTable

        with pytest.raises(ValueError, match=message):
            call(DeltaTable(spark, NamedTable("delta.`/nowhere`", "/nowhere")))

    def test_features_are_dropped_by_sql(
        self, spark: SparkSession, made: DeltaTable, log: DeltaLog, database: Path
    ) -> None:
        spark.sql(f"CREATE TABLE told USING delta LOCATION '{log.path}'")
        for named in (f"delta.`{log.path}`", "told", "IDENTIFIER(:t)"):
            made.addFeatureSupport("vacuumProtocolCheck")
            text = f"ALTER TABLE {named} DROP FEATURE vacuumProtocolCheck TRUNCATE HISTORY"
            assert spark.sql(text, args={"t": "told"}).collect() == []
            assert changes(log)[-1] == dropped("vacuumProtocolCheck", True)
        with refused("DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE", "nothing"):
            spark.sql("ALTER TABLE told DROP FEATURE 'nothing'")
