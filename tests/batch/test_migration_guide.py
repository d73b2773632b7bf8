"""docs/migrating-from-delta-spark.md: every name that people look for, and what is true of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltaflow.exceptions
import deltaflow.tables
from deltaflow.batch.ddl.drop_feature import _REMOVABLE
from deltaflow.log.protocol.properties import KNOWN
from tests.batch.test_delta_table import PARAMETERS, public_methods

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/migrating-from-delta-spark.md").read_text()
WHAT_WORKS = (ROOT / "docs/what-works.md").read_text()
ROWS = [line for line in GUIDE.splitlines() if line.startswith("|")]


def state_of(name: str) -> str:
    """The second column of the row that has a name in its first one."""
    found = [row.split(" | ") for row in ROWS if f"`{name}`" in row.split(" | ")[0]]
    assert len(found) == 1, name
    return found[0][1]


@pytest.mark.parametrize("method", sorted(PARAMETERS["DeltaTable"]))
def test_methods_are_there_as_the_guide_says(method: str) -> None:
    rows = [row for row in ROWS if re.search(rf"`(DeltaTable\.)?{method}`", row.split(" | ")[0])]
    assert len(rows) == 1
    assert (rows[0].split(" | ")[1] == "not yet") == (method not in public_methods("DeltaTable"))


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_classes_are_there_as_the_guide_says(name: str) -> None:
    if name != "DeltaTable":
        assert (state_of(name) == "not yet") == (name not in deltaflow.tables.__all__)


@pytest.mark.parametrize("name", deltaflow.exceptions.__all__)
def test_exceptions_are_in_it(name: str) -> None:
    assert state_of(name) == "`deltaflow.exceptions`"


STATEMENTS = {
    "DELETE FROM": "DELETE FROM {t} WHERE id = 1",
    "UPDATE": "UPDATE {t} SET id = 2 WHERE id = 1",
    "MERGE INTO": "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE": "TRUNCATE TABLE {t}",
    "ALTER TABLE … DROP FEATURE": "ALTER TABLE {t} DROP FEATURE domainMetadata",
    "ALTER TABLE … RENAME COLUMN": "ALTER TABLE {t} RENAME COLUMN id TO x",
    "DESCRIBE HISTORY": "DESCRIBE HISTORY {t}",
    "DESCRIBE DETAIL": "DESCRIBE DETAIL {t}",
    "VACUUM": "VACUUM {t}",
    "table_changes": "SELECT * FROM table_changes_by_path('{path}/t', 0)",
    "OPTIMIZE … WHERE … ZORDER BY": "OPTIMIZE {t} ZORDER BY (id)",
    "RESTORE TABLE": "RESTORE TABLE {t} TO VERSION AS OF 0",
    "GENERATE symlink_format_manifest FOR TABLE": "GENERATE symlink_format_manifest FOR TABLE {t}",
    "CONVERT TO DELTA": "CONVERT TO DELTA parquet.`{path}/parquet`",
    "CREATE TABLE … SHALLOW CLONE": "CREATE TABLE delta.`{path}/clone` SHALLOW CLONE {t}",
    "REORG TABLE": "REORG TABLE {t} APPLY (PURGE)",
}


@pytest.mark.spark
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(6)
def test_statements_work_as_the_guide_says(spark: SparkSession, tmp_path: Path, statement: str) -> None:
    writer = spark.range(3).write.format("delta").option("delta.feature.domainMetadata", "supported")
    if "RENAME" in statement:
        writer = writer.option("delta.columnMapping.mode", "name")
    if "table_changes" in statement:
        writer = writer.option("delta.enableChangeDataFeed", "true")
    writer.save(str(tmp_path / "t"))
    if "CONVERT" in statement:
        spark.range(3).write.parquet(str(tmp_path / "parquet"))
    text = STATEMENTS[statement].format(t=f"delta.`{tmp_path}/t`", path=tmp_path)
    if state_of(statement) in ("work", "works"):
        spark.sql(text).collect()
    else:
        with pytest.raises(AnalysisException):
            spark.sql(text).collect()


def test_settings_that_are_heeded_are_in_it() -> None:
    sources = [
        *(ROOT / "deltaflow/log").rglob("*.py"),
        *(ROOT / "batch").rglob("*.py"),
        *(ROOT / "streaming").rglob("*.py"),
    ]
    heeded = {
        name
        for source in sources
        for name in re.findall(r'"spark\.databricks\.delta\.([\w.]*\w)"', source.read_text())
    }
    assert {name for name in heeded if f"`{name}`" not in GUIDE} == set()


NOT_FOR_USERS = {
    "delta.enableChangeDataCapture",  # the older name of delta.enableChangeDataFeed
    "delta.enableIcebergCompatV1",  # refused, by the page about features
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.inCommitTimestampEnablementTimestamp",  # these are written by operations
    "delta.inCommitTimestampEnablementVersion",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTrackingSuspended",
}


def test_properties_that_are_known_are_in_it() -> None:
    names = {known.name for known in KNOWN.values()} - NOT_FOR_USERS
    assert {name for name in names if f"`{name}`" not in GUIDE} == set()


def test_features_that_can_be_dropped_are_the_same_on_both_pages() -> None:
    listed = re.search(r"works for ([\w, ]+)", state_of("dropFeatureSupport"))
    assert listed is not None
    assert f"`dropFeatureSupport` of {listed[1].strip()} |" in WHAT_WORKS
    assert set(_REMOVABLE) == set(listed[1].strip().split(", "))
