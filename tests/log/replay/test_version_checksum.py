"""Version checksum files: each says what a replay does; where one lies, nothing but a warning comes of it."""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltaflow.errors import DeltaConcurrentModificationException, StoreError
from deltaflow.log import (
    DeltaLog,
    DomainMetadata,
    OptimisticTransaction,
    SetTransaction,
    remove_files,
)
from deltaflow.store import FileStatus, LocalLogStore
from tests.log.checksums import RETENTION, check_checksums
from tests.log.hand_written import (
    WRITE,
    add,
    add_file,
    append,
    create,
    new_metadata,
    paths,
    remove,
)


def lie(log: DeltaLog, version: int, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    Path(log.path, "_delta_log", f"{version:020}.crc").write_text(text)


LIES: list[Any] = [
    {"numFiles": 99, "tableSizeBytes": -1, "numMetadata": 0},
    {"metadata": {"id": "other", "schemaString": "", "configuration": {"delta.appendOnly": "true"}}},
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}, "metadata": 5},
    {"allFiles": [add("z")["add"]], "setTransactions": [{"appId": "a", "version": 9}]},
    "{",
    "[]",
    "\0" * 100,
]


@pytest.mark.parametrize("content", LIES)
def test_a_checksum_that_lies_changes_nothing(log: DeltaLog, content: Any) -> None:
    create(log, "a", configuration={"delta.checkpointInterval": "2"})
    for version, name in enumerate("bcd", 1):
        lie(log, version - 1, content)
        lie(log, version, content)
        assert append(log, name) == version
    for reader in (log, DeltaLog(log._files.store, log.path)):
        snapshot = reader.snapshot()
        assert (snapshot.version, snapshot.num_files, snapshot.size_in_bytes) == (3, 4, 40)
        assert paths(reader) == ["a", "b", "c", "d"]
        assert snapshot.metadata.id == "table-1"
        assert snapshot.protocol.min_writer_version == 2
        assert reader.snapshot_at(1).num_files == 2
    assert Path(log.path, "_delta_log", f"{2:020}.checkpoint.parquet").exists()


def test_a_difference_is_told_before_a_checkpoint(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    create(log, "a")
    lie(log, 0, {"numFiles": 1, "tableSizeBytes": 11, "metadata": {"id": "table-1", "configuration": {}}})
    assert log.checksum_differences(log.snapshot()) == {"tableSizeBytes": (10, 11)}
    with caplog.at_level(logging.WARNING, logger="deltaflow.log.replay.version_checksum"):
        log.checkpoint()
    [message] = caplog.messages
    assert "tableSizeBytes is 10, there 11" in message
    assert log.path in message


def test_without_a_checksum_there_is_nothing_to_tell(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    create(log, "a")
    Path(log.path, "_delta_log", f"{0:020}.crc").unlink()
    assert log.checksum_differences(log.snapshot()) is None
    log.checkpoint()
    assert caplog.messages == []


Step = tuple[str, int]
FEATURES = {"delta.feature.domainMetadata": "supported", "delta.checkpointInterval": "3"}
CHANGES = (
    *("append", "append", "app", "readd", "remove", "overwrite", "restore", "domain", "retention"),
    *("timestamps", "foreign", "foreign readd", "foreign remove", "race", "race"),
)
STEPS = st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 3)), min_size=1, max_size=12)


def new_name() -> str:
    return f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"


