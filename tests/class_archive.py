"""Spark's classes in one jar, and an archive of those that a session loads, which JVMs map.

    python -m tests.class_archive

makes both, unless the environment of this Python has them. They are for tests alone: a user's session has
Spark's 280 jars. A JVM looks into each of them for a class that is in none, and Spark's compiler of queries
and py4j ask for many such names: 239 tests of writes and streams took 150 s with one jar, and with 280 of
them 181 s on Java 17, 159 s on Java 21. Many tests start a JVM: they kill it, or need settings of their own.
One that writes, reads and updates a table took 7.3 to 9.2 s of CPU with the archive, and 11.8 to 16.6 s
without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Every run of pytest imports this module, and many need no Spark: PySpark is found, and not imported.
_PYSPARK = find_spec("pyspark")
assert _PYSPARK is not None
assert _PYSPARK.origin is not None
SPARK_JARS = Path(_PYSPARK.origin).parent / "jars"
_JAR = Path(sys.prefix, f"spark-{version('pyspark')}.jar")
_ARCHIVE = _JAR.with_suffix(".jsa")
# Log4j and DataNucleus look for a file in each of their jars. RocksDB's has 200 MB of libraries.
_OWN_JARS = ("datanucleus-", "log4j-", "rocksdbjni-")
# Settings of MapReduce and YARN: 721 of the 1,119 that each job would copy and serialise anew.
_LEFT_OUT = ("mapred-default.xml", "yarn-default.xml")
_CLASS_PATH = ":".join(
    [str(_JAR), *(str(jar) for each in _OWN_JARS for jar in sorted(SPARK_JARS.glob(f"{each}*.jar")))]
)
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
    """Makes the jar and the archive, unless they are there."""
    if _ARCHIVE.exists():
        return
    from tests.jvm import java_program

    java = java_program()
    _write_jar()
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder, "classes")
        flags = (*_FLAGS, f"-XX:DumpLoadedClassList={classes}", f"-cp {_CLASS_PATH}")
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


def _write_jar() -> None:
    """Writes the jar: of entries with one name the first, as on a class path, but all lists of services.
    Nothing is compressed: JVMs read more of it than is written once."""
    services: defaultdict[str, list[bytes]] = defaultdict(list)
    written = {"META-INF/MANIFEST.MF", "META-INF/INDEX.LIST"}
    made = _JAR.with_suffix(".new")
    with zipfile.ZipFile(made, "w") as whole:
        whole.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMulti-Release: true\n")
        for path in sorted(SPARK_JARS.glob("*.jar")):
            if path.name.startswith(_OWN_JARS):
                continue
            with zipfile.ZipFile(path) as jar:
                for name in jar.namelist():
                    if name in written or name.endswith((".SF", ".DSA", ".RSA")) or name in _LEFT_OUT:
                        continue
                    if name.startswith("META-INF/services/") and not name.endswith("/"):
                        services[name].append(jar.read(name))
                    else:
                        whole.writestr(name, jar.read(name))
                        written.add(name)
        for name, parts in services.items():
            whole.writestr(name, b"\n".join(parts))
    made.replace(_JAR)


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
