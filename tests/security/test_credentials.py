"""Credentials of a job are in none of the files that it writes, nor in its logs, errors and metrics."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltaflow.errors import CommitOutcomeUnknownError, DeltaError
from deltaflow.log import DeltaLog, Metadata, Operation
from deltaflow.store import FsspecLogStore, store_for
from deltaflow.tables import DeltaTable

SECRET = "hunter2-of-the-tests"
SCHEMA = '{"type":"struct","fields":[]}'
OPTIONS = {
    "fs.s3a.secret.key": SECRET,
    "fs.azure.account.key.box.dfs.core.windows.net": SECRET,
    "password": SECRET,
}


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[Callable[[object], None]]:
    """Takes objects whose texts lack the secret, as do all files and lines of logs afterwards."""
    caplog.set_level(logging.DEBUG, logger="deltaflow")
    texts: list[str] = []
    yield lambda value: texts.append(f"{value} {value!r}")
    assert [text for text in texts if SECRET in text] == []
    assert SECRET not in caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_storage_options(
    tmp_path: Path, told: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AZURE_STORAGE_KEY", SECRET)
    options = {"secret": SECRET, "key": SECRET, "client_kwargs": {"password": SECRET}}
    for path in ("memory://credentials/t", "s3://bucket-of-nobody/t"):
        store, root = store_for(path, storage_options=options if path.startswith("s3") else {})
        told(store)
        told(root)
    with pytest.raises(DeltaError) as error:
        store_for("nothing://host/t", storage_options=options)
    told(error.value)
    log = DeltaLog.for_table(str(tmp_path / "t"), storage_options={"auto_mkdir": True})
    told(log)


class _WithToken(MemoryFileSystem):
    """Some files cannot be looked at. The cause of its driver's error has the URL of the request."""

    protocol = "with-token"
    store: ClassVar[dict[str, Any]] = {}
    withheld = ".crc"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if self.withheld in path:
            try:
                raise OSError("Max retries exceeded with url: /t?op=GETFILESTATUS&delegation=" + SECRET)
            except OSError as error:
                raise ValueError("503 Server Error") from error
        return dict(super().info(path, **options))


def test_what_the_driver_of_a_storage_says(
    told: Callable[[object], None], caplog: pytest.LogCaptureFixture
) -> None:
    files = _WithToken()
    log = DeltaLog(FsspecLogStore(files, single_writer=True), "memory://tokens/t")
    transaction = log.start_transaction()
    transaction.update_metadata(Metadata(id="t", schema_string=SCHEMA, partition_columns=[]))
    transaction.commit([], Operation("WRITE", {}))
    assert "its checksum was not written" in caplog.text
    assert "503 Server Error" in caplog.text
    files.withheld = ".json"
    with pytest.raises(CommitOutcomeUnknownError) as error:
        log.start_transaction().commit([], Operation("WRITE", {}))
    told("".join(traceback.format_exception(error.value)))


@pytest.mark.spark
def test_settings_and_options(
    spark: SparkSession, tmp_path: Path, told: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    path, checkpoint = str(tmp_path / "t"), str(tmp_path / "checkpoint")
    for name in OPTIONS:
        hadoop.set(name, SECRET)
    spark.conf.set("fs.s3a.session.token", SECRET)
    try:
        rows = spark.range(3)
        rows.write.format("delta").options(**OPTIONS).save(path)
        rows.write.format("delta").options(**OPTIONS).mode("overwrite").saveAsTable("credentials_of_tests")
        table = DeltaTable.forPath(spark, path, {"fs.s3a.secret.key": SECRET})
        table.delete("id = 1")
        table.optimize().executeCompaction()
        read = spark.read.format("delta").options(**OPTIONS).load(path)
        told(read._jdf.queryExecution().toString())
        stream = spark.readStream.format("delta").options(**OPTIONS).load(path)
        writer = (
            stream.writeStream.format("delta").options(**OPTIONS).option("checkpointLocation", checkpoint)
        )
        query = writer.trigger(availableNow=True).start(f"{path}-copy")
        try:
            query.awaitTermination()
        finally:
            query.stop()
        for progress in query.recentProgress:
            told(progress.json)
        told(query.status)
        for value in (table, table.history().collect(), table.detail().collect()):
            told(value)
        for fails in failures(spark, path):
            with pytest.raises((PySparkException, DeltaError)) as error:
                fails()
            told(f"{error.value} {error.value!r}")
    finally:
        for name in OPTIONS:
            hadoop.unset(name)
        spark.conf.unset("fs.s3a.session.token")
        spark.sql("DROP TABLE IF EXISTS credentials_of_tests")


def failures(spark: SparkSession, path: str) -> list[Callable[[], object]]:
    reader = spark.read.format("delta").options(**OPTIONS)
    writer = spark.range(1).selectExpr("id AS other").write.format("delta").options(**OPTIONS).mode("append")
    return [
        lambda: reader.load(f"{path}-none"),
        lambda: reader.option("versionAsOf", "99").load(path),
        lambda: reader.option("versionAsOf", "x").load(path),
        lambda: reader.load(f"sftp://me:{SECRET}@host.example/t"),
        lambda: reader.load(f"s3a://box/t?X-Amz-Signature={SECRET}"),
        lambda: writer.save(path),
        lambda: writer.save(f"https://me:{SECRET}@host.example/t"),
        lambda: DeltaTable.forPath(spark, f"sftp://me:{SECRET}@host.example/t"),
    ]
