"""Runs a rewrite of a table's files from Python (one that follows a commit, the JVM runs by itself)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.expressions.row_operations import new_handle, scanned, write_rows
from deltaflow.spark.write.file_write import FileRewrite, keep_rewrite

LayOut = Callable[[int, Sequence[DataFrame]], Sequence[DataFrame]]
"""From the rows of some bins, of which the first has this number, to what is to be written of each: every
Spark partition of it becomes a file."""


def run_rewrite(spark: SparkSession, rewrite: FileRewrite) -> None:
    """Has Spark write the new files, one a bin, which the rewrite then commits; raises what failed it."""
    handle, request = _kept(spark, rewrite)
    rewrites = java_classes(spark).write.Rewrites
    rewrites.run(spark._jsparkSession, handle, msgspec.json.encode(request).decode())


def run_laid_out(spark: SparkSession, rewrite: FileRewrite, lay_out: LayOut) -> None:
    """As `run_rewrite`, with the rows of each bin in files as `lay_out` says.

    Crossings into the JVM: about 10 for a bin and 20 for a job, beside those of `lay_out`.
    """
    handle, request = _kept(spark, rewrite)
    try:
        own = _session_with(spark, request["settings"])
        first = 0
        for scans in request["jobs"]:
            relations = [{**request["relation"], "scan": scan} for scan in scans]
            bins = [scanned(own, relation) for relation in relations]
            laid_out = functools.reduce(DataFrame.union, lay_out(first, bins))
            write_rows(laid_out, {"kind": "rewrite", "rewrite": handle}, "rewrite")
            first += len(bins)
    finally:
        # If it has not committed, no commit of it comes any more, and its files are removed.
        rewrite.end(None)
        dispatcher.release(handle)


def _kept(spark: SparkSession, rewrite: FileRewrite) -> tuple[int, dict[str, Any]]:
    """The handle under which Python keeps the rewrite, and its request."""
    handle = new_handle(spark)
    request = rewrite.request(handle)
    keep_rewrite(handle, rewrite)
    return handle, request


def _session_with(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    """A session like this one, with these settings."""
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in settings.items():
        own.conf.set(name, value)
    return own
