"""The data files of a write: statistics and sizes, by properties and options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from deltaflow.errors import DeltaAnalysisException, DeltaError, DeltaIllegalArgumentException
from deltaflow.log import DeltaLog, schema_to_string
from deltaflow.store import LocalLogStore
from tests.log.hand_written import create
from tests.tables import actions, commit_file, load

pytestmark = pytest.mark.spark


@pytest.fixture
def stats():
    """The statistics of the files of the newest commit."""
    return lambda table: [json.loads(add["stats"]) for add in actions(table, "add")]


def test_properties_given_as_options_are_those_of_a_new_table(spark, table):
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


def test_the_sessions_defaults_are_properties_of_a_new_table(spark, table, settings):
    default = "spark.databricks.delta.properties.defaults.checkpointInterval"
    with settings({default: "4"}):
        spark.range(1).write.format("delta").save(table)
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


def test_a_deletion_vector_whose_put_lost_its_answer_and_was_sent_again(spark, tmp_path, monkeypatch):
    table = str(tmp_path / "marked")
    vectors = "USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{table}` {vectors} AS SELECT id FROM range(10)")
    put = LocalLogStore.put_if_absent
    sent = []

    def send_again(self, path, data):
        put(self, path, data)
        if path.endswith(".bin"):
            sent.append(path)
            put(self, path, data)

    monkeypatch.setattr(LocalLogStore, "put_if_absent", send_again)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 9")
    assert len(sent) == 1
    assert [row.id for row in load(spark, table).collect()] == [9]


def test_a_wrong_property_of_the_table_is_refused_before_files_are_written(spark, table, tmp_path):
    spark.range(1).write.format("delta").save(table)
    commit = commit_file(table, 0)
    wrong = '"configuration":{"delta.dataSkippingNumIndexedCols":"many"}'
    other = tmp_path / "other" / "_delta_log"
    other.mkdir(parents=True)
    (other / commit.name).write_text(commit.read_text().replace('"configuration":{}', wrong))
    with pytest.raises(DeltaIllegalArgumentException, match="dataSkippingNumIndexedCols is 'many'"):
        spark.range(1).write.format("delta").mode("append").save(str(other.parent))
    assert [entry.name for entry in other.parent.iterdir()] == ["_delta_log"]


OPTIMIZE = "spark.databricks.delta.optimizeWrite."


def scattered(spark, rows=400, tasks=8):
    """Rows of four partitions, each of them in every task."""
    return spark.range(0, rows, 1, tasks).selectExpr("id", "id % 4 AS p", "repeat(uuid(), 10) AS text")


def appended(table, frame, **options):
    """The paths of the files that an append writes."""
    frame.write.format("delta").mode("append").options(**options).partitionBy("p").save(table)
    return [add["path"] for add in actions(table, "add")]


@pytest.mark.long
def test_optimized_writes_bring_the_rows_of_a_partition_together(spark, table, settings):
    frame = scattered(spark)
    assert len(appended(table, frame)) == 32
    files = appended(table, frame, optimizeWrite="true")
    assert sorted(path.split("/")[0] for path in files) == ["p=0", "p=1", "p=2", "p=3"]
    with settings({"spark.sql.adaptive.enabled": "false"}):
        assert len(appended(table, frame, OPTIMIZEWRITE="TRUE")) == 4
    grouped = frame.groupBy("id", "p").agg({"text": "max"}).withColumnRenamed("max(text)", "text")
    assert len(appended(table, grouped, optimizeWrite="true")) == 4
    loaded = load(spark, table)
    assert loaded.groupBy("id").count().where("count = 4").count() == 400
    assert loaded.where("p <> id % 4").count() == 0


def test_who_asks_for_optimized_writes(spark, table, settings):
    frame = scattered(spark, rows=40)
    assert len(appended(table, frame, **{"delta.autoOptimize.optimizeWrite": "true"})) == 4
    assert len(appended(table, frame)) == 4
    with settings({OPTIMIZE + "enabled": "false"}):
        assert len(appended(table, frame)) > 4
        assert len(appended(table, frame, optimizeWrite="true")) == 4
    assert len(appended(table, frame, optimizeWrite="false")) > 4


def test_optimized_writes_have_a_target_size(spark, tmp_path, settings):
    frame = spark.range(0, 4000, 1, 8).selectExpr("id", "uuid() || uuid() || uuid() AS text")
    # Each of the eight tasks has about 54 kB, which a shuffle hardly makes less.

    def sizes_of_files(name, **properties):
        table = str(tmp_path / name)
        frame.write.format("delta").option("optimizeWrite", "true").options(**properties).save(table)
        return [add["size"] for add in actions(table, "add")]

    assert len(sizes_of_files("one")) == 1
    of_table = sizes_of_files("by property", **{"delta.targetFileSize": "150kb"})
    assert 2 <= len(of_table) <= 5
    with settings({OPTIMIZE + "binSize": "20kb"}):
        assert len(sizes_of_files("by session")) == 8
        assert len(sizes_of_files("both", **{"delta.targetFileSize": "1g"})) == 1


def test_optimized_writes_of_one_task_and_of_nothing(spark, table):
    write = spark.range(3).coalesce(1).write.format("delta").option("optimizeWrite", "true")
    write.save(table)
    assert len(actions(table, "add")) == 1
    nothing = spark.range(0, 400, 1, 8).where("rand() > 2")
    nothing.write.format("delta").mode("append").option("optimizeWrite", "true").save(table)
    assert actions(table, "add") == []
    assert load(spark, table).count() == 3


def test_a_failure_before_an_optimized_write_is_that_of_the_rows(spark, table):
    frame = spark.range(0, 40, 1, 4).selectExpr("IF(id = 33, raise_error('on purpose'), id) AS id")
    with pytest.raises(Exception, match="on purpose"):
        frame.write.format("delta").option("optimizeWrite", "true").save(table)
    assert not Path(table, "_delta_log").exists()


def test_a_row_that_breaks_a_rule_is_named_before_an_optimized_write(spark, table):
    schema = StructType([StructField("id", IntegerType(), nullable=False)])
    create(DeltaLog.for_table(table), schema_string=schema_to_string(schema))
    rows = spark.range(0, 40, 1, 4).selectExpr("IF(id = 33, null, int(id)) AS id")
    with pytest.raises(DeltaError, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        rows.write.format("delta").mode("append").option("optimizeWrite", "true").save(table)


def test_optimized_writes_of_a_stream(spark, tmp_path, table):
    source = str(tmp_path / "source")
    scattered(spark).write.format("delta").save(source)
    for rows, mode in (
        (spark.readStream.format("delta").load(source).repartition(8), "append"),
        (spark.readStream.format("delta").load(source).groupBy("p", "id").count(), "complete"),
    ):
        target = f"{table}-{mode}"
        query = (
            rows.writeStream.format("delta")
            .outputMode(mode)
            .partitionBy("p")
            .option("optimizeWrite", "true")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{mode}"))
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination()
        assert len(actions(target, "add")) == 4
        assert load(spark, target).select("id").distinct().count() == 400
        assert query.lastProgress["numInputRows"] == 400


def test_the_number_of_a_files_rows_is_bounded(spark, table, settings):
    def rows_of_files(**options):
        writer = spark.range(0, 100, 1, 1).write.format("delta").mode("append")
        writer.options(**options).save(table)
        return sorted(json.loads(add["stats"])["numRecords"] for add in actions(table, "add"))

    assert rows_of_files(maxRecordsPerFile="40") == [20, 40, 40]
    with settings({"spark.sql.files.maxRecordsPerFile": "60"}):
        assert rows_of_files() == [40, 60]
        assert rows_of_files(MAXRECORDSPERFILE="-1") == [100]
    with pytest.raises(DeltaIllegalArgumentException, match="'many' for option 'maxRecordsPerFile'"):
        rows_of_files(maxRecordsPerFile="many")


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "none"])
def test_compression(spark, table, settings, codec):
    def codecs(**options):
        spark.range(9).coalesce(1).write.format("delta").mode("append").options(**options).save(table)
        [path] = [add["path"] for add in actions(table, "add")]
        column = pq.ParquetFile(f"{table}/{path}").metadata.row_group(0).column(0)
        return column.compression

    expected = "UNCOMPRESSED" if codec == "none" else codec.upper()
    assert codecs(compression=codec) == expected
    with settings({"spark.sql.parquet.compression.codec": codec}):
        assert codecs() == expected
        assert codecs(compression="lz4_raw") == "LZ4"


def test_a_codec_that_is_none_is_refused_before_files_are_written(spark, table):
    with pytest.raises(Exception, match=r"(?i)zip2"):
        spark.range(1).write.format("delta").option("compression", "zip2").save(table)
    assert not list(Path(table).rglob("*.parquet"))


def test_files_under_random_prefixes(spark, table):
    properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}
    frame = spark.sql("SELECT 1 AS id, timestamp'2024-01-01 00:00:00' AS p UNION ALL SELECT 2, null")
    frame.write.format("delta").partitionBy("p").options(**properties).save(table)
    frame.write.format("delta").mode("append").save(table)
    paths = [add["path"] for version in (0, 1) for add in actions(table, "add", version)]
    assert all(re.fullmatch(r"[A-Za-z0-9]{5}/p=[^/]+/part-[^/]+", path) for path in paths)
    assert len({path.split("/")[0] for path in paths}) == 2
    values = {add["partitionValues"]["p"] for add in actions(table, "add")}
    assert values == {"2024-01-01T00:00:00.000000Z", None}
    assert load(spark, table).where("p IS NULL").count() == 2


def test_null_counts_of_arrays_and_maps_are_exact(spark, table, stats):
    rows = (
        "(1, array(1), map('k', 1)), (2, null, null), (3, array(), map()), (4, array(null), map('k', null))"
    )
    spark.sql(f"select * from values {rows} t(id, a, m)").coalesce(1).write.format("delta").save(table)
    [found] = stats(table)
    assert found["nullCount"] == {"id": 0, "a": 1, "m": 1}
