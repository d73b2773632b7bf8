"""Scripts in processes of their own, the state of a folder, and entries in Spark's catalog."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
PREAMBLE = """
import os, sys
from pathlib import Path
from tests.tables import INTERPRETED, ids, load
SETTINGS = {
    **INTERPRETED,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": os.getcwd() + "/warehouse",
}
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a Python script in a process of its own and returns what it printed; it must exit with 0.

    The script has SETTINGS, `ids` and `load`. Its folder is `tmp_path`; the JVM that it starts is gone
    when this returns.
    """

    def run(
        script: str,
        *arguments: object,
        environment: dict[str, str | None] | None = None,
        command: list[str] | None = None,
    ) -> str:
        file = tmp_path / "script.py"
        file.write_text(PREAMBLE + script)
        process = subprocess.Popen(
            [*(command or [sys.executable]), str(file), *map(str, arguments)],
            cwd=tmp_path,
            env=_environment(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            # The pipes reach their end when the last process that holds them, the JVM, has ended.
            out, err = process.communicate(timeout=240)
        finally:
            _kill_group(process)
        assert process.returncode == 0, f"{out}\n{err}"
        return out

    return run


def _environment(changes: dict[str, str | None]) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):  # this process may have a JVM of its own
        environment.pop(name, None)
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


Tree = dict[str, tuple[int, int]]


@pytest.fixture
def tree() -> Callable[[Path], Tree]:
    """A function: every file and folder below a folder with its size and time of modification."""

    def tree(folder: Path) -> Tree:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}

    return tree


@pytest.fixture(scope="session")
def delta_entry() -> Callable[[SparkSession, str, Path], None]:
    """A function: puts an entry of provider `delta` into Spark's own catalog, past DeltaCatalog.

    A managed one when the path is where the database keeps its tables, as delta-spark may have left it.
    """

    def delta_entry(spark: SparkSession, name: str, path: Path, *, managed: bool) -> None:
        jvm: Any = spark.sparkContext._jvm
        catalog = spark._jsparkSession.sessionState().catalog()
        database = jvm.scala.Option.apply(spark.catalog.currentDatabase())
        identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier
        pattern = f"{name}_pattern"
        location = "" if managed else f"LOCATION '{path}-pattern'"
        spark.sql(f"CREATE TABLE {pattern} (id BIGINT, v BIGINT, m STRING) USING parquet {location}")
        # CatalogTable has other fields in other releases, so this one is copied by its field names.
        described = catalog.getTableMetadata(identifier(pattern, database))
        spark.sql(f"DROP TABLE {pattern}")
        fields = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, described.productArity())
        for i in range(described.productArity()):
            field, value = described.productElementName(i), described.productElement(i)
            if field == "identifier":
                value = identifier(name, database)
            elif field == "provider":
                value = jvm.scala.Option.apply("delta")
            elif field == "storage":
                uri = jvm.scala.Option.apply(jvm.java.io.File(str(path)).toURI())
                value = value.copy(uri, *(value.productElement(j) for j in range(1, value.productArity())))
            fields[i] = value
        copy = next(method for method in described.getClass().getMethods() if method.getName() == "copy")
        catalog.createTable(copy.invoke(described, fields), False, False)

    return delta_entry


@pytest.fixture(scope="session")
def janino(spark: SparkSession) -> Callable[[str], dict[str, bytes]]:
    """A function: the class files of one Java source, compiled against the running Spark."""

    def compile_source(source: str) -> dict[str, bytes]:
        jvm: Any = spark.sparkContext._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.setSourceVersion(8)
        compiler.setTargetVersion(8)
        compiler.cook(source)
        return {
            entry.getKey().replace(".", "/") + ".class": bytes(entry.getValue())
            for entry in compiler.getBytecodes().entrySet()
        }

    return compile_source


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """The path of a table of the ids 0 to 2."""
    path = str(tmp_path / "table")
    spark.range(3).write.format("delta").save(path)
    return path


@pytest.fixture
def answers(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """A function: registers another function, with its schema, for the statements of a name."""
    from deltaflow.spark.sql import statements

    java: Any = spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    field = loader.loadClass("io.deltaflow.spark.sql.Statements").getDeclaredField("descriptions")
    field.setAccessible(True)
    kept = dict(statements._handlers)

    def answer(function: Any, name: str = "TruncateTable", **parameters: Any) -> None:
        statements.statement(name, **parameters)(function)
        field.set(None, None)

    yield answer
    statements._handlers.clear()
    statements._handlers.update(kept)
    field.set(None, None)
