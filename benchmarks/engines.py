"""deltaflow beside delta-spark, which runs in processes of its own, from a jar of the user's.

    python benchmarks/engines.py --delta-jar JAR[,JAR…] [--rows 5000000] [--repeats 5] [--rounds 2]
                                 [--directory DIR]

The jars are those of delta-spark and delta-storage for the PySpark that is installed. Both engines run the
same statements over tables of their own: a process for each, in turn (A B, then B A), which measures each
workload after a warm-up. Prints medians of all rounds and their ratios; there is no bound.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from figures import Report
from pyspark.sql import SparkSession
from side_by_side import BATCHES, SETTINGS, WARM_UP_BATCHES, data, micro_batches, read_all, session, timed

FILES = 8
ENGINES = ("deltaflow", "delta-spark")


def session_of(engine: str, jars: str) -> SparkSession:
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "200", "spark.log.level": "FATAL"}
    if engine == "deltaflow":
        return session(settings)
    settings |= {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    return SparkSession.builder.master("local[2]").config(map={**SETTINGS, **settings}).getOrCreate()


def measure(spark: SparkSession, directory: Path, rows: int, repeats: int) -> Mapping[str, list[float]]:
    """Milliseconds of each run of each workload."""
    found: dict[str, list[float]] = {}

    def note(name: str, run: Callable[[], float], warm_up: int = 2) -> None:
        found[name] = [1_000 * run() for _ in range(warm_up + repeats)][warm_up:]

    for vectors in ("false", "true"):
        table = directory / f"vectors-{vectors}"
        writer = data(spark, rows).repartition(FILES).write.format("delta")
        writer.option("delta.enableDeletionVectors", vectors).save(str(table))
        how = " by vectors" if vectors == "true" else ""
        source = f"(SELECT id, key, 0D AS amount, text FROM delta.`{table}` WHERE id % 100 = 0)"

        def on_a_copy(statement: str, table: Path = table) -> float:
            copy = directory / "copy"
            shutil.copytree(table, copy)
            try:
                return timed(lambda: spark.sql(statement.format(f"delta.`{copy}`")).collect())
            finally:
                shutil.rmtree(copy)

        for name, statement in {
            "DELETE of 0.02 %": "DELETE FROM {} WHERE pmod(key, 5000) = 7",
            "UPDATE of 0.1 %": "UPDATE {} SET amount = 0 WHERE pmod(key, 1000) = 7",
            "MERGE of 1 %": f"MERGE INTO {{}} t USING {source} s ON t.id = s.id + (s.id % 200) * {rows} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        }.items():
            note(name + how, lambda statement=statement: on_a_copy(statement))  # type: ignore[misc]
    table = directory / "vectors-false"
    note("scan", lambda: read_all(spark.read.format("delta").load(str(table))))
    note("count", lambda: timed(lambda: spark.read.format("delta").load(str(table)).count()))
    note(
        "write",
        lambda: timed(
            lambda: data(spark, rows).write.format("delta").mode("overwrite").save(str(directory / "written"))
        ),
    )
    row = data(spark, 1).coalesce(1).write.format("delta").mode("append")
    note("append of one row", lambda: timed(lambda: row.save(str(directory / "appended"))), warm_up=10)
    found["micro-batch into a table"] = [
        1_000 * s for s in micro_batches(spark, "delta", directory / "stream")
    ]
    found["micro-batch out of a table"] = out_of(spark, directory)
    return found


def out_of(spark: SparkSession, directory: Path) -> list[float]:
    """triggerExecution in milliseconds of a stream with a file in each batch."""
    path, number = str(directory / "many"), BATCHES + WARM_UP_BATCHES
    data(spark, number * 1_000).repartition(number).write.format("delta").save(path)
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    writer = reader.load(path).writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(directory / "read")).start()
    query.awaitTermination()
    return [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows][
        WARM_UP_BATCHES:
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delta-jar", required=True, help="one or more, with commas between")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    try:
        if arguments.engine is not None:
            spark = session_of(arguments.engine, arguments.delta_jar)
            print(json.dumps(measure(spark, directory, arguments.rows, arguments.repeats)))
            spark.stop()
            return 0
        found: dict[str, dict[str, list[float]]] = {engine: {} for engine in ENGINES}
        for round_number in range(arguments.rounds):
            for engine in ENGINES if round_number % 2 == 0 else reversed(ENGINES):
                command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
                command += ["--directory", str(directory)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                for name, took in json.loads(done.stdout.splitlines()[-1]).items():
                    found[engine].setdefault(name, []).extend(took)
        report = Report("engines")
        for name, took in found["deltaflow"].items():
            medians = [statistics.median(times) for times in (took, found["delta-spark"][name])]
            report.ratio(name, *medians, "ms", None, "delta-spark")
        return 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
