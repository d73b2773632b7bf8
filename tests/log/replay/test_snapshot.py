from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from deltaflow.errors import (
    CorruptLogError,
    DeltaTableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltaflow.log import FILES_SCHEMA, DeltaLog, Snapshot, add_files, decode_actions
from deltaflow.log.replay.snapshot import newest_snapshot
from deltaflow.store import FileStatus, LocalLogStore
from tests.log.hand_written import (
    SCHEMA,
    HandWrittenTable,
    add,
    append,
    create,
    meta_data,
    paths,
    protocol,
    remove,
)


def test_a_snapshot_is_the_replay_of_its_commits(table: HandWrittenTable) -> None:
    table.first_commit(add("a"), {"txn": {"appId": "q", "version": 1}}, partition_columns=["part"])
    table.commit(1, remove("a"), add("b", partitionValues={"part": "x"}, stats='{"numRecords":1}'))
    last = table.commit(2, add("c", partitionValues={"part": None}), {"txn": {"appId": "q", "version": 7}})
    snapshot = table.log().snapshot()
    assert (snapshot.version, snapshot.table_id, snapshot.partition_columns) == (2, "table-1", ["part"])
    assert snapshot.schema == SCHEMA
    assert snapshot.timestamp_ms == last.stat().st_mtime_ns // 1_000_000
    assert (snapshot.num_files, snapshot.size_in_bytes) == (2, 20)
    assert (snapshot.txn_version("q"), snapshot.txn_version("other")) == (7, None)
    assert snapshot.files.schema == FILES_SCHEMA
    told = ["path", "partition_values", "size", "modification_time", "stats"]
    assert snapshot.with_stats(snapshot.files).select(told).to_pylist() == [
        {
            "path": "b",
            "partition_values": [("part", "x")],
            "size": 10,
            "modification_time": 1,
            "stats": '{"numRecords":1}',
        },
        {
            "path": "c",
            "partition_values": [("part", None)],
            "size": 10,
            "modification_time": 1,
            "stats": None,
        },
    ]


def test_in_commit_timestamps_win_over_file_times(table: HandWrittenTable) -> None:
    table.first_commit()
    table.commit(1, {"commitInfo": {"timestamp": 5, "inCommitTimestamp": 77}})
    assert table.log().snapshot().timestamp_ms == 77


def test_rows_give_back_the_whole_add_action(table: HandWrittenTable) -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1, "new": 1}
    actions = [
        add("plain", partitionValues={"part": "x"}, stats="{}", tags={"k": "v"}),
        add("odd", baseRowId=3, defaultRowCommitVersion=1, clusteringProvider="liquid", newField=[1]),
        add("v", deletionVector=vector),
    ]
    table.first_commit(*actions)
    written = [decode_actions(json.dumps(action).encode(), "f")[0] for action in actions]
    snapshot = table.log().snapshot()
    assert list(add_files(snapshot.with_stats(snapshot.files))) == written


@pytest.mark.parametrize(
    ("added", "removed"),
    [
        ("a%20b", "a b"),
        ("a b", "a%20b"),
        ("%C3%BC", "ü"),
        ("x", "{root}/x"),
        ("file:{root}/x", "x"),
        ("x", "file://{root}/x"),
        ("./x", "x"),
        ("p=1//x", "p=1/x"),
        ("x", "file:{root}/p=1/..//x"),
        ("file:/elsewhere//x", "/elsewhere/./x"),
    ],
)
def test_one_file_under_two_spellings_of_its_path(table: HandWrittenTable, added: str, removed: str) -> None:
    table.first_commit(add(added.format(root=table.path)), add("a%2520b"))
    table.commit(1, remove(removed.format(root=table.path)))
    assert paths(table.log()) == ["a%2520b"]


def test_a_file_with_another_deletion_vector_is_another_logical_file(table: HandWrittenTable) -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    table.first_commit(add("a"))
    table.commit(1, add("a", deletionVector=vector), remove("a"))
    log = table.log()
    assert log.snapshot().files["deletion_vector"].to_pylist() == [{**vector, "offset": None}]
    assert log.snapshot().files["extra"].to_pylist() == [None]
    table.commit(2, remove("a", deletionVector=vector))
    assert log.snapshot().num_files == 0


