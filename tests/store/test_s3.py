"""The S3 store against a server with conditional puts, over HTTP."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow.errors import StoreError
from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, RemoveFile, schema_to_string
from deltaflow.log.maintenance.vacuum_candidates import INVENTORY_SCHEMA, in_inventory, in_log
from deltaflow.store import FsspecLogStore, S3LogStore, store_for
from tests.store.committing_process import SCHEMA
from tests.store.race import check_race, race

WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})


@pytest.fixture
def store(bucket: str, s3_options: dict[str, Any]) -> S3LogStore:
    store, _ = store_for(f"s3://{bucket}/t", s3_options)
    assert isinstance(store, S3LogStore)
    return store


def keys(store: S3LogStore, bucket: str) -> list[str]:
    found = store._fs.call_s3("list_objects_v2", Bucket=bucket)
    return [entry["Key"] for entry in found.get("Contents", ())]


def new_table() -> Metadata:
    return Metadata(id="table", schema_string=schema_to_string(SCHEMA), partition_columns=[])


def file(name: str) -> AddFile:
    return AddFile(path=name, partition_values={}, size=1, modification_time=1, data_change=True)


def test_of_several_processes_one_wins_each_version(bucket: str, s3_options: dict[str, Any]) -> None:
    path = f"s3a://{bucket}/tables/t"
    told = race(Path(__file__).with_name("committing_process.py"), path, s3_options)
    check_race(DeltaLog.for_table(path, storage_options=s3_options), told)


def test_a_put_whose_answer_was_lost_and_that_was_sent_again_is_a_commit(
    bucket: str, s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DeltaLog.for_table(f"s3://{bucket}/t", storage_options=s3_options)
    transaction = log.start_transaction()
    transaction.update_metadata(new_table())
    store = log._files.store
    assert isinstance(store, S3LogStore)
    put = store._fs.pipe_file

    def lose_the_first_answer(path: str, data: bytes, mode: str) -> None:
        put(path, data, mode=mode)
        if path.endswith(".json"):
            put(path, data, mode=mode)

    monkeypatch.setattr(store._fs, "pipe_file", lose_the_first_answer)
    assert transaction.commit([file("a")], WRITE).version == 0
    assert log.snapshot().num_files == 1


def test_the_trial_stands_it_that_an_answer_is_lost_and_its_put_is_sent_again(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store._fs.pipe_file

    def lose_the_answer(path: str, data: bytes, mode: str) -> None:
        put(path, data, mode=mode)
        put(path, data, mode=mode)

    monkeypatch.setattr(store._fs, "pipe_file", lose_the_answer)
    store.check_writable(f"s3://{bucket}/t")
    monkeypatch.undo()
    store.put_if_absent(f"s3://{bucket}/t/1.json", b"one")
    assert keys(store, bucket) == ["t/1.json"]


def test_the_store_leaves_nothing_of_its_trial(store: S3LogStore, bucket: str) -> None:
    store.put_if_absent(f"s3://{bucket}/t/1.json", b"one")
    assert keys(store, bucket) == ["t/1.json"]


def test_a_store_that_excludes_nobody_begins_no_transaction(tmp_path: Path) -> None:
    log = DeltaLog(FsspecLogStore(fsspec.filesystem("file")), f"file://{tmp_path}/t")
    with pytest.raises(StoreError, match="single_writer=True"):
        log.start_transaction()
    single = DeltaLog(FsspecLogStore(fsspec.filesystem("file"), single_writer=True), f"file://{tmp_path}/t")
    transaction = single.start_transaction()
    transaction.update_metadata(new_table())
    assert transaction.commit([file("a")], WRITE).version == 0
    assert log.snapshot().num_files == DeltaLog.for_table(str(tmp_path / "t")).snapshot().num_files == 1


def test_the_trial_is_made_once(store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[str] = []
    put = store._fs.pipe_file

    def record(path: str, data: bytes, mode: str) -> None:
        puts.append(path)
        put(path, data, mode=mode)

    monkeypatch.setattr(store._fs, "pipe_file", record)
    for number in range(3):
        store.put_if_absent(f"s3://{bucket}/t/{number}.json", b"one")
    assert len(puts) == 2 + 3


def test_without_the_right_to_delete_the_trial_is_left_and_named(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(store._fs, "rm_file", refuse)
    store.put_if_absent(f"s3://{bucket}/t/1.json", b"one")
    (left,) = [key for key in keys(store, bucket) if key != "t/1.json"]
    assert left in caplog.text
    assert [status.name for status in store.list_from(f"s3://{bucket}/t", "")] == ["1.json"]


class Answer(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def failing_puts(store: S3LogStore, monkeypatch: pytest.MonkeyPatch, code: str, failures: int) -> list[str]:
    """The store's next puts get this error from the server; the paths of all puts are returned."""
    put = store._fs.pipe_file
    puts: list[str] = []

    def fail(path: str, data: bytes, mode: str) -> None:
        puts.append(path)
        if len(puts) <= failures:
            raise OSError(code) from Answer(code)
        put(path, data, mode=mode)

    monkeypatch.setattr(store._fs, "pipe_file", fail)
    return puts


