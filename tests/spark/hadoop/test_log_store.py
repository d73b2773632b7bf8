"""The log store on Hadoop's file systems: requests, faults, refusals, settings."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.errors import (
    ConcurrentWriteException,
    DeltaIllegalArgumentException,
    StoreError,
    WriteRefusedError,
)
from deltaflow.log import DeltaLog
from deltaflow.spark.hadoop import java_files
from deltaflow.spark.hadoop.log_store import HadoopLogStore
from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import FsspecLogStore, LogStore
from tests.spark.hadoop.logs import WRITE, commit, ready
from tests.webhdfs import Failure, WebHdfsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Crossings = Callable[[], AbstractContextManager[list[str]]]


@pytest.fixture
def place(server: WebHdfsServer, stores: StoresOfSpark) -> tuple[LogStore, str]:
    """A store on the server that has been tried, and a directory there."""
    return ready(stores, f"{server.url}/t")


def names(server: WebHdfsServer, directory: str) -> list[str]:
    return sorted(path.name for path in (server.directory / directory).iterdir())


def test_the_requests_of_each_method(
    server: WebHdfsServer, place: tuple[LogStore, str], crossings: Crossings
) -> None:
    store, root = place
    server.counted()
    store.make_directory(f"{root}/log")
    assert server.counted() == {"MKDIRS": 1}
    store.put_if_absent(f"{root}/log/00.json", b"zero")
    assert server.counted() == {"CREATE": 1, "RENAME": 1}
    store.put_auxiliary_if_absent(f"{root}/log/00.crc", b"checksum")
    assert server.counted() == {"CREATE": 1}
    with store.open_output(f"{root}/log/hint") as file:
        file.write(b"hint")
    assert server.counted() == {"CREATE": 1, "RENAME": 1}
    with crossings() as sent:
        assert store.read(f"{root}/log/00.json") == b"zero"
    assert (server.counted(), len(sent)) == ({"OPEN": 1}, 1)
    with store.open(f"{root}/log/00.json") as opened:
        assert opened.read() == b"zero"
    assert server.counted() == {"OPEN": 1}
    store.delete(f"{root}/log/00.crc")
    assert server.counted() == {"DELETE": 1}
    for number in range(2_500):
        (server.directory / "t" / "log" / f"{number:05}.json").write_bytes(b"%d" % number)
    with crossings() as sent:
        assert [status.name for status in store.list_from(f"{root}/log", "02499.")] == ["02499.json", "hint"]
    assert (server.counted(), len(sent)) == ({"LISTSTATUS_BATCH": 1}, 1)
    with crossings() as sent:
        files = store.list_from(f"{root}/log", "")
    assert len(files) == 2_502
    assert (server.counted(), len(sent)) == ({"LISTSTATUS_BATCH": 3}, 1)
    with crossings() as sent:
        found = store.read_together(f"{root}/log", files[1:65])
    assert found == [b"%d" % number for number in range(64)]
    assert (server.counted(), len(sent)) == ({"OPEN": 64}, 1)


def test_commits_are_read_together(
    server: WebHdfsServer, place: tuple[LogStore, str], crossings: Crossings
) -> None:
    log = DeltaLog(*place)
    for number in range(9):
        assert commit(log, f"file{number}") == number
    fresh = DeltaLog(*place)
    server.counted()
    with crossings() as sent:
        assert fresh.snapshot().num_files == 9
    # The hint of a checkpoint and a listing; then 1, 2, 4 and 2 commits.
    assert len(sent) == 2 + 4
    assert server.counted() == {"OPEN": 1 + 9, "LISTSTATUS_BATCH": 1}
    assert [found.version for found in fresh.commits(3)] == list(range(3, 9))


@pytest.mark.parametrize("failure", ["503", "reset", "lost reply"])
@pytest.mark.parametrize("operation", ["CREATE", "RENAME", "OPEN", "LISTSTATUS_BATCH"])
@pytest.mark.sampled(4)
def test_a_commit_survives_faults(
    server: WebHdfsServer, place: tuple[LogStore, str], operation: str, failure: Failure
) -> None:
    log = DeltaLog(*place)
    for number in range(3):
        server.fail(operation, failure, path="/t/_delta_log")
        assert commit(log, f"file{number}") == number
    assert sorted(log.snapshot().files["path"].to_pylist()) == ["file0", "file1", "file2"]
    commits = [name for name in names(server, "t/_delta_log") if name.endswith(".json")]
    assert commits == [f"{version:020}.json" for version in range(3)]


def test_a_file_whose_rename_had_no_answer_is_there(
    server: WebHdfsServer, place: tuple[LogStore, str], stores: StoresOfSpark
) -> None:
    store, root = place
    for content in (b"first", b"second"):
        server.fail("RENAME", "lost reply")
        with store.open_output(f"{root}/hint") as file:
            file.write(content)
        assert store.read(f"{root}/hint") == content
    alone, _ = stores.open(root, True) or (store, root)
    for name, one in (("of many", store), ("of one", alone)):
        server.fail("RENAME", "lost reply")
        one.put_if_absent(f"{root}/{name}", b"put")
        server.fail("RENAME", "lost reply")
        with pytest.raises(FileExistsError):
            one.put_if_absent(f"{root}/{name}", b"other")
        server.faults.clear()
        assert store.read(f"{root}/{name}") == b"put"
    assert names(server, "t") == ["before", "hint", "of many", "of one"]


def test_a_put_that_is_refused_again_and_again_ends_and_leaves_nothing(
    server: WebHdfsServer, place: tuple[LogStore, str], no_pauses: None
) -> None:
    log = DeltaLog(*place)
    server.fail("RENAME", "503", times=3)
    with pytest.raises(WriteRefusedError, match="tried 3 times; the storage is busy"):
        commit(log, "file")
    assert names(server, "t/_delta_log") == []
    assert commit(log, "file") == 0


@pytest.mark.parametrize("failure", ["503", "reset"])
def test_reading_is_tried_again_and_not_for_ever(
    server: WebHdfsServer, place: tuple[LogStore, str], no_pauses: None, failure: Failure
) -> None:
    store, root = place
    store.put_if_absent(f"{root}/1.json", b"one")
    reads: dict[str, Callable[[], object]] = {
        "OPEN": lambda: store.read(f"{root}/1.json"),
        "LISTSTATUS_BATCH": lambda: store.list_from(root, ""),
        "GETFILESTATUS": lambda: store.status(f"{root}/1.json"),
    }
    for operation, read in reads.items():
        server.fail(operation, failure, times=2)
        assert read()
        server.fail(operation, failure, times=1_000)
        with pytest.raises(StoreError, match="tried 3 times") as raised:
            read()
        assert root in str(raised.value)
        server.faults.clear()


def test_a_dropped_table_gets_no_new_log(server: WebHdfsServer, place: tuple[LogStore, str]) -> None:
    store, root = place
    log = DeltaLog(*place)
    commit(log, "file")
    transaction = log.start_transaction()
    shutil.rmtree(server.directory / "t" / "_delta_log")
    with pytest.raises(ConcurrentWriteException):
        transaction.commit([], WRITE)
    for put in (store.put_if_absent, store.put_auxiliary_if_absent):
        with pytest.raises(FileNotFoundError):
            put(f"{root}/_delta_log/{2:020}.json", b"")
    assert names(server, "t") == ["before"]


def test_access_denied_names_the_request_and_who_asked(
    server: WebHdfsServer, place: tuple[LogStore, str], spark: SparkSession
) -> None:
    store, root = place
    log = DeltaLog(*place)
    commit(log, "file")
    server.denied.add("/t/_delta_log")
    jvm: Any = spark.sparkContext._jvm
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    calls: dict[str, Callable[[], object]] = {
        "list": log.snapshot,
        "read": lambda: store.read(f"{root}/_delta_log/{0:020}.json"),
        "write": lambda: store.put_if_absent(f"{root}/_delta_log/{1:020}.json", b""),
        "delete": lambda: store.delete(f"{root}/_delta_log/{0:020}.json"),
    }
    for verb, call in calls.items():
        with pytest.raises(
            StoreError, match=f"Cannot {verb} {root}/_delta_log.*to the user {user}"
        ) as raised:
            call()
        assert raised.value.error_class == "DELTA_STORE_ACCESS_DENIED"
    # Nothing can have been written, and the error says no other thing.
    with pytest.raises(WriteRefusedError):
        calls["write"]()


def test_a_table_is_looked_for_without_rights_above_it(
    server: WebHdfsServer, place: tuple[LogStore, str]
) -> None:
    store, _ = place
    server.denied.add("/")
    assert not DeltaLog(store, f"{server.url}/none").exists()


@pytest.mark.parametrize("authority", ["127.0.0.1:1", "no-host.invalid:1"])
def test_a_server_that_is_not_there(stores: StoresOfSpark, authority: str, no_pauses: None) -> None:
    path = f"webhdfs://{authority}/t"

    def listed() -> object:
        found = stores.open(path, False)
        return found and found[0].list_from(path, "")

    with pytest.raises(StoreError, match=authority.partition(":")[0]):
        listed()


def test_no_secret_is_told() -> None:
    class Java:
        def dataFiles(self) -> None:
            return None

        def status(self, path: str) -> str:
            return "!other\nGET https://a/b?sv=1&sig=AbC%2F&x=2 failed; fs.s3a.secret.key=hidden token=hidden"

    with pytest.raises(StoreError) as raised:
        java_files.JavaFiles(Java()).status("abfss://c@a/b")
    assert "sig=***&x=2" in str(raised.value)
    assert "hidden" not in str(raised.value)
    assert "AbC" not in str(raised.value)


def test_behind_mount_points_each_file_system_has_its_own_rules(
    server: WebHdfsServer, tmp_path: Path, stores_of: Callable[..., StoresOfSpark]
) -> None:
    (server.directory / "m").mkdir()
    (tmp_path / "local").mkdir()
    prefix = f"fs.viewfs.mounttable.{tmp_path.name}.link."
    stores = stores_of({f"{prefix}/web": f"{server.url}/m", f"{prefix}/local": f"file:{tmp_path}/local"})
    store, root = ready(stores, f"viewfs://{tmp_path.name}/web/t")
    assert names(server, "m/t/before") == ["0.json"]
    with pytest.raises(WriteRefusedError, match="file system of file: lets only one"):
        store.put_if_absent(f"viewfs://{tmp_path.name}/local/t/0.json", b"")
    server.counted()
    store.list_from(f"{root}/before", "0")
    assert server.counted() == {"LISTSTATUS_BATCH": 1}


def test_one_store_and_one_log_whatever_the_spelling(server: WebHdfsServer, spark: SparkSession) -> None:
    log = DeltaLog.for_table(f"{server.url}/tables/t")
    assert isinstance(log._files.store, HadoopLogStore)
    for spelling in ("//tables/t", "/tables//t/", "/tables/t/"):
        assert DeltaLog.for_table(f"{server.url}{spelling}") is log
    assert DeltaLog.for_table(f"WEBHDFS://{server.authority}/tables/t") is log
    assert DeltaLog.for_table(f"{server.url}/tables/t", single_writer=True) is not log
    assert commit(log, "file") == 0


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.org.apache.spark.sql.internal.SQLConf.get()
    settings.setConfString(name, value)
    yield
    settings.unsetConf(name)


def test_a_commit_that_was_not_read_whole_is_none(place: tuple[LogStore, str]) -> None:
    store, root = place
    commit(DeltaLog(store, root), "file")
    [listed] = [file for file in store.list_from(f"{root}/_delta_log", "0") if file.name.endswith(".json")]
    longer = replace(listed, size=listed.size + 7)
    with pytest.raises(StoreError, match=rf"was read as {listed.size} bytes.* that it has {longer.size}"):
        store.read_together(f"{root}/_delta_log", [longer])


def test_a_default_port_makes_no_other_place(stores: StoresOfSpark) -> None:
    for scheme, port in {"webhdfs": 9870, "swebhdfs": 9871, "hdfs": 8020}.items():
        found = [
            stores.open(f"{scheme}://127.0.0.1{given}/a/t", False) for given in ("", f":{port}", ":7000")
        ]
        assert found[0] is not None
        assert found[0] == found[1]
        assert found[0][1] == f"{scheme}://127.0.0.1/a/t"
        assert found[0] != found[2]


def test_the_settings_of_a_scheme(tmp_path: Path, stores: StoresOfSpark, spark: SparkSession) -> None:
    with setting(spark, "spark.deltaflow.store.webhdfs", "fsspec"):
        found = stores.open("webhdfs://127.0.0.1:1/t", False)
        assert found is not None
        assert isinstance(found[0], FsspecLogStore)
        assert found[1] == "webhdfs://127.0.0.1:1/t"  # the path is the one that Spark knows
    assert stores.open("memory://t", False) is None
    with (
        setting(spark, "spark.deltaflow.store.memory", "hadoop"),
        pytest.raises(StoreError, match=r"has no file system for memory:\. Add its connector"),
    ):
        stores.open("memory://t", False)
    wrong = [
        ("webhdfs", "boto", "webhdfs://127.0.0.1:1/t"),
        ("file.singleWriter", "yes", f"file:{tmp_path}/t"),
    ]
    for name, value, path in wrong:
        with (
            setting(spark, f"spark.deltaflow.store.{name}", value),
            pytest.raises(DeltaIllegalArgumentException, match=f"{name} is '{value}'"),
        ):
            stores.open(path, False)
    with setting(spark, "spark.deltaflow.store.file.singleWriter", "true"):
        store, root = ready(stores, f"file:{tmp_path}/t")
        store.put_if_absent(f"{root}/1.json", b"one")
    refusing = stores.open(f"file:{tmp_path}/t", False)
    assert refusing is not None
    with pytest.raises(StoreError, match=r"spark\.deltaflow\.store\.file\.singleWriter=true"):
        refusing[0].check_writable(root)
