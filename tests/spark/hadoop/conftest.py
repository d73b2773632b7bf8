from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.hadoop.java_files import JavaFiles
from deltaflow.spark.hadoop.open_store import StoresOfSpark
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

    def stores_of(settings: dict[str, str] | None = None, loader: Any = None) -> StoresOfSpark:
        jvm: Any = spark.sparkContext._jvm
        of_session = spark.sparkContext._jsc.hadoopConfiguration()
        configuration = jvm.org.apache.hadoop.conf.Configuration(of_session)
        for name, value in (settings or {}).items():
            configuration.set(name, value)
        if loader is not None:
            configuration.setClassLoader(loader)
        return StoresOfSpark(JavaFiles(java_classes(spark).hadoop.HadoopFiles(configuration)))

    return stores_of


@pytest.fixture
def stores(stores_of: Callable[..., StoresOfSpark]) -> StoresOfSpark:
    return stores_of()


@pytest.fixture(scope="session")
def object_store_classes(spark: SparkSession) -> Any:
    """The class loader that has the tests' object store."""
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(Path(__file__).with_name("ObjectStore.java").read_text())
    return compiler.getClassLoader()


@pytest.fixture
def objects_of(
    tmp_path: Path, stores_of: Callable[..., StoresOfSpark], object_store_classes: Any
) -> Callable[..., StoresOfSpark]:
    """A function: stores in which `s3a:` is an object store of the test's own, with further settings."""

    def objects_of(settings: dict[str, str] | None = None) -> StoresOfSpark:
        folder = tmp_path / "objects"
        folder.mkdir(exist_ok=True)
        own = {
            "fs.s3a.impl": "deltaflow.tests.ObjectStore",
            "fs.s3a.impl.disable.cache": "true",
            "test.objects.folder": str(folder),
        }
        return stores_of({**own, **(settings or {})}, object_store_classes)

    return objects_of


@pytest.fixture
def objects(objects_of: Callable[..., StoresOfSpark]) -> StoresOfSpark:
    return objects_of()