class Writers:
    """Two writers that know a table since its creation, and another engine that writes by hand."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.logs = [DeltaLog(LocalLogStore(), self.path) for _ in range(2)]
        transaction = self.logs[0].start_transaction()
        transaction.update_metadata(new_metadata(configuration=FEATURES))
        transaction.commit([add_file(new_name(), size=9_000)], WRITE)
        self.foreign: set[int] = set()

    def run(self, step: Step) -> None:
        change, number = step
        log = self.logs[number % 2]
        if change.startswith("foreign"):
            self.write_by_hand(change)
        elif change == "race":
            first, second = (log.start_transaction() for log in self.logs)
            self.change(first, ("append", "app", "readd", "overwrite")[number], number)
            with suppress(DeltaConcurrentModificationException):
                self.change(second, ("app", "append", "append", "remove")[number], number)
        else:
            self.change(log.start_transaction(), change, number)

    def change(self, transaction: OptimisticTransaction, change: str, number: int) -> None:
        snapshot = transaction.snapshot
        assert snapshot is not None
        metadata = snapshot.metadata
        names = snapshot.files["path"].to_pylist()
        actions: list[Any] = [add_file(new_name(), size=10_000 * number + 1)]
        if change == "app":
            actions.append(SetTransaction(app_id=f"app{number}", version=snapshot.version))
        elif change == "readd":
            # What is written is new: only what changes no data names a file of the table again.
            actions = [add_file(name, size=10, data_change=False) for name in names[:number]]
        elif change == "remove":
            actions = remove_files(snapshot.with_stats(snapshot.files.slice(0, number)), 5)
        elif change == "overwrite":
            transaction.record_read_of_whole_table()
            actions += remove_files(snapshot.with_stats(snapshot.files), 5)
        elif change == "restore":
            gone = snapshot.tombstones["path"].to_pylist()
            actions = [add_file(name, size=number) for name in gone]
        elif change == "domain":
            actions = [DomainMetadata(domain=f"d{number % 2}", configuration="{}", removed=number > 1)]
        elif change in ("retention", "timestamps"):
            name, value = {
                "retention": (RETENTION, "interval 1 day"),
                "timestamps": ("delta.enableInCommitTimestamps", "true"),
            }[change]
            configuration = {key: text for key, text in metadata.configuration.items() if key != name}
            changed = configuration | ({name: value} if number % 2 else {})
            transaction.update_metadata(new_metadata(configuration=changed))
            actions = []
        transaction.commit(actions, WRITE)

    def write_by_hand(self, change: str) -> None:
        snapshot = DeltaLog(LocalLogStore(), self.path).snapshot()
        names = snapshot.files["path"].to_pylist()
        actions = [add(new_name())]
        if change == "foreign readd":
            actions = [add(name, size=10) for name in names[:1]]
        elif change == "foreign remove":
            actions = [remove(name) for name in [*names[:1], "never there"]]
        if "inCommitTimestamp" in str(snapshot.metadata.configuration):
            info = {"timestamp": snapshot.timestamp_ms + 1, "inCommitTimestamp": snapshot.timestamp_ms + 1}
            actions.insert(0, {"commitInfo": info})
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        version = snapshot.version + 1
        Path(self.path, "_delta_log", f"{version:020}.json").write_text(lines)
        self.foreign.add(version)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=12)
@given(steps=STEPS)
def test_every_commit_has_a_checksum_that_says_what_a_replay_does(tmp_path: Path, steps: list[Step]) -> None:
    writers = Writers(tmp_path / uuid.uuid4().hex)
    for step in steps:
        writers.run(step)
    newest = writers.logs[0].snapshot().version
    assert check_checksums(writers.path) == set(range(newest + 1)) - writers.foreign


def test_commits_of_deltalake_in_between(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    path = str(tmp_path)
    write_deltalake(path, rows)
    log = DeltaLog(LocalLogStore(), path)
    append(log, new_name())
    write_deltalake(
        path,
        rows,
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("app", 7)]),
    )
    append(log, new_name())
    append(log, new_name())
    transaction = log.start_transaction()
    write_deltalake(path, rows, mode="append")
    transaction.commit([add_file(new_name())], WRITE)
    write_deltalake(path, rows, mode="overwrite")
    append(log, new_name())
    assert check_checksums(path) >= {1, 3, 4, 6, 8}
    assert len(DeltaTable(path).file_uris()) == log.snapshot().num_files == 2


def test_a_table_with_many_transactions_and_domains_leaves_them_out(log: DeltaLog) -> None:
    create(log, configuration={"delta.feature.domainMetadata": "supported"})
    transaction = log.start_transaction()
    apps = [SetTransaction(app_id=f"app{number}", version=1) for number in range(101)]
    domains = [DomainMetadata(domain=f"d{number}", configuration="", removed=False) for number in range(11)]
    transaction.commit([*apps, *domains], WRITE)
    said = json.loads(Path(log.path, "_delta_log", f"{1:020}.crc").read_text())
    assert said.keys() & {"setTransactions", "domainMetadata"} == set()
    assert log.checksum_differences(log.snapshot()) == {}


def test_transactions_are_left_out_when_some_may_have_expired(log: DeltaLog) -> None:
    create(log, configuration={RETENTION: "interval 1 day"})
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata())
    transaction.commit([SetTransaction(app_id="app", version=1)], WRITE)
    append(log, "a")
    for version in range(3):
        said = json.loads(Path(log.path, "_delta_log", f"{version:020}.crc").read_text())
        assert "setTransactions" not in said


def test_it_can_be_switched_off(log: DeltaLog) -> None:
    create(log)
    transaction = log.start_transaction({"spark.databricks.delta.writeChecksumFile.enabled": "false"})
    transaction.commit([add_file("a")], WRITE)
    assert check_checksums(log.path) == {0}
    append(log, "b")
    assert check_checksums(log.path) == {0, 2}


class WithoutChecksums(LocalLogStore):
    """Notes what is asked of it, and writes no checksum."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.asked.append("put")
        super().put_if_absent(path, data)

    def put_auxiliary_if_absent(self, path: str, data: bytes) -> None:
        self.asked.append("checksum")
        raise StoreError("the disk is full", file=path)

    def read(self, path: str) -> bytes:
        self.asked.append("read")
        return super().read(path)

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        self.asked.append("list")
        return super().list_from(directory, name)

    def status(self, path: str) -> FileStatus:
        self.asked.append("status")
        return super().status(path)


