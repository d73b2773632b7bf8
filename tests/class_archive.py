"""An archive of the classes that a session of Spark loads, which JVMs map instead of reading 280 jars.

    python -m tests.class_archive

makes it, unless the environment of this Python has it. Many tests start a JVM: they kill it, or need
settings of their own. One that writes, reads and updates a table took 7.3 to 9.2 s of CPU with the archive,
and 11.8 to 16.6 s without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Every run of pytest imports this module, and many need no Spark: PySpark is found, and not imported.
_PYSPARK = find_spec("pyspark")
assert _PYSPARK is not None
assert _PYSPARK.origin is not None
# The class path is that of Spark's launcher, without the jar that it has twice: no archive fits that.
_CLASS_PATH = f"{Path(_PYSPARK.origin).parent / 'jars'}/*"
_ARCHIVE = Path(sys.prefix, f"spark-{version('pyspark')}.jsa")
# Tests run much code a few times, which a compiler that optimises it does not repay (77 tests of reads and of
# ALTER TABLE took 56 s of CPU instead of 100 s). Half of all tests need more than its default code cache of
# 48 MB. Classes that are not verified save a session that reads a table 2.5 of 11 s of CPU.
_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)


def set_jvm_options() -> None:
    """Sets the environment variables, unless somebody has, that have the options of every JVM that Spark's
    launcher starts from here, and of the launcher. A JVM that the archive does not fit starts without it."""
    shared = f"-XX:SharedArchiveFile={_ARCHIVE} -XX:ArchiveRelocationMode=0 -Xlog:cds=off"
    flags = " ".join(_FLAGS)
    if _ARCHIVE.exists():
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", f"{flags} {shared}")
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{flags} {shared} -cp {_CLASS_PATH}")
    else:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", flags)


def make() -> None:
    """Makes the archive, unless it is there."""
    if _ARCHIVE.exists():
        return
    from tests.jvm import java_program

    java = java_program()
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder, "classes")
        flags = (*_FLAGS, f"-XX:DumpLoadedClassList={classes}")
        subprocess.run(
            [sys.executable, "-c", f"from tests.class_archive import program; program({folder!r})"],
            env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(flags)},
            check=True,
        )
        made = _ARCHIVE.with_suffix(".new")
        subprocess.run(
            [
                java,
                *_FLAGS,
                "-Xshare:dump",
                "-Xlog:disable",
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={made}",
                "-cp",
                _CLASS_PATH,
            ],
            check=True,
        )
        made.replace(_ARCHIVE)


def program(folder: str) -> None:
    """What most tests do: a table, a stream from it and into another, and changes of rows."""
    import deltaflow
    from deltaflow import DeltaTable

    spark = deltaflow.session("classes", master="local[2]", config={"spark.ui.enabled": "false"})
    first, second = f"{folder}/first", f"{folder}/second"
    rows = spark.range(10).selectExpr("id", "string(id) AS text", "id % 2 AS part")
    rows.write.format("delta").partitionBy("part").save(first)
    stream = spark.readStream.format("delta").load(first).writeStream.format("delta")
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    stream.start(second).awaitTermination()
    table = DeltaTable.forPath(spark, second)
    merge = table.alias("t").merge(spark.range(5, 15).alias("s"), "t.id = s.id")
    merge.whenMatchedDelete().whenNotMatchedInsert(values={"id": "s.id"}).execute()
    table.update("id = 1", {"text": "'one'"})
    spark.sql(f"SELECT part, count(*) FROM delta.`{second}` GROUP BY part ORDER BY part").collect()
    spark.stop()


if __name__ == "__main__":
    make()
