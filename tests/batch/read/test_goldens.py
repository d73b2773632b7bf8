"""Real tables of other writers, through Spark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow.errors import DeltaError, UnsupportedFeatureError
from deltaflow.log.protocol.schema import READS_VOID
from tests.goldens import GOLDENS, entries, missing_features, needed, opened, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, needed]


def sorted_rows(table: pa.Table) -> list[str]:
    columns = [table[name].to_pylist() for name in table.column_names]
    return sorted(map(text, zip(*columns, strict=True)))


def golden_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(path)


@pytest.mark.parametrize("entry", entries("rows"))
@pytest.mark.sampled(6)
def test_the_rows_of_every_listed_version(spark: SparkSession, tmp_path: Path, entry: dict[str, Any]) -> None:
    if "void" in entry["tags"] and not READS_VOID:
        pytest.skip("this Spark reads no column of type void")
    path = opened(entry, tmp_path)
    newest = spark.read.format("delta").load(path)
    assert newest.count() == entry["rows"]
    check_rows(spark, path, entry["version"], entry["expected"])
    for version, file in entry["versions"].items():
        check_rows(spark, path, version, file)


def check_rows(spark: SparkSession, path: str, version: int, file: str) -> None:
    found = golden_at(spark, path, version).toArrow()
    wanted = pq.read_table(GOLDENS / file).select(found.column_names)
    assert sorted_rows(found.cast(wanted.schema)) == sorted_rows(wanted), f"version {version}"


@pytest.mark.parametrize("entry", entries("unsupported"))
def test_what_is_not_supported_is_refused_by_name(spark: SparkSession, entry: dict[str, Any]) -> None:
    """Versions from before it was used are read."""
    path = str(GOLDENS / entry["path"])
    for version, file in entry["versions"].items():
        with suppress(UnsupportedFeatureError):
            check_rows(spark, path, version, file)
    with pytest.raises(UnsupportedFeatureError) as raised:
        spark.read.format("delta").load(path).collect()
    assert {*raised.value.features} <= missing_features(entry)


@pytest.mark.parametrize("entry", entries("error"))
def test_what_is_broken_is_an_error(spark: SparkSession, entry: dict[str, Any]) -> None:
    path = str(GOLDENS / entry["path"])
    if entry["log_readable"]:
        frame = spark.read.format("delta").load(path)
        with pytest.raises(DeltaError, match="DELTA_FILE_NOT_FOUND_DETAILED"):
            frame.collect()
    else:
        with pytest.raises(DeltaError):
            spark.read.format("delta").load(path)