def test_a_checksum_is_put_after_the_commit_reads_nothing_and_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WithoutChecksums()
    log = DeltaLog(store, str(tmp_path / "new"))
    create(log, new_name())
    transaction = log.start_transaction()
    store.asked.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="deltaflow.log.replay.version_checksum"):
        transaction.commit([add_file(new_name())], WRITE)
    assert store.asked == ["status", "put", "checksum"]
    [message] = caplog.messages
    assert "Version 1 of" in message
    assert "its checksum was not written" in message
    assert log.snapshot().num_files == 2


def test_what_is_left_of_another_commit_is_not_overwritten(
    log: DeltaLog, caplog: pytest.LogCaptureFixture
) -> None:
    create(log)
    lie(log, 1, {"numFiles": 9})
    with caplog.at_level(logging.WARNING, logger="deltaflow.log.replay.version_checksum"):
        append(log, "a")
    [message] = caplog.messages
    assert f"{1:020}.crc is of another commit" in message
    assert log.checksum_differences(log.snapshot()) == {"numFiles": (1, 9)}


def test_its_own_put_that_was_sent_again_is_not_that_of_another_commit(
    log: DeltaLog, caplog: pytest.LogCaptureFixture
) -> None:
    class Repeating(LocalLogStore):
        def put_auxiliary_if_absent(self, path: str, data: bytes) -> None:
            super().put_auxiliary_if_absent(path, data)
            super().put_auxiliary_if_absent(path, data)

    create(log)
    append(DeltaLog(Repeating(), log.path), "a")
    assert caplog.messages == []
    assert log.checksum_differences(log.snapshot()) == {}


def test_a_dropped_table_does_not_come_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalLogStore().put_auxiliary_if_absent(str(tmp_path / "gone" / "0.crc"), b"{}")
    assert list(tmp_path.iterdir()) == []
