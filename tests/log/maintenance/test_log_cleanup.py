from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from deltaflow.log import DeltaLog
from deltaflow.log.maintenance.log_cleanup import clean_up
from deltaflow.store import LocalLogStore
from deltaflow.store.local_directory import LocalDataDirectory
from tests.log.checkpoints import write_checkpoint
from tests.log.hand_written import WRITE, HandWrittenTable, add, append, create, meta_data, protocol
from tests.tables import checkpoint_versions, set_time, versions

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS
NOON_MS = MIDNIGHT_MS + DAY_MS // 2
V2 = protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint"])


def log_at(table: HandWrittenTable, now_ms: int = NOON_MS) -> DeltaLog:
    return DeltaLog(LocalLogStore(), table.path, clock=lambda: now_ms)


def history(
    table: HandWrittenTable,
    days_ago: list[float],
    checkpointed: set[int],
    first: list[dict[str, Any]] | None = None,
    **metadata: str,
) -> None:
    """One commit for each age before the midnight that was 30 days ago, checkpoints at some versions."""
    for version, age in enumerate(days_ago):
        actions = (first or [protocol(), meta_data(configuration=metadata)]) if version == 0 else []
        file = table.commit(version, *actions, add(f"f{version}"))
        set_time(file, round(MIDNIGHT_MS - 30 * DAY_MS - age * DAY_MS))
        if version in checkpointed:
            # At a time when nothing has expired.
            log_at(table, 0).checkpoint()


def test_what_is_below_the_checkpoint_of_the_version_at_the_limit_goes(table: HandWrittenTable) -> None:
    """The version that was the newest at the limit is 5: that of checkpoint 4 keeps it readable."""
    history(table, [9, 8, 7, 6, 5, 0, -1, -2, -3], {2, 4, 7})
    log_at(table).checkpoint()
    assert versions(table.path) == [4, 5, 6, 7, 8]
    assert checkpoint_versions(table.path) == [4, 7, 8]
    log = log_at(table)
    assert log.available_versions() == [4, 5, 6, 7, 8]
    for version in log.available_versions():
        assert log.snapshot_at(version).num_files == version + 1


def test_a_version_younger_than_the_limit_by_a_millisecond_is_not_the_last_before_it(
    table: HandWrittenTable,
) -> None:
    history(table, [9, 8, 7, 6, 5, -0.00001, -1], {2, 5})
    log_at(table).checkpoint()
    assert versions(table.path) == [2, 3, 4, 5, 6]


def test_within_a_day_nothing_more_expires(table: HandWrittenTable) -> None:
    """Of two days, the limit is at the same midnight from its beginning to its end."""
    history(table, [9, 8, -0.4, -1.5], {1, 2})
    log_at(table, MIDNIGHT_MS + DAY_MS - 1).checkpoint()
    assert versions(table.path) == [1, 2, 3]
    log_at(table, MIDNIGHT_MS + DAY_MS).checkpoint()
    assert versions(table.path) == [2, 3]


def test_without_an_old_checkpoint_all_stays(table: HandWrittenTable) -> None:
    history(table, [9, 8, 7, -1], set())
    log_at(table).checkpoint()
    assert versions(table.path) == [0, 1, 2, 3]


def test_times_that_go_back_count_as_those_after_the_version_before(table: HandWrittenTable) -> None:
    """Version 1 was committed within the retention, so version 2, whose file looks old, was, too."""
    history(table, [9, -5, 9, -6], {0, 2})
    log_at(table).checkpoint()
    assert versions(table.path) == [0, 1, 2, 3]


@pytest.mark.parametrize(("protected", "left"), [(3, [4, 5, 6]), (4, [4, 5, 6]), (5, list(range(7)))])
def test_protected_checkpoints_go_with_all_versions_before_or_stay(
    table: HandWrittenTable, protected: int, left: list[int]
) -> None:
    """The feature checkpointProtection: history up to the property's version goes at once."""
    property_name = "delta.requireCheckpointProtectionBeforeVersion"
    features = protocol(1, 7, writerFeatures=["checkpointProtection"])
    first = [features, meta_data(configuration={property_name: str(protected)})]
    history(table, [9, 8, 7, 6, 5, 4, -1], {2, 4}, first=first)
    log_at(table).checkpoint()
    assert versions(table.path) == left
    log = log_at(table)
    transaction = log.start_transaction()
    assert transaction.metadata is not None
    transaction.update_metadata(msgspec.structs.replace(transaction.metadata, configuration={}))
    transaction.commit([], WRITE)
    assert log.snapshot().metadata.configuration == {property_name: str(protected)}