def test_paths_that_decode_to_no_text_stay_apart(table: HandWrittenTable) -> None:
    table.first_commit(add("%FE"), add("%FF"))
    table.commit(1, remove("%FE"))
    assert paths(table.log()) == ["%FF"]


def test_a_known_snapshot_reads_only_the_new_commits(table: HandWrittenTable) -> None:
    class CountingStore(LocalLogStore):
        def __init__(self) -> None:
            self.read_paths: list[str] = []

        def read(self, path: str) -> bytes:
            self.read_paths.append(Path(path).name)
            return super().read(path)

    table.first_commit(add("a"))
    store = CountingStore()
    log = DeltaLog(store, table.path)
    first = log.snapshot()
    assert log.snapshot() is first
    table.commit(1, add("b"))
    assert paths(log) == ["a", "b"]
    assert store.read_paths == [
        "_last_checkpoint",
        "00000000000000000000.json",
        "00000000000000000001.json",
    ]
    assert first.files["path"].to_pylist() == ["a"]


@pytest.mark.parametrize("new_versions", [1, 3, 5])
def test_a_table_deleted_and_made_anew_is_noticed(table: HandWrittenTable, new_versions: int) -> None:
    table.first_commit(add("old"))
    table.commit(1, add("older"))
    table.commit(2, add("oldest"))
    log = table.log()
    assert log.snapshot().version == 2
    shutil.rmtree(table.path)
    assert not log.exists()
    with pytest.raises(DeltaTableNotFoundError):
        log.snapshot()
    again = HandWrittenTable(Path(table.path))
    again.first_commit(table_id="table-2")
    for version in range(1, new_versions):
        again.commit(version, add(f"new{version}"))
    assert log.latest_version() == new_versions - 1
    assert log.snapshot().table_id == "table-2"
    assert paths(log) == [f"new{version}" for version in range(1, new_versions)]


def test_a_table_replaced_between_two_looks_is_noticed(table: HandWrittenTable) -> None:
    table.first_commit(add("old"))
    log = table.log()
    assert paths(log) == ["old"]
    shutil.rmtree(table.path)
    again = HandWrittenTable(Path(table.path))
    again.first_commit(add("new"), table_id="table-2")
    again.commit(1, add("newer"))
    assert paths(log) == ["new", "newer"]


def test_every_version_can_be_read(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    table.commit(1, remove("a"))
    table.commit(2, add("b"))
    log = table.log()
    assert [log.snapshot_at(version).files["path"].to_pylist() for version in range(3)] == [["a"], [], ["b"]]
    for version in (-1, 3):
        with pytest.raises(VersionNotFoundError, match=r"Available versions: \[0, 2\]"):
            log.snapshot_at(version)


def test_commits_are_given_in_order_with_their_files_in_log_order(table: HandWrittenTable) -> None:
    table.first_commit()
    table.commit(1, add("z"), remove("x"), add("a"), {"commitInfo": {"operation": "WRITE"}}, {"future": {}})
    table.commit(2, {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}})
    log = table.log()
    commits = list(log.commits(1))
    assert [commit.version for commit in commits] == [1, 2]
    assert [file.path for file in commits[0].adds] == ["z", "a"]
    assert [file.path for file in commits[0].removes] == ["x"]
    assert commits[0].commit_info is not None
    assert commits[0].commit_info.operation == "WRITE"
    assert len(commits[0].actions) == 5
    assert [file.path for file in commits[1].cdc] == ["c"]
    assert [commit.version for commit in log.commits(0, 1)] == [0, 1]
    assert list(log.commits(3)) == []


