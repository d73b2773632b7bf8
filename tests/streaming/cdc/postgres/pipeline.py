"""Streams landed messages into Delta tables, in a process that a test kills. This is no test module.

Arguments: a folder with `landing`, for the targets and the checkpoints; `now` for what is there, `on` to
go on until the process is killed; the tables as `name:key,key`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deltaflow
from deltaflow.streaming.cdc import Debezium, apply_changes


def main(folder: Path, mode: str, tables: list[str]) -> None:
    """One stream for each table."""
    spark = deltaflow.session(
        "replica",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    queries = []
    for table in tables:
        name, keys = table.split(":")
        landing = folder / "landing" / f"public.{name}"
        landing.mkdir(parents=True, exist_ok=True)
        records = spark.readStream.option("maxFilesPerTrigger", 20).text(str(landing))
        writer = apply_changes(
            records,
            str(folder / "tables" / name),
            keys=keys.split(","),
            envelope=Debezium(table=f"public.{name}"),
        )
        writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name))
        queries.append((writer.trigger(availableNow=True) if mode == "now" else writer).start())
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
