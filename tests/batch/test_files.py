"""The data files of a write: their statistics and sizes, and what tables and options say about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException

pytestmark = pytest.mark.spark


@pytest.fixture
def stats(actions):
    """The statistics of the files of the newest commit."""
    return lambda table: [json.loads(add["stats"]) for add in actions(table, "add")]


def test_properties_given_as_options_are_those_of_a_new_table(spark, table, actions):
    frame = spark.range(1, numPartitions=1)
    options = {"delta.APPENDONLY": "false", "delta.checkpointInterval": "3", "delta.x": "y"}
    with pytest.raises(DeltaAnalysisException, match=r"Unknown configuration was specified: delta\.x"):
        frame.write.format("delta").options(**options).save(table)
    assert not Path(table).exists()
    del options["delta.x"]
    frame.write.format("delta").options(**options).save(table)
    [metadata] = actions(table, "metaData")
    assert metadata["configuration"] == {"delta.appendOnly": "false", "delta.checkpointInterval": "3"}
    frame.write.format("delta").mode("append").option("delta.checkpointInterval", "5").save(table)
    assert actions(table, "metaData") == []


def test_the_sessions_defaults_are_properties_of_a_new_table(spark, table, actions):
    default = "spark.databricks.delta.properties.defaults.checkpointInterval"
    spark.conf.set(default, "4")
    try:
        spark.range(1).write.format("delta").save(table)
    finally:
        spark.conf.unset(default)
    [metadata] = actions(table, "metaData")
    assert metadata["configuration"] == {"delta.checkpointInterval": "4"}


def test_statistics_are_of_the_columns_that_the_table_says(spark, tmp_path, stats):
    table, named = str(tmp_path / "first"), str(tmp_path / "named")
    frame = spark.sql("select 1 a, named_struct('b', 2, 'c', 'xyz') s, binary('x') d, 5 e, 'p' p")
    frame = frame.coalesce(1)
    first = {"delta.dataSkippingNumIndexedCols": "2", "delta.dataSkippingStringPrefixLength": "2"}
    frame.write.format("delta").partitionBy("p").options(**first).save(table)
    assert stats(table) == [
        {"numRecords": 1, "minValues": {"a": 1, "s": {"b": 2}}, "maxValues": {"a": 1, "s": {"b": 2}}}
        | {"nullCount": {"a": 0, "s": {"b": 0}}}
    ]
    columns = {"delta.dataSkippingStatsColumns": "S.C, e", "delta.dataSkippingStringPrefixLength": "2"}
    frame.write.format("delta").partitionBy("p").options(**columns).save(named)
    frame.write.format("delta").mode("append").save(named)
    [found] = stats(named)
    assert found["minValues"] == {"s": {"c": "xy"}, "e": 5}
    assert found["maxValues"] == {"s": {"c": "xy\x7f"}, "e": 5}
    assert found["nullCount"] == {"s": {"c": 0}, "e": 0}


def test_a_wrong_property_of_the_table_is_refused_before_files_are_written(spark, table, tmp_path):
    spark.range(1).write.format("delta").save(table)
    commit = Path(table, "_delta_log", f"{0:020}.json")
    wrong = '"configuration":{"delta.dataSkippingNumIndexedCols":"many"}'
    other = tmp_path / "other" / "_delta_log"
    other.mkdir(parents=True)
    (other / commit.name).write_text(commit.read_text().replace('"configuration":{}', wrong))
    with pytest.raises(DeltaIllegalArgumentException, match="dataSkippingNumIndexedCols is 'many'"):
        spark.range(1).write.format("delta").mode("append").save(str(other.parent))
    assert [entry.name for entry in other.parent.iterdir()] == ["_delta_log"]
