"""The protocol that a table gets from its properties, and what commits hold by their features."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    UnsupportedFeatureError,
)
from deltaflow.log import (
    DeltaLog,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.log.protocol.protocols import merged_protocol, protocol_for, without_feature
from deltaflow.store import LocalLogStore
from tests.log.hand_written import (
    WRITE,
    HandWrittenTable,
    add_file,
    append,
    create,
    meta_data,
    new_metadata,
    paths,
)
from tests.log.hand_written import protocol as protocol_action

ICT = "delta.enableInCommitTimestamps"
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def protocol(reader: int, writer: int, **features: list[str]) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer, **features)  # type: ignore[arg-type]


def features(*names: str, readers: tuple[str, ...] | None = None) -> Protocol:
    """A protocol of lists; reader version 3 only where readers need one."""
    writer_features = sorted(["appendOnly", "invariants", *names, *(readers or ())])
    if readers is None:
        return protocol(1, 7, writer_features=writer_features)
    return protocol(3, 7, reader_features=list(readers), writer_features=writer_features)


class TestNewTables:
    @pytest.mark.parametrize(
        ("configuration", "expected"),
        [
            ({}, protocol(1, 2)),
            ({"delta.appendOnly": "true"}, protocol(1, 2)),
            ({"delta.minWriterVersion": "4"}, protocol(1, 4)),
            ({"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, protocol(2, 5)),
            ({"delta.minWriterVersion": "7"}, features()),
            ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, features(readers=())),
            ({"delta.feature.domainMetadata": "supported"}, features("domainMetadata")),
            ({"delta.feature.DOMAINMETADATA": "enabled"}, features("domainMetadata")),
            ({"delta.feature.vacuumProtocolCheck": "supported"}, features(readers=("vacuumProtocolCheck",))),
            ({ICT: "true"}, features("inCommitTimestamp")),
            ({ICT: "false"}, protocol(1, 2)),
            ({"delta.checkpointPolicy": "v2"}, features(readers=("v2Checkpoint",))),
            ({"delta.feature.checkConstraints": "supported"}, features("checkConstraints")),
            ({"delta.enableDeletionVectors": "true"}, features(readers=("deletionVectors",))),
            (
                {"delta.feature.variantShredding": "supported"},
                features(readers=("variantShredding", "variantType")),
            ),
        ],
        ids=str,
    )
    def test_protocol(self, log: DeltaLog, configuration: dict[str, str], expected: Protocol) -> None:
        create(log, "a", configuration={**configuration, "mine": "1"})
        snapshot = log.snapshot()
        assert snapshot.protocol == expected
        append(log, "b")
        assert paths(log) == ["a", "b"]
        kept = {"mine", *(name for name in configuration if not re.match(r"delta\.(feature|min)", name))}
        assert set(snapshot.metadata.configuration) == kept

    @pytest.mark.parametrize(
        ("configuration", "error", "match"),
        [
            ({"delta.feature.brandNew": "supported"}, UnsupportedFeatureError, "brandNew"),
            ({"delta.feature.clustering": "supported"}, DeltaAnalysisException, "CLUSTER BY"),
            ({"delta.enableIcebergCompatV2": "true"}, UnsupportedFeatureError, "icebergCompatV2"),
            ({"delta.minWriterVersion": "8"}, UnsupportedFeatureError, "version 8; deltaflow knows 1 to 7"),
            ({"delta.minReaderVersion": "three"}, DeltaIllegalArgumentException, "integer.*'three'"),
            (
                {"delta.minReaderVersion": "3"},
                DeltaIllegalArgumentException,
                "needs delta.minWriterVersion 7",
            ),
            ({"delta.feature.domainMetadata": "yes"}, DeltaIllegalArgumentException, "'supported'"),
        ],
        ids=str,
    )
    def test_refusal(
        self, log: DeltaLog, configuration: dict[str, str], error: type[Exception], match: str
    ) -> None:
        with pytest.raises(error, match=match):
            create(log, "a", configuration=configuration)
        assert not log.exists()


@pytest.mark.parametrize(
    ("before", "configuration", "after"),
    [
        (protocol(1, 2), {}, protocol(1, 2)),
        (protocol(1, 1), {"delta.appendOnly": "true"}, protocol(1, 2)),
        (protocol(1, 2), {"delta.enableChangeDataFeed": "true"}, protocol(1, 4)),
        (protocol(1, 2), {"delta.columnMapping.mode": "name"}, protocol(2, 5)),
        (protocol(1, 4), {"delta.minWriterVersion": "2"}, protocol(1, 4)),
        (
            protocol(1, 3),
            {ICT: "true"},
            protocol(
                1, 7, writer_features=["appendOnly", "checkConstraints", "inCommitTimestamp", "invariants"]
            ),
        ),
        (
            protocol(1, 7, writer_features=["clustering"]),
            {"delta.appendOnly": "true"},
            protocol(1, 7, writer_features=["appendOnly", "clustering"]),
        ),
        (
            protocol(1, 7, writer_features=["domainMetadata"]),
            {"delta.feature.v2Checkpoint": "supported"},
            protocol(
                3, 7, reader_features=["v2Checkpoint"], writer_features=["domainMetadata", "v2Checkpoint"]
            ),
        ),
        (protocol(1, 2), {"delta.feature.checkConstraints": "supported"}, protocol(1, 3)),
        (protocol(1, 2), {"delta.feature.appendOnly": "supported"}, protocol(1, 2)),
        (protocol(1, 2), {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, protocol(2, 5)),
        (protocol(1, 2), {"delta.minWriterVersion": "5"}, protocol(1, 4)),
        (protocol(1, 2), {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, protocol(1, 2)),
        # The versions stand for their features, which may fill a gap.
        (features("checkConstraints"), {"delta.minWriterVersion": "4"}, protocol(1, 4)),
        (
            protocol(1, 7, writer_features=["checkConstraints"]),
            {"delta.minWriterVersion": "2"},
            protocol(1, 3),
        ),
        (
            features("domainMetadata"),
            {"delta.minWriterVersion": "3"},
            features("checkConstraints", "domainMetadata"),
        ),
    ],
    ids=str,
)
def test_upgrades_of_tables_go_no_further_than_needed(
    before: Protocol, configuration: dict[str, str], after: Protocol
) -> None:
    metadata: Metadata = new_metadata(configuration=configuration)
    assert protocol_for(metadata, before, "/t") == after


@pytest.mark.parametrize(
    ("before", "dropped", "after"),
    [
        (features("checkConstraints", "domainMetadata"), "domainMetadata", protocol(1, 3)),
        (protocol(1, 3), "checkConstraints", protocol(1, 2)),
        (protocol(1, 3), "invariants", protocol(1, 7, writer_features=["appendOnly", "checkConstraints"])),
        (features(readers=("vacuumProtocolCheck",)), "vacuumProtocolCheck", protocol(1, 2)),
        (
            features("inCommitTimestamp", readers=("vacuumProtocolCheck",)),
            "vacuumProtocolCheck",
            features("inCommitTimestamp"),
        ),
        (
            features(readers=("timestampNtz", "vacuumProtocolCheck")),
            "vacuumProtocolCheck",
            features(readers=("timestampNtz",)),
        ),
        (protocol(1, 7, writer_features=["domainMetadata"]), "domainMetadata", protocol(1, 1)),
        (
            protocol(1, 7, writer_features=["brandNew", "domainMetadata"]),
            "domainMetadata",
            protocol(1, 7, writer_features=["brandNew"]),
        ),
        (
            protocol(2, 6),
            "identityColumns",
            protocol(2, 5),
        ),
    ],
    ids=str,
)
def test_without_a_feature_a_protocol_is_the_weakest(before: Protocol, dropped: str, after: Protocol) -> None:
    assert without_feature(before, dropped) == after


def test_a_table_of_reader_version_2_stays_readable(table: HandWrittenTable) -> None:
    table.commit(0, protocol_action(2, 5), meta_data())
    log = table.log()
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(configuration={ICT: "true"}))
    transaction.commit([], WRITE)
    assert log.snapshot().protocol.min_reader_version == 2
    assert "columnMapping" in (log.snapshot().protocol.writer_features or ())


def test_an_upgrade_is_one_action_and_is_not_repeated(log: DeltaLog) -> None:
    create(log)
    for _ in range(2):
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(configuration={"delta.feature.v2Checkpoint": "supported"}))
        transaction.commit([], WRITE)
    commits = list(log.commits(1))
    assert [commit.protocol is None for commit in commits] == [False, True]
    assert [commit.metadata is None for commit in commits] == [True, True]


class TestInCommitTimestamps:
    def log(self, tmp_path: Path, times: list[int]) -> DeltaLog:
        return DeltaLog(LocalLogStore(), str(tmp_path / "t"), clock=lambda: times.pop(0))

    def timestamps(self, log: DeltaLog) -> list[int | None]:
        return [commit.commit_info and commit.commit_info.in_commit_timestamp for commit in log.commits(0)]

    def test_they_grow_whatever_the_clock_says(self, tmp_path: Path) -> None:
        log = self.log(tmp_path, [1000, 1000, 500, 2000])
        create(log, configuration={ICT: "true"})
        for name in "abc":
            append(log, name)
        assert self.timestamps(log) == [1000, 1001, 1002, 2000]
        assert log.snapshot().timestamp_ms == 2000
        assert SINCE_VERSION not in log.snapshot().metadata.configuration

    def test_a_lost_race_moves_the_timestamp_on(self, tmp_path: Path) -> None:
        log = self.log(tmp_path, [1000, 3000, 1500, 1500])
        create(log, configuration={ICT: "true"})
        loser = log.start_transaction()
        append(log, "a")
        loser.commit([add_file("b")], WRITE)
        assert self.timestamps(log) == [1000, 3000, 3001]

    def test_enabling_them_on_a_table_says_since_when(self, tmp_path: Path) -> None:
        # The clock is behind the modification time of the files.
        log = self.log(tmp_path, list(range(100)))
        create(log)
        before = log.snapshot().timestamp_ms
        enabling = log.start_transaction()
        enabling.update_metadata(new_metadata(configuration={ICT: "true"}))
        append(log, "a")
        enabling.commit([], WRITE)
        append(log, "b")
        first, second, third, fourth = self.timestamps(log)
        assert first is second is None
        assert third is not None
        assert fourth == third + 1
        assert third > before
        configuration = log.snapshot().metadata.configuration
        assert configuration == {ICT: "true", SINCE_VERSION: "2", SINCE_TIMESTAMP: str(third)}
        changing = log.start_transaction()
        changing.update_metadata(new_metadata(configuration={ICT: "true", "mine": "1"}))
        changing.commit([], WRITE)
        assert log.snapshot().metadata.configuration == {**configuration, "mine": "1"}

    def test_they_grow_after_a_checkpoint_too(self, tmp_path: Path) -> None:
        """The clock of the second writer, who begins with the checkpoint, is far behind the first one's."""
        ahead = time.time_ns() // 1_000_000 + 3_600_000
        log = self.log(tmp_path, [ahead] * 20)
        create(log, configuration={ICT: "true", "delta.checkpointInterval": "2"})
        append(log, "a")
        append(log, "b")
        assert list((tmp_path / "t" / "_delta_log").glob("*2.checkpoint.parquet"))
        append(DeltaLog(LocalLogStore(), log.path), "c")
        assert self.timestamps(log) == [ahead, ahead + 1, ahead + 2, ahead + 3]

    def test_a_table_without_the_feature_has_none(self, table: HandWrittenTable) -> None:
        table.first_commit(configuration={ICT: "true"})
        append(table.log(), "a")
        (commit,) = table.log().commits(1)
        assert commit.commit_info is not None
        assert commit.commit_info.in_commit_timestamp is None

    def test_the_loser_of_a_creation_obeys_the_table(self, log: DeltaLog) -> None:
        loser = log.start_transaction()
        loser.update_metadata(new_metadata(id="table-2", configuration={ICT: "true"}))
        create(log, configuration={ICT: "true"})
        loser.commit([add_file("a")], WRITE)
        first, second = self.timestamps(log)
        assert first is not None
        assert second is not None
        assert second > first


