"""Micro-batches of the sink and the source on a remote file system beside those of Spark's Parquet files.

    python benchmarks/remote_streams.py [--store objects|webhdfs] [--latency-ms 20] [--batches 60]

The file system is a server of the tests in a process of its own, which answers each request that much later:
an object store (moto, behind the connector of tests/object_store) or WebHDFS. Tables, Parquet files and their
logs are there; the checkpoints of all streams are on the local disk, so that the figures are of the formats
alone. Otherwise it measures as benchmarks/streams.py does. Exits with 1 if a ratio exceeds its bound.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the servers, which are the tests'

from side_by_side import session  # noqa: E402
from streams import ROWS_PER_BATCH, Batches, Steps, take_turns  # noqa: E402

from tests.jvm import java_sources, write_jar  # noqa: E402
from tests.object_store.server import object_store_settings  # noqa: E402

BOUND = 1.0
SEGMENT = 20


@contextmanager
def served(store: str, latency_ms: float, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a directory on a server, and Spark's settings for it."""
    place = [str(directory)] if store == "webhdfs" else []
    module = "tests.webhdfs" if store == "webhdfs" else "tests.object_store.server"
    command = [sys.executable, "-m", module, *place, str(latency_ms)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        printed = server.stdout.readline().split()
        if store == "webhdfs":
            yield printed[0], {}
        else:
            endpoint, bucket = printed
            jar = write_jar(directory / "object-store.jar", java_sources(ROOT / "tests/object_store"))
            settings = object_store_settings(endpoint)
            yield (
                f"s3a://{bucket}",
                {
                    "spark.jars": str(jar),
                    **{f"spark.hadoop.{name}": value for name, value in settings.items()},
                },
            )
        server.terminate()


def run(spark: SparkSession, url: str, local: Path, batches: int) -> bool:
    def rows() -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch")
        return reader.option("rowsPerBatch", ROWS_PER_BATCH).option("numPartitions", 1).load()

    def sink(format_name: str) -> Batches:
        def start() -> Any:
            writer = rows().writeStream.format(format_name)
            return writer.option("checkpointLocation", str(local / f"sink-{format_name}")).start(
                f"{url}/sink-{format_name}"
            )

        return Batches(f"sink {format_name}", start)

    def source(name: str, frame: Any) -> Batches:
        def start() -> Any:
            writer = frame().writeStream.format("noop")
            return writer.option("checkpointLocation", str(local / f"source-{name}")).start()

        return Batches(f"source {name}", start)

    delta, parquet = sink("delta"), sink("parquet")
    steps = Steps()
    results = [take_turns(delta, parquet, batches, SEGMENT, BOUND)]
    steps.show(delta)

    table = spark.read.format("delta").load(f"{url}/sink-delta")
    _copy(spark, table.inputFiles(), f"{url}/files")

    def delta_files() -> DataFrame:
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        return reader.load(f"{url}/sink-delta")

    def parquet_files() -> DataFrame:
        reader = spark.readStream.schema(table.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{url}/files")

    of_delta, of_parquet = source("delta", delta_files), source("parquet", parquet_files)
    results.append(take_turns(of_delta, of_parquet, batches - SEGMENT, SEGMENT, BOUND))
    return all(results)


def _copy(spark: SparkSession, files: list[str], folder: str) -> None:
    """Copies files into a folder of their file system."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop = jvm.org.apache.hadoop.fs
    target = hadoop.Path(folder)
    system = target.getFileSystem(configuration)
    system.mkdirs(target)
    for file in files:
        source = hadoop.Path(file)
        copy = hadoop.Path(f"{folder}/{source.getName()}")
        hadoop.FileUtil.copy(system, source, system, copy, False, configuration)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=["objects", "webhdfs"], default="objects")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--batches", type=int, default=60)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-"))
    (directory / "served").mkdir()
    try:
        with served(arguments.store, arguments.latency_ms, directory / "served") as (url, settings):
            quiet = {"spark.log.level": "FATAL", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
            spark = session({**quiet, **settings})
            try:
                return 0 if run(spark, url, directory, arguments.batches) else 1
            finally:
                spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
