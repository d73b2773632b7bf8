"""JVMs that have Spark's jars and no Spark context, and jars of Java sources."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from deltaflow.spark.bridge.java_compiler import compile_java
from deltaflow.spark.java_home import ensure_java
from tests.class_archive import SPARK_JARS


def java_program() -> str:
    """The `java` that PySpark starts."""
    ensure_java()
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


@contextmanager
def bare_jvm(*jars: Path) -> Iterator[Any]:
    """A gateway to a JVM that has the jars and Spark's, and ends with the block or with this process."""
    (py4j,) = SPARK_JARS.glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join([*map(str, jars), f"{SPARK_JARS}/*"]),
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"],
        java_path=java_program(),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()


def write_jar(jar: Path, sources: Mapping[str, str]) -> Path:
    """Writes the classes of Java sources, by file name, to a jar."""
    with bare_jvm() as gateway, zipfile.ZipFile(jar, "w") as archive:
        loader = gateway.jvm.java.lang.ClassLoader.getSystemClassLoader()
        for name, code in compile_java(gateway, loader, sources).items():
            archive.writestr(name, code)
    return jar


def java_sources(folder: Path) -> dict[str, str]:
    """The Java sources of a folder, by file name."""
    return {file.name: file.read_text() for file in sorted(folder.glob("*.java"))}