class TestTimestampNtz:
    SCHEMA = StructType([StructField("id", LongType()), StructField("at", TimestampNTZType())])

    def test_a_new_table_and_one_that_gets_such_a_column(self, log: DeltaLog) -> None:
        create(log, "a")
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(schema_string=schema_to_string(self.SCHEMA)))
        transaction.commit([], WRITE)
        assert log.snapshot().protocol == features(readers=("timestampNtz",))
        assert log.snapshot().schema == self.SCHEMA

    def test_conditions_on_such_a_partition_column(self, log: DeltaLog) -> None:
        create(log, schema_string=schema_to_string(self.SCHEMA), partition_columns=["at"])
        files = [
            add_file(str(year), partition_values={"at": f"{year}-01-01 00:00:00.5"}) for year in (2023, 2024)
        ]
        log.start_transaction().commit(files, WRITE)
        found = log.start_transaction().record_read_of_partitions(pc.field("at") >= datetime(2024, 1, 1))
        assert found["path"].to_pylist() == ["2024"]


class TestDomains:
    def domain(self, name: str = "mine", *, removed: bool = False) -> DomainMetadata:
        return DomainMetadata(domain=name, configuration="{}", removed=removed)

    def commit(self, log: DeltaLog, *actions: Any) -> None:
        log.start_transaction().commit(list(actions), WRITE)

    def test_users_set_their_own(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        self.commit(log, self.domain(), self.domain("other"))
        self.commit(log, self.domain(removed=True))
        assert [commit.domains for commit in log.commits(1)] == [
            (self.domain(), self.domain("other")),
            (self.domain(removed=True),),
        ]

    def test_a_table_without_the_feature(self, log: DeltaLog) -> None:
        create(log)
        with pytest.raises(DeltaUnsupportedOperationException, match=r"delta\.feature\.domainMetadata"):
            self.commit(log, self.domain())

    def test_those_of_the_system_are_not_for_users(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.feature.domainMetadata": "supported"})
        with pytest.raises(DeltaUnsupportedOperationException, match="belongs to the system"):
            self.commit(log, self.domain("delta.clustering"))


class TestOneCommit:
    def test_one_thing_is_named_once(self, log: DeltaLog) -> None:
        create(log, "a%20b", configuration={"delta.feature.domainMetadata": "supported"})
        snapshot = log.snapshot()
        removed = remove_files(snapshot.with_stats(snapshot.files), 5)
        domain = DomainMetadata(domain="x", configuration="", removed=False)
        txn = SetTransaction(app_id="q", version=1)
        for actions, name in [
            ([domain, domain], "metadata domain x"),
            ([txn, SetTransaction(app_id="q", version=2)], "application q"),
            ([*removed, add_file("a%20b")], "file a b"),
            ([add_file("c"), add_file(f"{log.path}/c")], "file c"),
        ]:
            with pytest.raises(DeltaIllegalStateException, match=f"The {name} is named twice"):
                log.start_transaction().commit(actions, WRITE)
        assert log.latest_version() == 0


@pytest.mark.parametrize(
    ("before", "current", "merged"),
    [
        (protocol(1, 2), protocol(1, 3), protocol(1, 3)),
        (protocol(1, 3), protocol(1, 2), protocol(1, 3)),
        (protocol(1, 2), features("domainMetadata"), features("domainMetadata")),
        (protocol(1, 3), features("domainMetadata"), features("checkConstraints", "domainMetadata")),
        (features(readers=("v2Checkpoint",)), protocol(1, 2), features(readers=("v2Checkpoint",))),
    ],
)
def test_a_table_with_what_another_version_of_it_needs(
    before: Protocol, current: Protocol, merged: Protocol
) -> None:
    assert merged_protocol(before, current) == merged
