"""PySpark's pandas API on tables: `pyspark.pandas.read_delta` and `DataFrame.to_delta`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pandas
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaflow.log import DeltaLog

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    # What this API advises against, whatever the format is.
    pytest.mark.filterwarnings("ignore:.*(index_col|loads all data)"),
    pytest.mark.skipif(
        int(pandas.__version__.split(".")[0]) > 2, reason="PySpark's pandas API does not import with pandas 3"
    ),
]


@pytest.fixture
def ps(spark: SparkSession, setting: Callable[[str, str], None]) -> Any:
    """`pyspark.pandas`; it takes the session that is active."""
    if spark.version < "4.1":  # whose pandas API refuses ANSI mode
        setting("spark.sql.ansi.enabled", "false")
    # Before 4.2 it warns where it sets this itself, since executors elsewhere would need it, too.
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    import pyspark.pandas

    return pyspark.pandas


def pandas_ids(frame: Any) -> list[int]:
    return sorted(frame["id"].to_numpy().tolist())


def test_a_frame_goes_into_a_table_and_comes_back(ps: Any, table: str) -> None:
    frame = ps.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    frame.to_delta(table)
    assert ps.read_delta(table).sort_values("id").to_numpy().tolist() == [[1, "a"], [2, "b"], [3, "c"]]
    theirs = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted(row["name"] for row in theirs) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("w", [5]),
        ("overwrite", [5]),
        ("a", [1, 2, 5]),
        ("append", [1, 2, 5]),
        ("ignore", [1, 2]),
    ],
)
def test_modes(ps: Any, table: str, mode: str, expected: list[int]) -> None:
    ps.DataFrame({"id": [1, 2]}).to_delta(table)
    ps.DataFrame({"id": [5]}).to_delta(table, mode=mode)
    assert pandas_ids(ps.read_delta(table)) == expected


def test_a_table_that_may_not_be_there(ps: Any, table: str) -> None:
    ps.DataFrame({"id": [1]}).to_delta(table, mode="error")
    with pytest.raises(AnalysisException, match="DELTA_PATH_EXISTS"):
        ps.DataFrame({"id": [1]}).to_delta(table, mode="errorifexists")


def test_partitions_and_options(ps: Any, table: str) -> None:
    frame = ps.DataFrame({"id": [1, 2, 3, 4], "p": ["a", "b", "a", "b"], "q": [1, 1, 2, 2]})
    frame.to_delta(table, partition_cols=["p", "q"])
    assert DeltaLog.for_table(table).snapshot().partition_columns == ["p", "q"]
    ps.DataFrame({"id": [9], "p": ["a"], "q": [7]}).to_delta(
        table, mode="overwrite", partition_cols=["p", "q"], replaceWhere="p = 'a'", userMetadata="by pandas"
    )
    assert pandas_ids(ps.read_delta(table)) == [2, 4, 9]
    assert DeltaLog.for_table(table).snapshot().version == 1
    (commit,) = DeltaLog.for_table(table).commits(1)
    assert commit.commit_info is not None
    assert commit.commit_info.user_metadata == "by pandas"
    ps.DataFrame({"id": [1], "p": ["a"]}).to_delta(str(Path(table).parent / "one"), partition_cols="p")
    assert DeltaLog.for_table(str(Path(table).parent / "one")).snapshot().partition_columns == ["p"]


def test_an_index_is_kept_as_a_column(ps: Any, table: str) -> None:
    frame = ps.DataFrame({"id": [1, 2]}, index=[10, 20])
    frame.to_delta(table, index_col="key")
    assert DeltaLog.for_table(table).snapshot().schema.names == ["key", "id"]
    read = ps.read_delta(table, index_col="key")
    assert read.columns.to_list() == ["id"]
    assert sorted(read.index.to_numpy().tolist()) == [10, 20]
    assert read.loc[20, "id"] == 2


def test_time_travel(ps: Any, table: str) -> None:
    ps.DataFrame({"id": [1]}).to_delta(table)
    first = DeltaLog.for_table(table).snapshot().timestamp_ms
    ps.DataFrame({"id": [2]}).to_delta(table, mode="append")
    for version in (0, "0"):
        assert pandas_ids(ps.read_delta(table, version=version)) == [1]
    at = pandas.Timestamp(first, unit="ms").isoformat(sep=" ")
    assert pandas_ids(ps.read_delta(table, timestamp=at)) == [1]
    assert pandas_ids(ps.read_delta(table, options={"versionAsOf": 1})) == [1, 2]
    with pytest.raises(ValueError, match="cannot be used together"):
        ps.read_delta(table, version=0, timestamp=at)
    with pytest.raises(AnalysisException, match="DELTA_VERSION_NOT_FOUND"):
        ps.read_delta(table, version=7)


def test_a_table_by_its_name(ps: Any, database: Path) -> None:
    ps.DataFrame({"id": [1, 2]}).to_table("t", format="delta")
    assert pandas_ids(ps.read_table("t")) == [1, 2]
    assert DeltaLog.for_table(str(database / "t")).exists()