def test_the_retention_is_the_tables(table: HandWrittenTable) -> None:
    history(table, [9, 8, -20, -29.9], {1, 2}, **{"delta.logRetentionDuration": "interval 2 days"})
    log_at(table).checkpoint()
    assert versions(table.path) == [2, 3]


def test_no_cleanup_where_the_table_wants_none(table: HandWrittenTable) -> None:
    history(table, [9, 8, 7], {1, 2}, **{"delta.enableExpiredLogCleanup": "false"})
    log_at(table).checkpoint()
    assert versions(table.path) == [0, 1, 2]


def test_checksums_and_compactions_go_with_the_commits_and_other_files_stay(table: HandWrittenTable) -> None:
    history(table, [9, 8, 7, 6], {2, 3})
    gone = [f"{0:020}.crc", f".{0:020}.json.crc", f"{0:020}.{1:020}.compacted.json"]
    kept = ["notes.txt", f"{3:020}.crc", f"{0:020}.json.bak", "_commits"]
    gone.append(f"{1:020}.checkpoint.{1:010}.{2:010}.parquet")
    for name in [*gone, *kept]:
        (table.log_directory / name).write_bytes(b"")
    log_at(table).checkpoint()
    assert set(kept) <= set(os.listdir(table.log_directory))
    assert not set(gone) & set(os.listdir(table.log_directory))
    assert versions(table.path) == [3]


