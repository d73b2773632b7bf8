"""What a driver does on a cluster, below a root that all processes share; it prints what it found as JSON.

spark-submit … scenario.py ROOT
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import deltaflow
from deltaflow import DeltaTable, demo
from deltaflow.errors import DeltaError
from tests.cluster.standalone import STEP


class RemoteFolders(demo.Folders):
    """The demo's folders below a URL."""

    def __init__(self, root: str) -> None:
        self.landing = f"{root}/landing"
        self.flights = f"{root}/flights"
        self.delays = f"{root}/delays"
        self.checkpoints = f"{root}/checkpoints"

    def checkpoint(self, stream: str) -> str:
        return f"{self.checkpoints}/{stream}"


class Scenario:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root
        self.fares = f"{root}/fares"

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The jobs of the block are those of the step."""
        self.spark.sparkContext.setLocalProperty(STEP, name)
        try:
            yield
        finally:
            self.spark.sparkContext.setLocalProperty(STEP, "")

    def load(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)

    def rows(self, first: int, end: int, partitions: int = 4) -> DataFrame:
        return self.spark.range(first, end, 1, partitions).selectExpr(
            "id", "id % 2 AS half", "id * 10 AS cents"
        )

    def run_streams_of_the_demo(self) -> None:
        folders = RemoteFolders(self.root)
        with self.step("stream into a table"):
            arriving = demo.into_flights(self.spark, folders)
            arriving.processAllAvailable()
        with self.step("stream out of a table"):
            flights = self.spark.readStream.format("delta").load(folders.flights)
            leaving = demo.into_delays(flights, folders)
            leaving.processAllAvailable()
        for query in (arriving, leaving):
            query.stop()

    def write(self) -> None:
        with self.step("write"):
            self.rows(0, 4_000).write.format("delta").partitionBy("half").save(self.fares)
        with self.step("append"):
            for first in (4_000, 5_000):
                self.rows(first, first + 1_000).write.format("delta").mode("append").save(self.fares)
        with self.step("optimized write"):
            appended = self.rows(6_000, 7_000).write.format("delta").mode("append")
            appended.option("optimizeWrite", "true").save(self.fares)

    def read(self) -> dict[str, Any]:
        with self.step("read"):
            found = self.load(self.fares).where("id >= 5900").selectExpr("id", "_metadata.file_path AS file")
            rows = found.collect()
        return {"ids": len({row.id for row in rows}), "files": sorted({row.file for row in rows})}

    def change(self) -> None:
        table = DeltaTable.forPath(self.spark, self.fares)
        with self.step("merge"):
            fares = table.alias("fares").merge(self.rows(6_900, 7_100).alias("new"), "fares.id = new.id")
            updating = fares.whenMatchedUpdate(set={"cents": "new.cents + 1"})
            updating.whenNotMatchedInsertAll().execute()
        with self.step("update"):
            self.spark.sql(f"UPDATE delta.`{self.fares}` SET cents = 0 WHERE id < 10")
        with self.step("delete"):
            self.spark.sql(f"DELETE FROM delta.`{self.fares}` WHERE id BETWEEN 10 AND 19")

    def maintain(self) -> dict[str, Any]:
        table = DeltaTable.forPath(self.spark, self.fares)
        with self.step("optimize"):
            table.optimize().executeCompaction()
        self.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        with self.step("vacuum"):
            self.spark.sql(f"VACUUM delta.`{self.fares}` RETAIN 0 HOURS")
        self.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
        there = self.spark.read.format("binaryFile").option("recursiveFileLookup", True).load(self.fares)
        return {"files": len(self.load(self.fares).inputFiles()), "there": there.count()}

    def stream(self, source: DataFrame, target: str, name: str) -> StreamingQuery:
        writer = source.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{self.root}/checkpoints/{name}")
        if name == "quarantine":
            writer = writer.option("quarantinePath", f"{self.root}/aside")
        query = writer.start(target)
        query.awaitTermination()
        return query

    def quarantine(self) -> dict[str, Any]:
        tiny = f"{self.root}/tiny"
        self.spark.range(0).selectExpr("CAST(id AS TINYINT) AS id").write.format("delta").save(tiny)
        with self.step("quarantine"):
            source = self.spark.readStream.format("delta").load(self.fares).where("id < 200").select("id")
            self.stream(source.repartition(4), tiny, "quarantine")
        return {"accepted": self.load(tiny).count(), "refused": self.load(f"{self.root}/aside").count()}

    def violate(self) -> dict[str, Any]:
        with self.step("constraint"):
            self.spark.sql(f"ALTER TABLE delta.`{self.fares}` ADD CONSTRAINT known CHECK (cents >= 0)")
            try:
                rows = self.rows(8_000, 8_100).selectExpr("id", "half", "IF(id = 8042, -1, cents) AS cents")
                rows.write.format("delta").mode("append").save(self.fares)
            except DeltaError as error:
                return {"error": type(error).__name__, "message": str(error)}
        return {"error": None}

    def use_names(self) -> dict[str, Any]:
        """Tables by name, and by a path without a scheme, which is one of the default file system."""
        with self.step("tables by name"):
            self.rows(0, 400).write.format("delta").saveAsTable("named")
            self.spark.sql("INSERT INTO named SELECT id + 400, half, cents FROM named")
            self.spark.sql("DELETE FROM named WHERE half = 1 AND id < 4")
            self.rows(0, 4).write.format("delta").save("/short")
        found = self.spark.sql("DESCRIBE DETAIL named").first()
        assert found is not None
        return {"location": found.location, "rows": self.spark.table("named").count()}

    def use_an_object_store(self, objects: str) -> None:
        """A stream from one file system into the other, with its checkpoint in the first one, and a MERGE."""
        copy = f"{objects}/copy"
        with self.step("stream into an object store"):
            self.stream(self.spark.readStream.format("delta").load(self.fares).repartition(4), copy, "copy")
        with self.step("merge on an object store"):
            table = DeltaTable.forPath(self.spark, copy).alias("copy")
            merge = table.merge(self.rows(7_090, 7_110).alias("new"), "copy.id = new.id")
            merge.whenMatchedUpdate(set={"cents": "new.cents + 1"}).whenNotMatchedInsertAll().execute()

    def executors(self) -> dict[str, Any]:
        """What the executors' JVMs know of deltaflow, and what was sent to them."""

        def values(name: str) -> list[str]:
            value = f"java_method('java.lang.System', 'getProperty', '{name}', 'absent')"
            # 1000 * rand() keeps the optimizer from working it out on the driver.
            frame = self.spark.range(0, 8, 1, 8).selectExpr(f"IF(1000 * rand() >= 0, {value}, '') AS value")
            return sorted({row.value for row in frame.collect()})

        context = self.spark.sparkContext._jsc.sc()
        return {
            "sources": values("io.deltaflow.spark.sources"),
            "class_paths": values("java.class.path"),
            "folders": values("user.dir"),
            "sent": [*_listed(context.listJars()), *_listed(context.listArchives())],
        }


def _listed(urls: Any) -> list[str]:
    return [urls.apply(position) for position in range(urls.size())]


def own_files() -> list[str]:
    """What this process and its JVM have in their folder for temporary files."""
    folder = Path(tempfile.gettempdir())
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def main(root: str, objects: str) -> None:
    config = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = deltaflow.session("cluster", config=config)
    scenario = Scenario(spark, root)
    scenario.run_streams_of_the_demo()
    scenario.write()
    found = {"read": scenario.read()}
    scenario.change()
    found |= {"maintained": scenario.maintain(), "quarantine": scenario.quarantine()}
    found |= {"violation": scenario.violate(), "named": scenario.use_names()}
    scenario.use_an_object_store(objects)
    found |= {"executors": scenario.executors(), "own_files": own_files()}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
