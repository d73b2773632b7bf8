"""What a client of Spark Connect does below a folder of the server; it prints what it found as JSON.

client.py tables|operations|streams URL ROOT
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

import deltaflow
from deltaflow.connect import DeltaTable
from deltaflow.errors import DeltaError
from deltaflow.streaming import apply_changes

APPENDS = 4
"""Of each of the clients to one table, at the same time."""


def values(frame: DataFrame) -> list[list[Any]]:
    return sorted([list(row) for row in frame.collect()], key=str)


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """What a client sees of an error."""
    try:
        call()
    except (DeltaError, PySparkException) as error:
        return {
            "class": type(error).__name__,
            "condition": error.getCondition(),
            "sqlState": error.getSqlState(),
            "message": str(error),
        }
    return {}


class Client:
    def __init__(self, spark: SparkSession, url: str, root: str) -> None:
        self.spark = spark
        self.url = url
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def load(self, name: str, **options: Any) -> DataFrame:
        return self.spark.read.format("delta").options(**options).load(self.path(name))

    def append(self, name: str, first: int, end: int) -> None:
        rows = self.spark.range(first, end, 1, 1).selectExpr("id", "id % 2 AS kind")
        rows.write.format("delta").mode("append").save(self.path(name))

    def append_to_the_shared_table(self, first: int) -> None:
        for number in range(APPENDS):
            self.append("shared", first + number, first + number + 1)


class Tables(Client):
    def run(self) -> dict[str, Any]:
        self.append_to_the_shared_table(0)
        steps = (
            self.batch,
            self.names,
            self.rules,
            self.merge,
            self.builders,
            self.surface,
            self.errors,
            self.tokens,
        )
        return {step.__name__: step() for step in steps}

    def batch(self) -> dict[str, Any]:
        self.append("batch", 0, 10)
        self.append("batch", 10, 20)
        return {
            "rows": self.load("batch").count(),
            "odd": self.load("batch").where("kind = 1").count(),
            "before": self.load("batch", versionAsOf=0).count(),
        }

    def names(self) -> dict[str, Any]:
        spark = self.spark
        spark.sql("CREATE TABLE named (id BIGINT, text STRING) USING delta")
        spark.sql("INSERT INTO named VALUES (1, 'a'), (2, 'b')")
        spark.sql(f"UPDATE delta.`{self.path('batch')}` SET kind = 9 WHERE id = 19")
        spark.table("named").write.format("delta").saveAsTable("copy_of_named")
        spark.sql("DELETE FROM copy_of_named WHERE id = 1")
        return {
            "named": values(spark.table("named")),
            "copy": values(spark.sql("SELECT * FROM copy_of_named")),
            "operations": [
                row.operation
                for row in spark.sql("DESCRIBE HISTORY copy_of_named").orderBy("version").collect()
            ],
            "before": values(spark.sql("SELECT * FROM copy_of_named VERSION AS OF 0")),
        }

    def rules(self) -> dict[str, Any]:
        """What deltaflow adds to the planner and the optimizer of a session."""
        spark = self.spark
        spark.sql("CREATE TABLE parts (id BIGINT, p INT) USING delta PARTITIONED BY (p)")
        spark.sql("INSERT INTO parts VALUES (1, 1), (2, 2)")
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        spark.sql("INSERT OVERWRITE parts VALUES (3, 2)")
        with contextlib.redirect_stdout(io.StringIO()) as plan:
            spark.sql("SELECT count(*) FROM parts").explain()
        return {"rows": values(spark.table("parts")), "count_reads_files": "FileScan" in plan.getvalue()}

    def merge(self) -> dict[str, Any]:
        spark = self.spark
        columns = "id BIGINT, text STRING, n INT"
        spark.createDataFrame([(1, "a", 1), (2, "b", 2), (3, "c", 3)], columns).write.format("delta").save(
            self.path("merged")
        )
        source = spark.createDataFrame([(2, "{x} it's\\", 20), (4, "d", 40), (5, "e", -1)], columns)
        done = (
            DeltaTable.forPath(spark, self.path("merged"))
            .alias("t")
            .merge(source.alias("s"), (F.col("t.id") == F.col("s.id")) & ~F.col("s.text").isin("{y}", "z'"))
            .whenMatchedUpdate(set={"text": F.concat("s.text", F.lit("{!}'\\")), "n": "s.n + t.n -- the sum"})
            .whenNotMatchedInsert(
                F.col("s.n").cast("double") > 0.5,
                {"id": "s.id", "text": F.when(F.col("s.n") > 9, "big").otherwise("small"), "n": F.lit(None)},
            )
            .whenNotMatchedBySourceDelete("t.id = 3")
            .execute()
        )
        evolved = spark.createDataFrame([(1, "z")], "id BIGINT, added STRING")
        by_path = DeltaTable.forPath(spark, self.path("merged"))
        merging = by_path.alias("t").merge(evolved.alias("s").where("id > 0").distinct(), "t.id = s.id")
        merging.withSchemaEvolution().whenMatchedUpdateAll().execute()
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW changes AS SELECT 4 AS id")
        merging_in_sql = f"MERGE INTO delta.`{self.path('merged')}` t USING changes s ON t.id = s.id"
        spark.sql(f"{merging_in_sql} WHEN MATCHED THEN DELETE")
        self.append("merged_into", 0, 3)
        name = f"delta.`{self.path('merged_into')}`"
        marked = spark.range(1, 5).withColumn("kind", F.lit(7)).alias("s")
        into = marked.mergeInto(name, F.expr(f"s.id = {name}.id")).whenMatched().update({"kind": F.lit(9)})
        into.whenNotMatched(F.col("s.id") == 3).insertAll().whenNotMatchedBySource().delete().merge()
        return {
            "done": done.first().asDict(),
            "rows": values(self.load("merged")),
            "into": values(self.load("merged_into")),
            "views": [view.name for view in spark.catalog.listTables() if view.isTemporary],
        }

    def builders(self) -> dict[str, Any]:
        inner = StructType(
            [StructField("x", LongType(), False, {"comment": "it's"}), StructField("a-b", StringType())]
        )
        built = (
            DeltaTable.create(self.spark)
            .location(self.path("built"))
            .addColumn("id", "INT", nullable=False, comment="a key")
            .addColumns(StructType([StructField("list", ArrayType(inner))]))
            .addColumn("p", StringType())
            .partitionedBy("p")
            .comment("all of it's")
            .property("delta.appendOnly", "true")
            .execute()
        )
        detail = built.detail().first()
        DeltaTable.createIfNotExists(self.spark).location(self.path("built")).addColumn(
            "other", "INT"
        ).execute()
        replaced = (
            DeltaTable.createOrReplace(self.spark).tableName("built_by_name").addColumn("x", "INT").execute()
        )
        return {
            "schema": built.toDF().schema.jsonValue(),
            "partitions": detail.partitionColumns,
            "description": detail.description,
            "properties": detail.properties,
            "replaced": replaced.toDF().columns,
            "refused": error_of(
                lambda: DeltaTable.create().addColumns([StructField("a", ArrayType(LongType(), False))])
            ),
        }

    def surface(self) -> dict[str, Any]:
        """What the names of deltaflow itself do for a client."""
        spark, path = self.spark, self.path("batch")
        return {
            "registered": deltaflow.register(spark) is spark,
            "is_table": [deltaflow.DeltaTable.isDeltaTable(spark, name) for name in (path, self.root)],
            "class": type(deltaflow.DeltaTable.forPath(spark, path)).__module__,
            "named": type(
                deltaflow.DeltaTable.forName(sparkSession=spark, tableOrViewName="named")
            ).__module__,
            "builder": type(deltaflow.DeltaTable.create(spark)).__module__,
            "active": type(deltaflow.DeltaTable.create()).__module__,
            "no_jvm": SparkContext._gateway is None,
        }

    def errors(self) -> dict[str, Any]:
        spark = self.spark
        table = DeltaTable.forPath(spark, self.path("batch"))
        last = F.udf(lambda x: x, "long")
        calls: dict[str, Callable[[], Any]] = {
            "load": lambda: self.load("nothing").collect(),
            "forPath": lambda: DeltaTable.forPath(spark, self.path("nothing")),
            "forName": lambda: DeltaTable.forName(spark, "no_such_table"),
            "schema": lambda: (
                spark.range(1)
                .selectExpr("'x' AS id")
                .write.format("delta")
                .mode("append")
                .save(self.path("batch"))
            ),
            "version": lambda: self.load("batch", versionAsOf=99).collect(),
            "checkpoints": lambda: table.vacuum(checkpoints=[self.path("checkpoint")]),
            "udf": lambda: table.delete(last("id") == 1),
            "column": lambda: table.delete(table.toDF()["id"] == 1),
            "itself": lambda: table.clone(self.path("batch"), replace=True),
            "nothing": lambda: table.merge(spark.range(1), "true").execute(),
            "apply_changes": lambda: apply_changes(
                spark.readStream.format("delta").load(self.path("batch")),
                self.path("replica"),
                keys="id",
                sequence_by="id",
            ),
            "condition": lambda: spark.sql(f"DELETE FROM delta.`{self.path('batch')}` WHERE nope = 1"),
        }
        return {name: error_of(call) for name, call in calls.items()}

    def tokens(self) -> dict[str, Any]:
        """What a client with another token gets."""
        url = self.url.split("/;")[0]
        return error_of(
            lambda: SparkSession.builder.remote(f"{url}/;token=another").create().range(1).count()
        )


class Operations(Client):
    def run(self) -> dict[str, Any]:
        return {"literals": self.literals(), "operations": self.operations()}

    def literals(self) -> list[Any]:
        """What is left after deletes by Columns, if the server's parser reads escapes and if not."""
        spark = self.spark
        texts = ["it's", "a\\b", "a\\\\b", "it\\'s", "c"]
        left = []
        for escaped in ("false", "true"):
            spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
            rows = spark.createDataFrame(
                [(text, -1, {text: 1}) for text in texts], "s STRING, n INT, m MAP<STRING, INT>"
            )
            rows.write.format("delta").save(self.path(f"literals_{escaped}"))
            table = DeltaTable.forPath(spark, self.path(f"literals_{escaped}"))
            table.delete(
                (F.col("s") == "it's")
                | F.col("s").isin("a\\b")
                | (F.col("m")["c"] == -F.col("n"))
                | (F.col("s").isin([]) | (-F.lit(-1) == F.col("n")))
            )
            left.append(sorted(row.s for row in table.toDF().collect()))
            table.delete(F.col("m")["a\\\\b"] == 1)
            left.append([row.s for row in table.toDF().collect()])
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
        return left

    def operations(self) -> dict[str, Any]:
        spark = self.spark
        for first in range(0, 30, 10):
            self.append("operated", first, first + 10)
        table = DeltaTable.forPath(spark, self.path("operated"))
        table.update(F.col("id") == 3, {"kind": F.col("kind") + 10})
        table.alias("t").update("t.id = 4", {"kind": "t.kind + 20"})
        table.delete(F.col("id").between(20, 24) | (F.col("id") == F.lit(29)))
        compacted = table.optimize().executeCompaction().first()
        ordered = table.optimize().executeZOrderBy("id").first()
        history = table.history(2)
        detail = table.detail().first()
        restored = table.restoreToVersion(0).first()
        table.addConstraint("few", "kind < 100")
        violation = error_of(
            lambda: spark.sql(f"INSERT INTO delta.`{self.path('operated')}` VALUES (99, 100)")
        )
        table.dropConstraint("few")
        table.generate("symlink_format_manifest")
        table.upgradeTableProtocol(1, 3)
        table.addFeatureSupport("checkConstraints")
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        unneeded = table.vacuum(0, dryRun=True)
        inventory = spark.createDataFrame(
            [(row.path, 1, False, 0) for row in unneeded.collect()],
            "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT",
        )
        lite = table.vacuum(0, dryRun=True, lite=True).count()
        listed = table.vacuum(0, dryRun=True, inventory=inventory).count()
        deleted = unneeded.count(), table.vacuum(0).count(), table.vacuum(0, dryRun=True).count()
        clone = table.clone(self.path("clone"), isShallow=True, properties={"mine": "it's"})
        missing = table.repair(dryRun=True).count(), table.repair().count()
        deep = table.clone(self.path("deep"))
        older = table.cloneAtVersion(1, "cloned_by_name", isShallow=True)
        spark.range(3).selectExpr("id", "id AS part").write.partitionBy("part").parquet(self.path("parquet"))
        by = StructType([StructField("part", LongType())])
        converted = DeltaTable.convertToDelta(spark, f"parquet.`{self.path('parquet')}`", by)
        return {
            "compacted": compacted.metrics.numFilesRemoved,
            "ordered": ordered.metrics.numFilesRemoved,
            "history": [row.operation for row in history.orderBy("version").collect()],
            "format": detail.format,
            "restored": restored.num_restored_files,
            "violation": violation,
            "manifest": Path(self.path("operated"), "_symlink_format_manifest", "manifest").exists(),
            "protocol": table.detail().first().minWriterVersion,
            "columns": unneeded.columns,
            "deleted": deleted,
            "found": (lite, listed),
            "clone": clone.toDF().count(),
            "missing": missing,
            "deep": deep.toDF().count(),
            "property": clone.detail().first().properties["mine"],
            "older": older.toDF().count(),
            "converted": values(converted.toDF()),
        }


