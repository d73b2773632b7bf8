from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.hadoop import java_files
from deltaflow.spark.hadoop.java_files import JavaFiles
from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import RetryPolicy
from tests.object_store.server import ObjectStoreServer
from tests.webhdfs import WebHdfsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebHdfsServer]:
    """A WebHDFS server of its own for each test."""
    directory = tmp_path / "webhdfs"
    directory.mkdir()
    with WebHdfsServer(directory) as server:
        yield server


@pytest.fixture(scope="session")
def stores_of(spark: SparkSession) -> Callable[..., StoresOfSpark]:
    """A function: the stores of Hadoop's file systems with further settings of Hadoop."""

    def stores_of(settings: dict[str, str] | None = None) -> StoresOfSpark:
        jvm: Any = spark.sparkContext._jvm
        of_session = spark.sparkContext._jsc.hadoopConfiguration()
        configuration = jvm.org.apache.hadoop.conf.Configuration(of_session)
        for name, value in (settings or {}).items():
            configuration.set(name, value)
        return StoresOfSpark(JavaFiles(java_classes(spark).hadoop.HadoopFiles(configuration)))

    return stores_of


@pytest.fixture
def stores(stores_of: Callable[..., StoresOfSpark]) -> StoresOfSpark:
    return stores_of()


@pytest.fixture
def objects_server() -> Iterator[ObjectStoreServer]:
    """An object store of its own for each test."""
    with ObjectStoreServer() as server:
        yield server


@pytest.fixture
def bucket(objects_server: ObjectStoreServer) -> str:
    return objects_server.new_bucket()


@pytest.fixture
def objects_of(
    objects_server: ObjectStoreServer, stores_of: Callable[..., StoresOfSpark]
) -> Callable[..., StoresOfSpark]:
    """A function: stores in which `s3a:` is the test's object store, with further settings of Hadoop."""

    def objects_of(settings: dict[str, str] | None = None) -> StoresOfSpark:
        # A test may ask for one bucket with different settings.
        own = {**objects_server.settings(), "fs.s3a.impl.disable.cache": "true"}
        return stores_of({**own, **(settings or {})})

    return objects_of


@pytest.fixture
def objects(objects_of: Callable[..., StoresOfSpark]) -> StoresOfSpark:
    return objects_of()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_files, "_RETRIES", RetryPolicy(max_attempts=3, first_pause_ms=0))


@pytest.fixture
def crossings(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractContextManager[list[str]]]:
    """A function: the calls into the JVM within a block."""

    @contextmanager
    def crossings() -> Iterator[list[str]]:
        client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        sent: list[str] = []
        send = client.send_command

        def record(command: str, *arguments: Any, **options: Any) -> Any:
            if command.startswith("c\n"):  # a call; others release what Python no longer refers to
                sent.append(command)
            return send(command, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(client, "send_command", record)
            yield sent

    return crossings
