"""A Spark process that carries out operations on tables beside others (`carry_out`).

Its arguments are a jar or "", and Hadoop's settings as JSON: how it reaches the tests' object store.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The tests are no package that is installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from pyspark.sql import DataFrame, SparkSession

import deltaflow
from deltaflow import DeltaTable
from deltaflow.log import DeltaLog
from tests.batch.random_operations import SCHEMA, merge_of
from tests.races.jobs import Job, carry_out
from tests.races.operations import Operation
from tests.tables import INTERPRETED

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class SparkWriter:
    """Carries out operations by deltaflow."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self.spark = spark
        self.path = job.path
        self.features = job.features
        self.retention_hours = job.retention_hours

    def newest(self) -> int:
        return DeltaLog.for_table(self.path).snapshot().version

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.path)

    def frame(self, rows: list[tuple[object, ...]], schema: str, files: int) -> DataFrame:
        return self.spark.createDataFrame(rows, schema).repartition(files)

    def write(self, frame: DataFrame, mode: str, **options: str) -> None:
        writer = frame.write.format("delta").mode(mode).options(**options)
        if self.features.by_partition:
            writer = writer.partitionBy("p")
        writer.save(self.path)

    def run(self, operation: Operation) -> None:
        self.spark.conf.set(_USER_METADATA, operation.id)
        where, sql, name = operation.where.sql, self.spark.sql, f"delta.`{self.path}`"
        new = self.frame(list(operation.rows), SCHEMA, operation.files) if operation.rows else None
        match operation.kind:
            case "append" if operation.in_sql:
                new.createOrReplaceTempView("new")
                sql(f"INSERT INTO {name} (id, p, v) SELECT id, p, v FROM new")
            case "append":
                self.write(new, "append")
            case "widen":
                rows = self.frame(operation.widened, f"{SCHEMA}, x LONG", operation.files)
                self.write(rows, "append", mergeSchema="true")
            case "copy":
                rows = self.spark.read.format("delta").load(self.path).where(operation.copied)
                self.write(rows.selectExpr("id + 100 AS id", "p", "v"), "append")
            case "overwrite":
                self.write(new, "overwrite")
            case "replace":
                rows = new or self.frame([], SCHEMA, 1)
                self.write(rows, "overwrite", replaceWhere=where)
            case "replace partitions":
                self.write(new, "overwrite", partitionOverwriteMode="dynamic")
            case "update":
                values = {"v": "v + 1", **({"p": f"'{operation.part}'"} if operation.part else {})}
                if operation.in_sql:
                    assignments = ", ".join(f"{column} = {value}" for column, value in values.items())
                    sql(f"UPDATE {name} SET {assignments} WHERE {where}")
                else:
                    self.table.update(where, values)
            case "delete" if operation.in_sql:
                sql(f"DELETE FROM {name} WHERE {where}")
            case "delete":
                self.table.delete(where)
            case "merge":
                merge_of(self.table, new, operation.where, operation.clauses).execute()
            case "compact":
                builder = self.table.optimize()
                if self.features.by_partition and operation.in_sql:
                    builder = builder.where("p = 'a'")
                builder.executeCompaction()
            case "cluster":
                self.table.optimize().executeZOrderBy("id", "v")
            case "purge":
                sql(f"REORG TABLE {name} APPLY (PURGE)")
            case "vacuum":
                self.table.vacuum(self.retention_hours)
            case "restore":
                newest = self.newest()
                self.table.restoreToVersion(min(newest, max(newest - operation.back, 1)))
            case "add x":
                sql(f"ALTER TABLE {name} ADD COLUMN x LONG")
            case "drop x":
                sql(f"ALTER TABLE {name} DROP COLUMN x")
            case "set x":
                sql(f"UPDATE {name} SET x = id WHERE {where}")
            case "x to y" | "y to x":
                old, new_name = operation.kind.split(" to ")
                sql(f"ALTER TABLE {name} RENAME COLUMN {old} TO {new_name}")
            case "overwrite schema":
                rows = self.frame(operation.widened, f"{SCHEMA}, x LONG", operation.files)
                self.write(rows if operation.in_sql else rows.drop("x"), "overwrite", overwriteSchema="true")
            case "append longs":
                rows = self.frame(operation.longs, "id LONG, p STRING, v LONG", operation.files)
                self.write(rows, "append", mergeSchema="true")
            case "longs":
                sql(f"ALTER TABLE {name} ALTER COLUMN v TYPE LONG")
            case "note" | "feed" | "vectors":
                key, value = operation.setting
                sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{value}')")
            case other:
                raise AssertionError(other)


def session(jar: str, settings: dict[str, str]) -> SparkSession:
    """A small session that reaches the tests' object store, if there is a jar of it."""
    return deltaflow.session(
        "races",
        master="local[1]",
        config={
            **({"spark.jars": jar} if jar else {}),
            **{f"spark.hadoop.{name}": value for name, value in settings.items()},
            **INTERPRETED,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        },
    )


if __name__ == "__main__":
    own_session = session(sys.argv[1], json.loads(sys.argv[2]))
    own_session.sparkContext.setLogLevel("ERROR")
    carry_out(lambda job: SparkWriter(own_session, job))