@pytest.mark.parametrize("path", ["nothing", "empty", "data"])
def test_a_path_without_a_log_is_no_table(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.parquet").write_bytes(b"")
    log = DeltaLog.for_table(str(tmp_path / path))
    assert not log.exists()
    assert log.latest_version() == -1
    assert log.start_transaction().read_version == -1
    with pytest.raises(AnalysisException, match=f"DELTA_MISSING_DELTA_TABLE.*{path} is not a Delta table"):
        log.snapshot()


@pytest.mark.parametrize("path", ["file", "file/below", "table"])
def test_a_file_where_a_directory_must_be(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "_delta_log").write_bytes(b"")
    log = DeltaLog.for_table(str(tmp_path / path))
    assert not log.exists()
    for call in (log.snapshot, log.start_transaction):
        with pytest.raises(DeltaTableNotFoundError, match="a file is where a directory must be"):
            call()


def test_a_gap_names_the_missing_versions(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    for version in (1, 4, 5, 7):
        table.commit(version, add(f"f{version}"))
    with pytest.raises(CorruptLogError, match=r"VERSIONS_NOT_CONTIGUOUS.*Missing versions in .*: 2 to 3, 6;"):
        table.log().snapshot()
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 2 to 3;"):
        table.log().commits(1, 4)


def test_a_gap_after_a_known_version_is_noticed(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    log = table.log()
    log.snapshot()
    table.commit(2, add("b"))
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 1;"):
        log.snapshot()


@pytest.mark.parametrize("first_after", [3, 30])
def test_a_wide_gap_after_a_known_version_is_noticed(table: HandWrittenTable, first_after: int) -> None:
    table.first_commit(add("a"))
    log = table.log()
    log.snapshot()
    table.commit(first_after, add("b"))
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=rf"Missing versions in .*: 1 to {first_after - 1};"):
            log.snapshot()


def test_a_directory_without_changes_is_not_listed_again(table: HandWrittenTable) -> None:
    class Counting(LocalLogStore):
        listings = 0

        def list_from(self, directory: str, name: str) -> list[FileStatus]:
            Counting.listings += 1
            return super().list_from(directory, name)

    table.first_commit(add("a"))
    log = DeltaLog(Counting(), table.path)
    log.snapshot()
    before = Counting.listings
    assert log.snapshot().version == log.start_transaction().read_version == 0
    assert Counting.listings == before
    table.commit(1, add("b"))
    assert log.snapshot().version == 1


def test_an_update_looks_at_no_older_file(table: HandWrittenTable) -> None:
    class Recording(LocalLogStore):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[str, str]] = []

        def list_from(self, directory: str, name: str) -> list[FileStatus]:
            self.calls.append(("list", name))
            return super().list_from(directory, name)

        def status(self, path: str) -> FileStatus:
            self.calls.append(("status", Path(path).name))
            return super().status(path)

    for version in range(30):
        table.first_commit() if version == 0 else table.commit(version, add(str(version)))
    store = Recording()
    log = DeltaLog(store, table.path)
    assert log.snapshot().version == 29
    store.calls.clear()
    table.commit(30, add("30"))
    assert log.snapshot().version == 30
    assert {method for method, _ in store.calls} == {"status"}
    assert min(name for _, name in store.calls) == f"{29:020}.json"
    assert len(store.calls) <= 12


def test_a_log_without_its_first_commits(table: HandWrittenTable) -> None:
    table.commit(3, protocol(), meta_data())
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 0 to 2;"):
        table.log().snapshot()


@pytest.mark.parametrize("commits", [[], [4], [3, 4], [0, 2, 3, 4], [0, 1, 2]])
def test_a_broken_checkpoint_that_is_needed(table: HandWrittenTable, commits: list[int]) -> None:
    (table.log_directory / "00000000000000000003.checkpoint.parquet").write_bytes(b"PAR1")
    for version in commits:
        table.commit(version, add("a"))
    for call in (table.log().snapshot, table.log().start_transaction):
        # Spark has the message alone of an error.
        with pytest.raises(CorruptLogError, match=r"Missing versions.*0003\.checkpoint\.parquet") as raised:
            call()
        assert raised.value.error_class == "DELTA_VERSIONS_NOT_CONTIGUOUS"


def test_a_checkpoint_beside_all_commits_is_not_needed(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    table.commit(1, add("b"))
    (table.log_directory / "00000000000000000001.checkpoint.parquet").write_bytes(b"broken")
    (table.log_directory / "_last_checkpoint").write_bytes(b"broken")
    (table.log_directory / "00000000000000000001.crc").write_bytes(b"broken")
    (table.log_directory / ".00000000000000000002.json.x.tmp").write_bytes(b"broken")
    (table.log_directory / "00000000000000000002.json.tmp").write_bytes(b"broken")
    assert paths(table.log()) == ["a", "b"]


def test_a_broken_line_names_the_file_and_later_reads_work_once_it_is_restored(
    table: HandWrittenTable,
) -> None:
    table.first_commit(add("a"))
    log = table.log()
    assert paths(log) == ["a"]
    file = table.write(1, b'{"add":{"path":"b"')
    with pytest.raises(CorruptLogError, match=rf"Line 1 of {file}"):
        log.snapshot()
    table.commit(1, add("b"))
    assert paths(log) == ["a", "b"]


@pytest.mark.parametrize("missing", ["metaData", "protocol"])
def test_a_log_without_metadata_or_protocol(table: HandWrittenTable, missing: str) -> None:
    table.commit(0, *(action for action in (protocol(), meta_data()) if missing not in action))
    with pytest.raises(CorruptLogError, match=f"has no {missing} action"):
        table.log().snapshot()


def test_two_metadata_actions_in_a_commit(table: HandWrittenTable) -> None:
    table.commit(0, protocol(), meta_data(), meta_data(table_id="other"))
    with pytest.raises(CorruptLogError, match="2 Metadata actions"):
        table.log().snapshot()


@pytest.mark.parametrize(
    "schema_string", ["", "null", "7", '{"type":"array"}', '{"type":"struct","fields":[{}]}', "[" * 9]
)
def test_a_broken_schema_is_one_of_our_errors(table: HandWrittenTable, schema_string: str) -> None:
    action = meta_data()
    action["metaData"]["schemaString"] = schema_string
    table.commit(0, protocol(), action)
    with pytest.raises((CorruptLogError, UnsupportedFeatureError)):
        _ = table.log().snapshot().schema


@pytest.mark.parametrize("without", ["absent", "null"])
@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_a_first_commit_without_a_schema(
    table: HandWrittenTable, without: str, *, from_checkpoint: bool
) -> None:
    first = meta_data()
    del first["metaData"]["schemaString"]
    if without == "null":
        first["metaData"]["schemaString"] = None
    table.commit(0, protocol(), first)
    known = table.log()
    assert known.snapshot().schema == StructType()
    if from_checkpoint:
        known.checkpoint()
    assert table.log().snapshot().metadata == known.snapshot().metadata
    table.commit(1, meta_data(), add("a"))
    for log in (known, table.log()):
        assert log.snapshot().schema == SCHEMA
        assert log.snapshot_at(0).schema == StructType()
        assert [record.version for record in log.history()] == [1, 0]
        assert paths(log) == ["a"]


def test_one_log_per_path_in_a_process(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert DeltaLog.for_table(path) is DeltaLog.for_table(f"file:{path}/")
    assert DeltaLog.for_table(path) is not DeltaLog.for_table(path, clock=lambda: 5)


def test_the_cache_of_logs_is_bounded(tmp_path: Path) -> None:
    first = DeltaLog.for_table(str(tmp_path / "first"))
    for number in range(150):
        DeltaLog.for_table(str(tmp_path / str(number)))
    assert DeltaLog.for_table(str(tmp_path / "first")) is not first
    kept = DeltaLog.for_table(str(tmp_path / "first"))
    for number in range(60):
        DeltaLog.for_table(str(tmp_path / str(number)))
        assert DeltaLog.for_table(str(tmp_path / "first")) is kept


def test_odd_characters_in_the_path_of_a_table(tmp_path: Path) -> None:
    path = str(tmp_path / "ä b%20c#?{}'\"")
    log = DeltaLog.for_table(path)
    create(log, "a")
    append(DeltaLog.for_table(f"file:{path}"), "b")
    assert paths(log) == ["a", "b"]
    assert (Path(path) / "_delta_log").is_dir()


def newest_of(log: DeltaLog) -> Snapshot:
    """As vacuums, the doctor and the tools for streams read it."""
    return newest_snapshot(log._files)


@pytest.mark.parametrize("newest", [3, 4])
@pytest.mark.parametrize(
    ("has_read", "look"), [(False, DeltaLog.snapshot), (True, DeltaLog.snapshot), (False, newest_of)]
)
def test_log_clean_up_deletes_commits_between_the_listing_and_the_reads(
    table: HandWrittenTable,
    monkeypatch: pytest.MonkeyPatch,
    has_read: bool,
    look: Callable[[DeltaLog], Snapshot],
    newest: int,
) -> None:
    """If commits go on meanwhile, the log may have the listed version no more."""
    table.first_commit(add("a"))
    reader = DeltaLog(LocalLogStore(), table.path)
    if has_read:
        assert reader.snapshot().version == 0
    for version, name in enumerate("bcd", 1):
        table.commit(version, add(name))
    list_from, status = LocalLogStore.list_from, LocalLogStore.status

    def clean_up() -> None:
        monkeypatch.undo()
        if newest == 4:
            table.commit(4, add("e"))
        DeltaLog(LocalLogStore(), table.path).checkpoint()
        for version in range(newest):
            Path(table.path, "_delta_log", f"{version:020}.json").unlink()

    def then_cleaned(store: LocalLogStore, directory: str, name: str) -> list[FileStatus]:
        found = list_from(store, directory, name)
        clean_up()
        return found

    def last_look(store: LocalLogStore, path: str) -> FileStatus:
        try:
            return status(store, path)
        except FileNotFoundError:
            clean_up()
            raise

    monkeypatch.setattr(LocalLogStore, "list_from", then_cleaned)
    monkeypatch.setattr(LocalLogStore, "status", last_look)
    snapshot = look(reader)
    assert snapshot.version == newest
    assert sorted(snapshot.files["path"].to_pylist()) == list("abcde"[: newest + 1])


@pytest.mark.parametrize(
    "look", [lambda log: log.snapshot_at(1), lambda log: log.snapshot_with_fields(1, frozenset({"path"}))]
)
def test_time_travel_to_a_version_that_log_clean_up_takes_meanwhile(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch, look: Callable[[DeltaLog], Snapshot]
) -> None:
    table.first_commit(add("a"))
    for version in range(1, 4):
        table.commit(version, add(f"b{version}"))
    reader = DeltaLog(LocalLogStore(), table.path)
    assert reader.snapshot().version == 3
    list_from = LocalLogStore.list_from

    def then_cleaned(store: LocalLogStore, directory: str, name: str) -> list[FileStatus]:
        found = list_from(store, directory, name)
        if int(name[:20] or 0) == 0:
            monkeypatch.undo()
            DeltaLog(LocalLogStore(), table.path).checkpoint()
            for version in range(3):
                Path(table.path, "_delta_log", f"{version:020}.json").unlink()
        return found

    monkeypatch.setattr(LocalLogStore, "list_from", then_cleaned)
    with pytest.raises(VersionNotFoundError, match=r"version 1\. Available versions: \[?3"):
        look(reader)


def test_a_listing_lacks_a_commit_that_came_meanwhile_and_has_the_next_one(table: HandWrittenTable) -> None:
    """ext4 gives the files of a large directory in an order of its own, while others come."""
    table.first_commit(add("a"))
    for version in (1, 2, 3, 4):
        table.commit(version, add(f"b{version}"))
    lacking = [{1, 3, 4}, {3}]

    class Torn(LocalLogStore):
        def list_from(self, directory: str, name: str) -> list[FileStatus]:
            missed = lacking.pop(0) if lacking else set()
            return [file for file in super().list_from(directory, name) if int(file.name[:20]) not in missed]

    snapshot = DeltaLog(Torn(), table.path).snapshot()
    assert (snapshot.version, snapshot.num_files, lacking) == (2, 3, [])
