"""The log store on an object store over HTTP: requests, faults, refusals, s3fs; Spark's own files there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from deltaflow.errors import CommitOutcomeUnknownError, StoreError, WriteRefusedError
from deltaflow.log import DeltaLog
from deltaflow.spark.hadoop.log_store import HadoopLogStore
from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import LogStore, S3LogStore
from tests.object_store.server import Failure, ObjectStoreServer, Operation
from tests.spark.hadoop.logs import commit, ready

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Settings

pytestmark = pytest.mark.spark


@pytest.fixture
def place(bucket: str, objects: StoresOfSpark) -> tuple[LogStore, str]:
    """A store in a bucket that has been tried, and a path there."""
    return ready(objects, f"s3a://{bucket}/t")


def commits(server: ObjectStoreServer, bucket: str) -> list[str]:
    return [key for key in server.keys(bucket) if key.startswith("t/_delta_log/") and key.endswith(".json")]


def test_the_requests_of_each_method(
    objects_server: ObjectStoreServer,
    place: tuple[LogStore, str],
    crossings: Callable[[], AbstractContextManager[list[str]]],
) -> None:
    store, root = place
    objects_server.counted()
    store.make_directory(f"{root}/log")
    assert objects_server.counted() == {}
    store.put_if_absent(f"{root}/log/00.json", b"zero")
    store.put_auxiliary_if_absent(f"{root}/log/00.crc", b"checksum")
    assert objects_server.counted() == {"PutObject": 2}
    with pytest.raises(FileExistsError):
        store.put_if_absent(f"{root}/log/00.json", b"other")
    assert objects_server.counted() == {"PutObject": 1}
    with store.open_output(f"{root}/log/hint") as file:
        file.write(b"hint")
    # Whether the name is a directory.
    assert objects_server.counted() == {"ListObjectsV2": 1, "PutObject": 1}
    assert store.read(f"{root}/log/00.json") == b"zero"
    # The length.
    assert objects_server.counted() == {"HeadObject": 1, "GetObject": 1}
    store.delete(f"{root}/log/00.crc")
    assert objects_server.counted() == {"HeadObject": 1, "DeleteObject": 1}
    for number in range(1, 20):
        store.put_if_absent(f"{root}/log/{number:02}.json", b"%d" % number)
    objects_server.counted()
    objects_server.listed_at_once = 10
    with crossings() as sent:
        assert [status.name for status in store.list_from(f"{root}/log", "19.")] == ["19.json", "hint"]
    assert (objects_server.counted(), len(sent)) == ({"ListObjectsV2": 3}, 1)
    files = store.list_from(f"{root}/log", "")[:20]
    objects_server.counted()
    with crossings() as sent:
        store.read_together(f"{root}/log", files)
    assert (objects_server.counted(), len(sent)) == ({"GetObject": 20}, 1)


@pytest.mark.parametrize(
    "failure", ["503", "500", "reset", "lost reply", "503 afterwards", "500 afterwards", "half"]
)
@pytest.mark.parametrize("operation", ["PutObject", "GetObject", "ListObjectsV2"])
@pytest.mark.sampled(4)
def test_a_commit_survives_faults(
    objects_server: ObjectStoreServer,
    bucket: str,
    place: tuple[LogStore, str],
    operation: Operation,
    failure: Failure,
) -> None:
    log = DeltaLog(*place)
    for number in range(3):
        objects_server.fail(operation, failure, path=f"/{bucket}/t/_delta_log")
        assert commit(log, f"file{number}") == number
        assert DeltaLog(*place).snapshot().version == number
    assert not any(fault.times for fault in objects_server.faults)
    assert sorted(log.snapshot().files["path"].to_pylist()) == ["file0", "file1", "file2"]
    assert commits(objects_server, bucket) == [f"t/_delta_log/{version:020}.json" for version in range(3)]


def test_a_put_that_is_refused_again_and_again_ends(
    objects_server: ObjectStoreServer, bucket: str, place: tuple[LogStore, str], no_pauses: None
) -> None:
    log = DeltaLog(*place)
    objects_server.counted()
    objects_server.fail("PutObject", "503", times=1_000)
    # Servers answer so to what they did, too.
    with pytest.raises(CommitOutcomeUnknownError, match="tried 3 times; the storage is busy"):
        commit(log, "file")
    assert objects_server.counted()["PutObject"] == 3
    objects_server.faults.clear()
    assert commits(objects_server, bucket) == []
    assert commit(log, "file") == 0


def test_a_put_that_may_still_come_is_not_called_refused(
    objects_server: ObjectStoreServer, place: tuple[LogStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DeltaLog(*place)
    take_fault = objects_server.take_fault

    def take_and_deny(operation: Operation, path: str) -> Failure | None:
        failure = take_fault(operation, path)
        if failure is not None:
            objects_server.denied_operations.add("PutObject")
        return failure

    monkeypatch.setattr(objects_server, "take_fault", take_and_deny)
    # The connection breaks while the put is under way, and then the credentials expire.
    objects_server.fail("PutObject", "reset", path="/_delta_log/")
    with pytest.raises(CommitOutcomeUnknownError, match="denied"):
        commit(log, "file")
    # Without an earlier attempt it is certain.
    with pytest.raises(WriteRefusedError, match="denied"):
        commit(log, "file")


@pytest.mark.parametrize("failure", ["503", "500", "reset", "half"])
def test_reading_is_tried_again_and_not_for_ever(
    objects_server: ObjectStoreServer, place: tuple[LogStore, str], no_pauses: None, failure: Failure
) -> None:
    store, root = place
    content = b"line\n" * 20_000
    store.put_if_absent(f"{root}/1.json", content)

    def downloaded() -> bytes:
        with store.open(f"{root}/1.json") as file:
            return file.read()

    reads: list[tuple[Operation, Callable[[], object]]] = [
        ("GetObject", lambda: store.read(f"{root}/1.json") == content),
        ("GetObject", lambda: downloaded() == content),
        ("GetObject", lambda: store.slices([(f"{root}/1.json", 1, 90_000)]) == [content[1:90_001]]),
        ("ListObjectsV2", lambda: len(store.list_from(root, "1")) == 1),
    ]
    for operation, read in reads:
        objects_server.fail(operation, failure, times=2)
        assert read()
        objects_server.fail(operation, failure, times=1_000)
        with pytest.raises(StoreError, match="tried 3 times") as raised:
            read()
        assert root in str(raised.value)
        objects_server.faults.clear()


def test_an_output_whose_rename_seemed_to_fail_is_there(
    objects_server: ObjectStoreServer, bucket: str, objects: StoresOfSpark, no_pauses: None
) -> None:
    """A single writer renames. The second attempt finds no hidden file, and must not delete the output."""
    found = objects.open(f"s3a://{bucket}/t", True)
    assert found is not None
    store, root = found
    for content in (b"first", b"second"):
        objects_server.fail("DeleteObject", "503 afterwards", path=".tmp")
        with store.open_output(f"{root}/hint") as output:
            output.write(content)
        assert store.read(f"{root}/hint") == content
    assert objects_server.keys(bucket) == ["t/hint"]


def test_access_denied_names_the_request_and_no_secret(
    objects_server: ObjectStoreServer, bucket: str, objects_of: Callable[..., StoresOfSpark]
) -> None:
    keys = {"fs.s3a.access.key": "the-key", "fs.s3a.secret.key": "hidden", "fs.s3a.session.token": "hidden"}
    store, root = ready(objects_of(keys), f"s3a://{bucket}/t")
    log = DeltaLog(store, root)
    commit(log, "file")
    objects_server.denied.add(f"/{bucket}/t/_delta_log")
    who = "denied access to the access key the-key"
    calls: dict[str, Callable[[], object]] = {
        "list": lambda: DeltaLog(store, root).snapshot(),
        "read": lambda: store.read(f"{root}/_delta_log/{0:020}.json"),
        "write": lambda: store.put_if_absent(f"{root}/_delta_log/{1:020}.json", b""),
        "delete": lambda: store.delete(f"{root}/_delta_log/{0:020}.json"),
    }
    for verb, call in calls.items():
        with pytest.raises(StoreError, match=f"Cannot {verb} {root}/_delta_log.*{who}.*403") as raised:
            call()
        assert raised.value.error_class == "DELTA_STORE_ACCESS_DENIED"
        assert "hidden" not in str(raised.value)
    # Nothing can have been written, and the error says no other thing.
    with pytest.raises(WriteRefusedError):
        calls["write"]()


def test_credentials_that_may_only_read_read(
    objects_server: ObjectStoreServer,
    bucket: str,
    place: tuple[LogStore, str],
    objects_of: Callable[..., StoresOfSpark],
) -> None:
    commit(DeltaLog(*place), "file")
    objects_server.denied_operations.update(("PutObject", "DeleteObject"))
    found = objects_of().open(place[1], False)
    assert found is not None
    log = DeltaLog(*found)
    assert log.snapshot().num_files == 1
    # Without a key in Hadoop's settings nobody is named, least of all the user of this machine.
    with pytest.raises(WriteRefusedError, match=f"Cannot write s3a://{bucket}/t/_delta_log.*denied access:"):
        commit(log, "another")


def test_a_table_that_is_not_there_costs_two_requests(
    objects_server: ObjectStoreServer, bucket: str, objects: StoresOfSpark
) -> None:
    found = objects.open(f"s3a://{bucket}/a/b/c/t", False)
    assert found is not None
    assert not DeltaLog(*found).exists()
    # One for what begins with the name, and one for the name.
    assert objects_server.counted() == {"ListObjectsV2": 1, "HeadObject": 1}


def test_a_table_is_found_without_the_right_to_list_above_it(
    objects_server: ObjectStoreServer, bucket: str, place: tuple[LogStore, str]
) -> None:
    store, root = place
    objects_server.denied.update((f"/{bucket}/", f"/{bucket}/t/"))
    assert not DeltaLog(store, root).exists()
    assert commit(DeltaLog(store, root), "file") == 0
    assert DeltaLog(store, root).snapshot().num_files == 1


def test_a_bucket_that_is_not_there(objects: StoresOfSpark) -> None:
    found = objects.open("s3a://no-such-bucket/t", False)
    assert found is not None
    store, root = found
    calls: dict[str, Callable[[], object]] = {
        "list": lambda: store.list_from(root, ""),
        "read": lambda: store.read(f"{root}/1.json"),
        "write": lambda: store.put_if_absent(f"{root}/1.json", b""),
    }
    for verb, call in calls.items():
        with pytest.raises(StoreError, match=f"Cannot {verb} {root}.*Bucket does not exist.*NoSuchBucket"):
            call()
    with pytest.raises(StoreError, match="NoSuchBucket"):
        DeltaLog(store, root).snapshot()


def test_s3a_without_conditional_creates_is_left_to_s3fs(
    bucket: str, place: tuple[LogStore, str], objects_of: Callable[..., StoresOfSpark]
) -> None:
    pytest.importorskip("s3fs")
    keys = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.endpoint.region": "us-east-1"}
    stores = objects_of({**keys, "fs.s3a.create.conditional.enabled": "false"})
    found = stores.open(f"s3a://{bucket}/t", False)
    assert found is not None
    store, path = found
    assert isinstance(store, S3LogStore)
    assert path == f"s3a://{bucket}/t"
    assert (store.file_system.key, store.file_system.secret) == ("k", "s")
    # Both see one table.
    assert commit(DeltaLog(store, path), "of-s3fs") == 0
    assert commit(DeltaLog(*place), "of-hadoop") == 1
    assert DeltaLog(store, path).snapshot().num_files == 2


def test_s3a_without_conditional_creates_and_s3fs_reads_and_says_what_writing_needs(
    bucket: str, objects_of: Callable[..., StoresOfSpark], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(scheme: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    writer, root = ready(objects_of(), f"s3a://{bucket}/t")
    writer.put_if_absent(f"{root}/1.json", b"one")
    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    found = objects_of({"fs.s3a.create.conditional.enabled": "false"}).open(root, False)
    assert found is not None
    store, _ = found
    assert isinstance(store, HadoopLogStore)
    assert store.read(f"{root}/1.json") == b"one"
    with pytest.raises(WriteRefusedError, match=r"Hadoop 3\.4\.2 and PySpark 4\.1.*pip install"):
        store.check_writable(root)


def test_the_connector_is_as_s3a(spark: SparkSession, objects_server: ObjectStoreServer, bucket: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in {**objects_server.settings(), "fs.s3a.bulk.delete.page.size": "2"}.items():
        configuration.set(name, value)

    def path(name: str) -> Any:
        return jvm.org.apache.hadoop.fs.Path(f"s3a://{bucket}/{name}")

    files = path("").getFileSystem(configuration)
    for name in ("d/1", "d/2", "d/e/3"):
        files.create(path(name), True).close()
    assert sorted(str(found.getPath().getName()) for found in files.listStatus(path("d"))) == ["1", "2", "e"]
    assert files.getFileStatus(path("d/e")).isDirectory()
    # There is no directory without a key, but for the marker of one.
    assert not files.exists(path("m"))
    assert files.mkdirs(path("m"))
    assert files.exists(path("m"))
    assert objects_server.keys(bucket) == ["d/1", "d/2", "d/e/3", "m/"]
    objects_server.counted()
    assert files.rename(path("d"), path("r"))
    counted = objects_server.counted()
    assert (counted["CopyObject"], counted["DeleteObjects"]) == (3, 2)
    assert objects_server.keys(bucket) == ["m/", "r/1", "r/2", "r/e/3"]
    opened = files.openFile(path("r/1")).opt("fs.option.openfile.length", "0").build().get()
    assert opened.read() == -1
    opened.close()
    assert objects_server.counted() == {}
    paths = jvm.java.util.ArrayList()
    for name in ("r/1", "r/e/3"):
        paths.add(path(name))
    assert list(files.createBulkDelete(path("r")).bulkDelete(paths)) == []
    assert objects_server.counted() == {"DeleteObjects": 1}
    assert files.delete(path("r"), True)
    assert objects_server.keys(bucket) == ["m/"]


@pytest.fixture
def of_spark(hadoop_settings: Settings, objects_server: ObjectStoreServer) -> Iterator[None]:
    """The session's Hadoop settings reach the server."""
    with hadoop_settings(objects_server.settings()):
        yield


def test_spark_itself_writes_reads_and_streams_there(
    spark: SparkSession, of_spark: None, objects_server: ObjectStoreServer, bucket: str, tmp_path: Path
) -> None:
    files, stream = f"s3a://{bucket}/files", f"s3a://{bucket}/stream"
    spark.range(100).repartition(3).write.parquet(files)
    assert objects_server.counted()["CopyObject"] > 0
    assert spark.read.parquet(files).where("id >= 50").count() == 50
    spark.range(10).write.mode("overwrite").parquet(files)
    assert sum(key.endswith(".parquet") for key in objects_server.keys(bucket)) == 2
    for rows in (100, 110):
        source = spark.readStream.schema("id BIGINT").parquet(files)
        writer = source.writeStream.option("checkpointLocation", f"s3a://{bucket}/checkpoint")
        writer.format("parquet").trigger(availableNow=True).start(stream).awaitTermination()
        assert spark.read.parquet(stream).count() == rows - 90
        spark.range(10).write.mode("append").parquet(files)
