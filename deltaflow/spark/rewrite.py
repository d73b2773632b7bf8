"""Runs a rewrite of a table's files from Python (one that follows a commit, the JVM runs by itself)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from deltaflow.spark.write import FileRewrite, keep_rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_rewrite(spark: SparkSession, rewrite: FileRewrite) -> None:
    """Has Spark write the new files, which the rewrite then commits; raises what failed it."""
    jvm: Any = spark.sparkContext._jvm
    bridge = jvm.io.deltaflow.spark
    handle = bridge.Python.newHandle()
    keep_rewrite(handle, rewrite)
    request = msgspec.json.encode(rewrite.request(handle)).decode()
    bridge.Rewrites.run(spark._jsparkSession, handle, request)