def test_a_put_that_the_server_could_not_decide_is_tried_again(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent(f"s3://{bucket}/t/0.json", b"zero")
    puts = failing_puts(store, monkeypatch, "ConditionalRequestConflict", 2)
    store.put_if_absent(f"s3://{bucket}/t/1.json", b"one")
    assert len(puts) == 3
    assert store.read(f"s3://{bucket}/t/1.json") == b"one"


def test_such_puts_are_not_tried_for_ever(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent(f"s3://{bucket}/t/0.json", b"zero")
    failing_puts(store, monkeypatch, "ConditionalRequestConflict", 1000)
    with pytest.raises(StoreError, match="ConditionalRequestConflict"):
        store.put_if_absent(f"s3://{bucket}/t/1.json", b"one")


def test_a_server_that_names_no_condition_in_its_refusal(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent(f"s3://{bucket}/t/0.json", b"zero")
    failing_puts(store, monkeypatch, "PreconditionFailed", 1)
    with pytest.raises(FileExistsError):
        store.put_if_absent(f"s3://{bucket}/t/0.json", b"other")


def test_a_put_into_no_bucket_is_a_store_error(s3_options: dict[str, Any]) -> None:
    store, path = store_for("s3://none-of-that-name/t", s3_options)
    with pytest.raises(StoreError, match="Create the bucket"):
        store.put_if_absent(f"{path}/1.json", b"one")
    assert not DeltaLog.for_table("s3://none-of-that-name/t", storage_options=s3_options).exists()


def test_a_server_that_is_not_there_is_a_store_error() -> None:
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://127.0.0.1:1",
        "config_kwargs": {"retries": {"max_attempts": 1}},
    }
    pytest.importorskip("s3fs")
    store, path = store_for("s3://bucket/t", {**options, "client_kwargs": {"region_name": "us-east-1"}})
    assert isinstance(store, S3LogStore)
    store._fs.retries = 1
    with pytest.raises(StoreError, match="connection"):
        store.list_from(path, "")


def test_a_listing_of_more_than_one_page(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        store.put_if_absent(f"s3://{bucket}/t/{number}.json", b"")
    call = store._fs.call_s3
    monkeypatch.setattr(
        store._fs, "call_s3", lambda method, **request: call(method, **{"MaxKeys": 2, **request})
    )
    assert [status.name for status in store.list_from(f"s3://{bucket}/t", "1.json")] == [
        f"{number}.json" for number in range(1, 7)
    ]


@pytest.mark.parametrize("cut", ["json", "checkpoint"])
def test_what_was_not_read_whole_is_not_read(
    store: S3LogStore, bucket: str, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """A server may say that the part that it sends is the whole."""
    log = DeltaLog(store, f"s3://{bucket}/t")
    transaction = log.start_transaction()
    metadata = new_table()
    transaction.update_metadata(
        msgspec.structs.replace(metadata, configuration={"delta.checkpointPolicy": "v2"})
    )
    assert transaction.commit([file("a")], WRITE).version == 0
    log.checkpoint()
    whole = store._fs.cat_file

    def part(path: str) -> bytes:
        return whole(path)[:18] if f"{0:020}.{cut}" in path else whole(path)

    monkeypatch.setattr(store._fs, "cat_file", part)
    other = "checkpoint" if cut == "json" else f"{0:020}.json"
    store._fs.rm([path for path in store._fs.ls(f"{bucket}/t/_delta_log") if other in path])
    with pytest.raises(StoreError, match="was read as 18 bytes"):
        DeltaLog(store, f"s3://{bucket}/t").snapshot()


def test_a_listing_that_a_user_asked_for_hides_no_commit(
    store: S3LogStore, bucket: str, s3_options: dict[str, Any]
) -> None:
    path = f"s3://{bucket}/t"
    log = DeltaLog(store, path)
    rival = DeltaLog(S3LogStore(fsspec.filesystem("s3", skip_instance_cache=True, **s3_options)), path)
    transaction = log.start_transaction()
    transaction.update_metadata(new_table())
    transaction.commit([file("a")], WRITE)
    begun = log.start_transaction()
    assert len(store.file_system.ls(f"{path}/_delta_log")) == 2
    rival.start_transaction().commit([file("b")], WRITE)
    assert begun.commit([file("c")], WRITE).version == 2
    assert sorted(log.snapshot().files["path"].to_pylist()) == ["a", "b", "c"]


def test_a_name_that_s3fs_takes_for_a_version_of_another_deletes_nothing(
    store: S3LogStore, bucket: str
) -> None:
    for name in ("f", "f?versionId=1", "g"):
        store._fs.call_s3("put_object", Bucket=bucket, Key=f"t/{name}", Body=b"")
    directory = store.data_directory(f"s3://{bucket}/t")
    deleted, failures = directory.delete("", ["f?versionId=1", "g"])
    assert (deleted, [failure.file for failure in failures]) == (1, [f"s3://{bucket}/t/f?versionId=1"])
    assert {entry.name for entry in directory.entries("")} == {"f", "f?versionId=1"}


def test_what_others_write_after_a_listing_of_the_directory_is_there(
    bucket: str, s3_options: dict[str, Any], store: S3LogStore
) -> None:
    single, _ = store_for(f"s3://{bucket}/t", s3_options, single_writer=True)
    path = f"s3://{bucket}/t/_delta_log/_sidecars/new.parquet"
    for act in ("open", "put", "delete"):
        store.put_if_absent(f"{path}.{act}.before", b"")
        list(store.data_directory(f"s3://{bucket}/t").entries("_delta_log/_sidecars"))
        other = fsspec.filesystem("s3", skip_instance_cache=True, **s3_options)
        other.pipe_file(f"{path}.{act}", b"content")
        match act:
            case "open":
                with store.open(f"{path}.{act}") as file:
                    assert file.read() == b"content"
            case "put":
                with pytest.raises(FileExistsError):
                    single.put_if_absent(f"{path}.{act}", b"other")
            case "delete":
                store.delete(f"{path}.{act}")
                assert store.absent([f"{path}.{act}"])


def test_one_log_per_path_and_options(bucket: str, s3_options: dict[str, Any]) -> None:
    log = DeltaLog.for_table(f"s3a://{bucket}/t", storage_options=s3_options)
    assert DeltaLog.for_table(f"s3://{bucket}/t/", storage_options=dict(s3_options)) is log
    assert DeltaLog.for_table(f"s3://{bucket}/t", storage_options={**s3_options, "key": "other"}) is not log
    assert DeltaLog.for_table(f"s3://{bucket}/t", storage_options=s3_options, single_writer=True) is not log


def test_a_table_in_memory() -> None:
    log = DeltaLog.for_table("memory://tables/t")
    transaction = log.start_transaction()
    transaction.update_metadata(new_table())
    transaction.commit([file("a")], WRITE)
    assert DeltaLog.for_table("memory:/tables/t") is log
    log.start_transaction().commit([file("b")], WRITE)
    assert sorted(log.snapshot().files["path"].to_pylist()) == ["a", "b"]


def test_an_absolute_path_is_the_same_file_as_a_relative_one() -> None:
    log = DeltaLog.for_table("memory://tables/absolute")
    transaction = log.start_transaction()
    transaction.update_metadata(new_table())
    transaction.commit([file("a%20b"), file("s3a://bucket/x"), file(f"{log.path}/c")], WRITE)
    removed = [f"{log.path}/a%20b", "s3://bucket/x", "c"]
    removes = [RemoveFile(path=path, deletion_timestamp=1, data_change=True) for path in removed]
    log.start_transaction().commit(removes, WRITE)
    assert log.snapshot().num_files == 0


def test_the_options_of_a_table_reach_its_data_files(
    store: S3LogStore, bucket: str, s3_options: dict[str, Any]
) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3]}), content)
    for name in ("_hidden/there.parquet", "inner/old.parquet", "inner/_delta_log/00000000000000000000.json"):
        store._fs.pipe_file(f"{bucket}/t/{name}", content.getvalue())
    log = DeltaLog.for_table(f"s3://{bucket}/t", storage_options=s3_options)
    transaction = log.start_transaction()
    metadata = new_table()
    transaction.update_metadata(
        msgspec.structs.replace(metadata, configuration={"delta.enableRowTracking": "true"})
    )
    # Row ids need the number of rows, which only the footer says.
    size = len(content.getvalue())
    there = msgspec.structs.replace(file("_hidden/there.parquet"), size=size)
    gone = msgspec.structs.replace(file("_hidden/gone.parquet"), stats='{"numRecords":2}')
    transaction.commit([there, gone], WRITE)
    snapshot = log.snapshot()
    assert snapshot.files["base_row_id"].to_pylist() == [0, 3]
    assert log.missing_files(snapshot).files["path"].to_pylist() == [gone.path]
    inventory = pa.table(
        [[f"s3://{bucket}/t/inner/old.parquet"], [size], [False], [1]], schema=INVENTORY_SCHEMA
    )
    assert log.plan_vacuum(0, in_inventory(inventory)).files.num_rows == 0
    assert log.plan_vacuum(0, in_log).files.num_rows == 0