def test_a_broken_checkpoint_keeps_nothing_readable(
    table: HandWrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    history(table, [9, 8, 7, -1], {1, 2})
    (table.log_directory / f"{2:020}.checkpoint.parquet").write_bytes(b"PAR1 broken PAR1")
    log_at(table).checkpoint()
    assert versions(table.path) == [1, 2, 3]
    assert "is broken" in caplog.text
    assert log_at(table).snapshot_at(2).num_files == 3


def flip_a_page(file: Path) -> None:
    """Damage the file in the middle of the first column that holds paths; its footer stays sound."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    (paths,) = [column for column in columns if column.path_in_schema == "add.path"]
    data = bytearray(file.read_bytes())
    data[paths.data_page_offset + paths.total_compressed_size - 3] ^= 0xFF
    file.write_bytes(data)


def test_a_checkpoint_of_which_only_the_footer_is_sound_keeps_nothing_readable(
    table: HandWrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    history(table, [9, 8, 7, -1], {2})
    flip_a_page(table.log_directory / f"{2:020}.checkpoint.parquet")
    log_at(table).checkpoint()
    assert versions(table.path) == [0, 1, 2, 3]
    assert "is broken" in caplog.text
    assert [log_at(table).snapshot_at(version).num_files for version in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_the_table_keeps_nothing_readable(table: HandWrittenTable, missing: str) -> None:
    history(table, [9, 8, 7, -1], set())
    log = log_at(table)
    log.snapshot()
    actions = [protocol(), meta_data(), add("f0"), add("f1"), add("f2")]
    write_checkpoint(table, 2, [action for action in actions if missing not in action])
    log.checkpoint()
    assert versions(table.path) == [0, 1, 2, 3]


def test_a_checkpoint_is_read_only_for_what_can_be_deleted(
    table: HandWrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    history(table, [9, -1, -2], {0})
    flip_a_page(table.log_directory / f"{0:020}.checkpoint.parquet")
    log_at(table).checkpoint()
    assert versions(table.path) == [0, 1, 2]
    assert "is broken" not in caplog.text


class TestSidecars:
    def test_those_that_no_checkpoint_needs_go(self, table: HandWrittenTable) -> None:
        for version in range(3):
            configuration = {"delta.checkpointPolicy": "v2"}
            first = [V2, meta_data(configuration=configuration)] if version == 0 else []
            file = table.commit(version, *first, add(f"f{version}"))
            set_time(file, MIDNIGHT_MS - (40 - version) * DAY_MS)
            log_at(table, 0).checkpoint()
        directory = table.log_directory / "_sidecars"
        young = directory / f"{uuid.uuid4()}.parquet"
        young.write_bytes(b"of a checkpoint that is being written")
        for file in directory.iterdir():
            set_time(file, MIDNIGHT_MS - 40 * DAY_MS)
        set_time(young, MIDNIGHT_MS - DAY_MS)
        table.commit(3, add("f3"))
        log_at(table).checkpoint()
        assert versions(table.path) == [2, 3]
        # Of versions 2 and 3.
        assert len(list(directory.iterdir())) == 2 + 1
        assert young.exists()
        for version in (2, 3):
            assert log_at(table).snapshot_at(version).num_files == version + 1

    def test_a_checkpoint_without_its_sidecar_keeps_nothing_readable(self, table: HandWrittenTable) -> None:
        configuration = {"delta.checkpointPolicy": "v2"}
        file = table.commit(0, V2, meta_data(configuration=configuration), add("f0"))
        set_time(file, 0)
        set_time(table.commit(1, add("f1")), DAY_MS)
        log_at(table, 0).checkpoint()
        for sidecar in (table.log_directory / "_sidecars").iterdir():
            sidecar.unlink()
        table.commit(2, add("f2"))
        log_at(table).checkpoint()
        assert versions(table.path) == [0, 1, 2]

    def test_a_checkpoint_with_a_truncated_sidecar_keeps_nothing_readable(
        self, table: HandWrittenTable
    ) -> None:
        configuration = {"delta.checkpointPolicy": "v2"}
        file = table.commit(0, V2, meta_data(configuration=configuration), add("f0"))
        set_time(file, 0)
        set_time(table.commit(1, add("f1")), DAY_MS)
        log_at(table, 0).checkpoint()
        for sidecar in (table.log_directory / "_sidecars").iterdir():
            sidecar.write_bytes(sidecar.read_bytes()[:-20])
        table.commit(2, add("f2"))
        log_at(table).checkpoint()
        assert versions(table.path) == [0, 1, 2]
        assert log_at(table).snapshot_at(1).num_files == 2

    @pytest.mark.parametrize("more", [0, 1])
    def test_none_goes_if_a_checkpoint_has_fewer_rows_than_its_footer_counts(
        self, table: HandWrittenTable, caplog: pytest.LogCaptureFixture, more: int
    ) -> None:
        """One of the rows that it lacks may have named a sidecar."""
        for version in range(3):
            first = [V2, meta_data(configuration={"delta.checkpointPolicy": "v2"})] if version == 0 else []
            file = table.commit(version, *first, add(f"f{version}"))
            set_time(file, MIDNIGHT_MS - (40 - version) * DAY_MS)
            log_at(table, 0).checkpoint({"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"})
        directory = table.log_directory / "_sidecars"
        for file in directory.iterdir():
            set_time(file, MIDNIGHT_MS - 40 * DAY_MS)
        [checkpoint] = table.log_directory.glob(f"{2:020}.checkpoint.*.parquet")
        rows = pq.read_metadata(checkpoint).num_rows
        # The last such number of the footer is that of the rows in its row group.
        before, _, after = checkpoint.read_bytes().rpartition(bytes([0x16, 2 * rows]))
        other = table.log_directory / f"{3:020}.checkpoint.{uuid.uuid4()}.parquet"
        other.write_bytes(before + bytes([0x16, 2 * (rows + more)]) + after)
        assert pq.read_metadata(other).row_group(0).num_rows == rows + more
        table.commit(3, add("f3"))
        log_at(table).checkpoint()
        assert versions(table.path) == [2, 3]
        assert ("No sidecars of" in caplog.text) is bool(more)
        assert len(list(directory.iterdir())) == (4 if more else 2)

    def test_old_readers_find_the_protocol(self, table: HandWrittenTable) -> None:
        """Once the first commits are gone: in a checkpoint of the classic name."""
        configuration = {"delta.checkpointPolicy": "v2"}
        for version in range(2):
            first = [V2, meta_data(configuration=configuration)] if version == 0 else []
            set_time(table.commit(version, *first, add(f"f{version}")), version * DAY_MS)
        log_at(table, 0).checkpoint()
        table.commit(2, add("f2"))
        log_at(table).checkpoint()
        assert versions(table.path) == [1, 2]
        classic = [file.name for file in table.log_directory.glob("*.checkpoint.parquet")]
        assert classic == [f"{2:020}.checkpoint.parquet"]
        for name in sorted(os.listdir(table.log_directory)):
            if name.endswith(".json") and name != "_last_checkpoint":
                (table.log_directory / name).unlink()
        assert log_at(table).snapshot().num_files == 3

    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_old_readers_get_no_copy_of_a_broken_checkpoint(
        self, table: HandWrittenTable, caplog: pytest.LogCaptureFixture, file_format: str
    ) -> None:
        session = {"spark.databricks.delta.checkpointV2.topLevelFileFormat": file_format}
        for version in range(3):
            first = [V2, meta_data(configuration={"delta.checkpointPolicy": "v2"})] if version == 0 else []
            set_time(table.commit(version, *first, add(f"f{version}")), version * DAY_MS)
            if version:
                log_at(table, 0).checkpoint(session)
        [newest] = table.log_directory.glob(f"{2:020}.checkpoint.*")
        newest.write_bytes(newest.read_bytes()[:-20])
        log = log_at(table)
        clean_up(log._files, log.snapshot(), MIDNIGHT_MS - DAY_MS)
        assert versions(table.path) == [1, 2]
        [classic] = table.log_directory.glob("*.checkpoint.parquet")
        assert classic.name == f"{1:020}.checkpoint.parquet"
        assert f"{newest.name} is not copied" in caplog.text
        assert log_at(table).snapshot().num_files == 3

    def test_a_checkpoint_of_several_parts_stays_what_it_is(self, table: HandWrittenTable) -> None:
        """It is from before the feature. Old readers find the protocol in one of its parts."""
        for version in range(6):
            first = [protocol(), meta_data()] if version == 0 else []
            file = table.commit(version, *first, add(f"f{version}"))
            set_time(file, MIDNIGHT_MS - (50 - version) * DAY_MS)
            if version in (2, 4):
                log_at(table, 0).checkpoint({"spark.databricks.delta.checkpoint.partSize": "2"})
        set_time(table.commit(6, V2, add("f6")), MIDNIGHT_MS - 40 * DAY_MS)
        parts = {file.name for file in table.log_directory.glob("*.checkpoint.*.parquet")}
        log = log_at(table)
        clean_up(log._files, log.snapshot(), 0)
        assert versions(table.path) == [4, 5, 6]
        assert {file.name for file in table.log_directory.glob("*.checkpoint*.parquet")} == {
            name for name in parts if name.startswith(f"{4:020}")
        }
        assert [log_at(table).snapshot_at(version).num_files for version in (4, 5, 6)] == [5, 6, 7]


def test_a_clock_that_is_ahead_makes_no_file_older(table: HandWrittenTable) -> None:
    """Writers with the right time would take the names of the commits that they have not seen."""
    history(table, [3, 2, 1, 0], set(), **{"delta.logRetentionDuration": "interval 1 day"})
    for version, file in enumerate(sorted(table.log_directory.glob("*.json"))):
        set_time(file, NOON_MS - (4 - version) * 60_000)
    log_at(table, 0).checkpoint()
    ahead = log_at(table, NOON_MS + 2 * DAY_MS)
    set_time(table.log_directory / f"{3:020}.checkpoint.parquet", NOON_MS)
    set_time(table.log_directory / "_last_checkpoint", NOON_MS)
    clean_up(ahead._files, ahead.snapshot())
    assert versions(table.path) == [0, 1, 2, 3]
    set_time(table.log_directory / "_last_checkpoint", NOON_MS + 2 * DAY_MS)
    clean_up(ahead._files, ahead.snapshot())
    assert versions(table.path) == [3]


def test_a_failed_cleanup_is_a_warning_of_the_commit(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(log, configuration={"delta.checkpointInterval": "1", "delta.logRetentionDuration": "0 days"})
    append(log, "a")
    for name in os.listdir(f"{log.path}/_delta_log"):
        set_time(Path(log.path, "_delta_log", name), 1)

    def fail(*_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(LocalDataDirectory, "delete", fail)
    later = DeltaLog(LocalLogStore(), log.path)
    for version, name in enumerate(("b", "c"), 2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert append(later, name) == version
        assert "read-only" in caplog.text
    assert log.snapshot().num_files == 3


def test_commits_look_for_expired_files_once_a_day(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = []
    list_from = LocalLogStore.list_from

    def listed(store: LocalLogStore, directory: str, name: str) -> Any:
        listings.append(name)
        return list_from(store, directory, name)

    monkeypatch.setattr(LocalLogStore, "list_from", listed)
    history(table, [9, 8, 1, -0.4, -1.5], {2}, **{"delta.checkpointInterval": "1"})
    now_ms = NOON_MS
    log = DeltaLog(LocalLogStore(), table.path, clock=lambda: now_ms)
    listings.clear()
    append(log, "a")
    assert versions(table.path) == [2, 3, 4, 5]
    assert listings.count("") == 1
    for number in range(5):
        append(log, f"b{number}")
    assert listings.count("") == 1
    now_ms += 2 * DAY_MS
    append(log, "c")
    assert listings.count("") == 2
    assert log.available_versions()[-1] == 11
