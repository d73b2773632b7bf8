"""The stores of Hadoop's file systems without a Spark session: in JVMs that have the classes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import deltaflow.spark
from deltaflow.spark.hadoop.open_store import connect
from deltaflow.store import location
from tests.jvm import bare_jvm, java_sources, write_jar

_JAVA = Path(deltaflow.spark.__file__).with_name("java")
_OBJECT_STORE = Path(__file__).parents[2] / "object_store"


def write_stores_jar(jar: Path) -> Path:
    """Writes the classes that `bare_stores` needs, and the tests' object store, to a jar."""
    ours = {**java_sources(_JAVA / "hadoop"), **java_sources(_JAVA / "bridge")}
    return write_jar(jar, {**ours, **java_sources(_OBJECT_STORE)})


@contextmanager
def bare_stores(jar: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block, Hadoop with these settings keeps the logs of paths with a scheme."""
    with bare_jvm(jar) as gateway:
        configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings.items():
            configuration.set(name, value)
        before = location._stores_of_spark
        connect(gateway.jvm.io.deltaflow.spark.hadoop.HadoopFiles(configuration))
        try:
            yield
        finally:
            # A session of this process goes on with its own.
            location._stores_of_spark = before