class Streams(Client):
    def run(self) -> dict[str, Any]:
        self.append_to_the_shared_table(100)
        return {
            step.__name__: step()
            for step in (self.tables, self.changes, self.batches, self.functions, self.artifacts)
        } | {"left": self.leave_one_running()}

    def stream(self, source: str, target: str) -> Any:
        frame = self.spark.readStream.format("delta").load(self.path(source))
        writer = frame.writeStream.format("delta").option(
            "checkpointLocation", self.path(f"checkpoint-{target}")
        )
        query = writer.trigger(availableNow=True).start(self.path(target))
        query.awaitTermination()
        return query

    def tables(self) -> dict[str, Any]:
        """From a table into a table, and on from the checkpoint."""
        self.append("source", 0, 10)
        first = self.stream("source", "target")
        self.append("source", 10, 15)
        second = self.stream("source", "target")
        history = DeltaTable.forPath(self.spark, self.path("target")).history().orderBy("version")
        return {
            "rows": [row.id for row in self.load("target").orderBy("id").collect()],
            "input": [
                sum(part.numInputRows or 0 for part in query.recentProgress) for query in (first, second)
            ],
            "same": first.id == second.id,
            "outstanding": second.lastProgress.sources[0].metrics.get("numFilesOutstanding"),
            "epochs": [row.operationParameters.get("epochId") for row in history.collect()],
        }

    def changes(self) -> list[Any]:
        """The change rows of a table, into a table."""
        table = f"delta.`{self.path('changing')}`"
        self.spark.sql(
            f"CREATE TABLE {table} (id BIGINT) USING delta TBLPROPERTIES "
            "(delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true)"
        )
        self.spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
        self.spark.sql(f"DELETE FROM {table} WHERE id = 1")
        reader = self.spark.readStream.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", 1).load(self.path("changing")).drop("_commit_timestamp")
        writer = frame.writeStream.format("delta").option(
            "checkpointLocation", self.path("checkpoint-changed")
        )
        writer.trigger(availableNow=True).start(self.path("changed")).awaitTermination()
        return sorted(list(row) for row in self.load("changed").collect())

    def batches(self) -> dict[str, Any]:
        """foreachBatch, which runs in a process of the server with a client of its own."""
        target = self.path("upserted")
        self.append("upserted", 0, 5)

        def upsert(batch: DataFrame, batch_id: int) -> None:
            from deltaflow.connect import DeltaTable

            table = DeltaTable.forPath(batch.sparkSession, target).alias("t")
            merge = table.merge(batch.alias("s"), "t.id = s.id")
            merge.whenMatchedUpdate(set={"kind": f"{batch_id} + 100"}).whenNotMatchedInsertAll().execute()

        frame = self.spark.readStream.format("delta").load(self.path("source")).where("id > 2")
        writer = frame.writeStream.foreachBatch(upsert).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self.path("checkpoint-upserted")).start()
        query.awaitTermination()
        return {"rows": values(self.load("upserted")), "error": str(query.exception())}

    def functions(self) -> dict[str, Any]:
        """Functions of Python, on their way into a table and in a MERGE."""
        spark = self.spark
        doubled = F.udf(lambda x: 2 * x, "long")
        spark.range(3).select(doubled("id").alias("id")).write.format("delta").save(self.path("doubled"))
        spark.udf.register("thrice", lambda x: None if x is None else 3 * x, "long")
        table = DeltaTable.forPath(spark, self.path("doubled")).alias("t")
        merge = table.merge(spark.range(3).alias("s"), "t.id = s.id")
        merge.whenMatchedUpdate(set={"id": "thrice(s.id)"}).execute()
        return {"rows": values(self.load("doubled"))}

    def artifacts(self) -> dict[str, Any]:
        """A module that the client brings along."""
        with tempfile.TemporaryDirectory() as folder:
            module = Path(folder, "brought_along.py")
            module.write_text("def add(x):\n    return x + 1000\n")
            self.spark.addArtifacts(str(module), pyfile=True)

        def added(x: int) -> int:
            import brought_along

            return brought_along.add(x)

        rows = self.load("source").where("id < 2").select(F.udf(added, "long")("id"))
        return {"rows": values(rows)}

    def leave_one_running(self) -> dict[str, Any]:
        """A stream that the client starts, and does not stop."""
        frame = self.spark.readStream.format("delta").load(self.path("source"))
        writer = frame.writeStream.format("delta").option("checkpointLocation", self.path("checkpoint-left"))
        query = writer.trigger(processingTime="0 seconds").start(self.path("left"))
        query.processAllAvailable()
        return {"active": query.isActive}


def main(name: str, url: str, root: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    print("ready", flush=True)
    input()
    client = {"tables": Tables, "operations": Operations, "streams": Streams}[name](spark, url, root)
    print(json.dumps(client.run()))


if __name__ == "__main__":
    main(*sys.argv[1:])
