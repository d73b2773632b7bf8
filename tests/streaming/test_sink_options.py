"""Every option and every error of the sink, each by a real query."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from deltaflow.errors import DeltaError
from deltaflow.log.observer import set_observer
from tests.tables import actions, commit_file, every_action, versions

pytestmark = pytest.mark.spark

OPTIONS = {
    "outputMode",
    "checkpointLocation",
    "path",
    "toTable",
    "partitionBy",
    "clusterBy",
    "mergeSchema",
    "overwriteSchema",
    "userMetadata",
    "optimizeWrite",
    "txnAppId",
    "txnVersion",
    "replaceWhere",
    "replaceOn",
    "replaceUsing",
    "partitionOverwriteMode",
    "dataChange",
    "maxRecordsPerFile",
    "compression",
    "parquet.*",
    "quarantinePath",
}
ERRORS = {
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": "42809",
    "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION": "428FT",
    "DELTA_CLUSTERING_COLUMNS_MISMATCH": "42P10",
    "DELTA_CONCURRENT_TRANSACTION": "2D521",
    "DELTA_FAILED_TO_MERGE_FIELDS": "22005",
    "DELTA_ILLEGAL_OPTION": "42616",
    "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS": "42616",
    "DELTA_NULL_SCHEMA_IN_STREAMING_WRITE": "42P18",
    "DELTA_METADATA_MISMATCH": "42KDG",
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "23502",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "23502",
    "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE": "56038",
    "DELTA_UNSUPPORTED_OUTPUT_MODE": "0AKDC",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": "23001",
}
"""The errors by class, with their SQLSTATE."""


def test_every_option_and_error_has_a_test() -> None:
    """The names in the marks of all tests of the sink."""
    marked: set[str] = set()
    for module in Path(__file__).parent.glob("test_sink*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.covers":
                marked.update(ast.literal_eval(argument) for argument in node.args)
    assert marked == OPTIONS | set(ERRORS)


@pytest.fixture
def source(streams: Any, table: str) -> Any:
    """The ids 0 to 5 as a stream of two batches."""
    streams.append(table, 0, 6, files=2)
    return streams.read(table, maxFilesPerTrigger=1)


def check_refused(error: DeltaError | Any, code: str, words: str, sink: str) -> None:
    """Checks the error of a query's start, and that nothing was written."""
    assert (error.error_class, error.sqlstate) == (code, ERRORS[code])
    assert words in error.message
    assert not Path(sink).exists()


def check_failed(failure: Any, code: str, words: str = "") -> None:
    """An error of a running query."""
    assert (failure.code, failure.state) == (code, ERRORS[code])
    assert words in failure.message


@pytest.mark.covers("outputMode", "DELTA_UNSUPPORTED_OUTPUT_MODE")
def test_output_mode(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    counts = source.groupBy().count()
    with pytest.raises(AnalysisException) as raised:
        streams.write(counts, sink, checkpoint, mode="update")
    check_refused(raised.value, "DELTA_UNSUPPORTED_OUTPUT_MODE", "not support Update output mode", sink)
    streams.copy(counts, sink, checkpoint, mode="complete")
    parameters = [info["operationParameters"] for info in every_action(sink, "commitInfo")]
    assert [found["outputMode"] for found in parameters] == ["Complete"] * 2
    assert deltalake.DeltaTable(sink).to_pyarrow_table().to_pydict() == {"count": [6]}


@pytest.mark.covers("DELTA_CANNOT_MODIFY_APPEND_ONLY")
def test_complete_mode_needs_a_table_that_may_lose_rows(
    streams: Any, source: Any, sink: str, checkpoint: str
) -> None:
    long = deltalake.schema.PrimitiveType("long")
    schema = deltalake.Schema([deltalake.Field("odd", long), deltalake.Field("count", long)])
    deltalake.DeltaTable.create(sink, schema, configuration={"delta.appendOnly": "true"})
    counts = source.groupBy((F.col("id") % 2).alias("odd")).count()
    failure = streams.failure(streams.write(counts, sink, checkpoint, mode="complete"))
    check_failed(failure, "DELTA_CANNOT_MODIFY_APPEND_ONLY", "delta.appendOnly")
    assert versions(sink) == [0]
    assert [path.name for path in Path(sink).iterdir()] == ["_delta_log"]
    # Appends are what it allows.
    streams.copy(source.selectExpr("id AS odd", "id AS count"), sink, f"{checkpoint}2")
    assert deltalake.DeltaTable(sink).to_pyarrow_table().num_rows == 6


@pytest.mark.covers("checkpointLocation", "path")
def test_places(streams: Any, source: Any, sink: str, checkpoint: str) -> None:
    writer = source.writeStream.format("delta").trigger(availableNow=True)
    with pytest.raises(PySparkException, match="checkpointLocation"):
        writer.start(sink)
    assert not Path(sink).exists()
    writer = writer.option("checkpointLocation", checkpoint)
    with pytest.raises(AnalysisException, match="'path' is not specified"):
        writer.start()
    streams.ended(writer.option("PATH", sink).start())
    assert streams.ids(sink) == list(range(6))


@pytest.mark.covers("toTable")
def test_to_table(streams: Any, source: Any, table: str, sink: str, checkpoint: str) -> None:
    spark = streams.spark
    spark.sql(f"CREATE TABLE to_table (id LONG) USING delta LOCATION '{sink}'")
    try:
        writer = source.selectExpr("id", "id * 2 AS n").writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", checkpoint).option("mergeSchema", "true")
        streams.ended(writer.toTable("to_table", format="delta", userMetadata="by name"))
        streams.append(table, 6, 8)
        streams.ended(writer.toTable("to_table", format="delta", userMetadata="by name"))
        rows = sorted((row.id, row.n) for row in spark.table("to_table").collect())
        assert rows == [(i, 2 * i) for i in range(8)]
        infos = every_action(sink, "commitInfo")
        assert [info.get("userMetadata") for info in infos] == [None, *["by name"] * 3]
    finally:
        spark.sql("DROP TABLE to_table")


@pytest.mark.covers(
    "partitionBy",
    "DELTA_METADATA_MISMATCH",
    "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
)
def test_partition_by(streams: Any, source: Any, table: str, sink: str, checkpoint: str) -> None:
    frame = source.selectExpr("id", "id % 2 AS odd", "'a/b c' AS s")
    streams.copy(frame, sink, checkpoint, partition_by=["odd", "S"])
    assert deltalake.DeltaTable(sink).metadata().partition_columns == ["odd", "s"]
    # The table has a partitioning. The same may be given again, another may not.
    streams.append(table, 6, 8)
    streams.copy(frame, sink, checkpoint)
    streams.append(table, 8, 9)
    streams.copy(frame, sink, checkpoint, partition_by=["odd", "s"])
    found = deltalake.DeltaTable(sink).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["odd"], row["s"]) for row in found) == [
        (i, i % 2, "a/b c") for i in range(9)
    ]
    streams.append(table, 9, 10)
    failure = streams.failure(streams.write(frame, sink, checkpoint, partition_by=["s"]))
    check_failed(failure, "DELTA_METADATA_MISMATCH", "Partition columns do not match")
    everything = streams.write(frame, f"{sink}2", f"{checkpoint}2", partition_by=["id", "odd", "s"])
    check_failed(streams.failure(everything), "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION")
    with pytest.raises(PySparkException, match="nope"):
        streams.copy(frame, f"{sink}3", f"{checkpoint}3", partition_by=["nope"])
    assert streams.ids(sink) == list(range(9))
    assert not Path(f"{sink}2").exists()


@pytest.mark.covers("clusterBy", "DELTA_CLUSTERING_COLUMNS_MISMATCH")
def test_cluster_by(streams: Any, source: Any, table: str, sink: str, checkpoint: str) -> None:
    """Of a new table, by path or by name. The same columns may be given again, others may not."""
    writer = source.selectExpr("id", "id % 2 AS odd").writeStream.format("delta").clusterBy("odd")
    writer = writer.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    streams.ended(writer.start(sink))
    streams.append(table, 6, 8)
    streams.ended(writer.start(sink))
    assert streams.ids(sink) == list(range(8))
    streams.append(table, 8, 9)
    failure = streams.failure(writer.clusterBy("id").start(sink))
    check_failed(failure, "DELTA_CLUSTERING_COLUMNS_MISMATCH")
    by_name = writer.clusterBy("odd").option("checkpointLocation", f"{checkpoint}2")
    try:
        streams.ended(by_name.toTable("clustered_by_stream", path=f"{sink}2"))
        assert streams.ids(f"{sink}2") == list(range(9))
    finally:
        streams.spark.sql("DROP TABLE IF EXISTS clustered_by_stream")
    assert [_clustering_columns(path) for path in (sink, f"{sink}2")] == [[["odd"]]] * 2


def _clustering_columns(path: str) -> list[list[str]]:
    [domain] = every_action(path, "domainMetadata")
    return json.loads(domain["configuration"])["clusteringColumns"]


@pytest.mark.covers("userMetadata")
def test_user_metadata(
    streams: Any, source: Any, table: str, sink: str, checkpoint: str, settings: Any
) -> None:
    streams.copy(source, sink, checkpoint, userMetadata="by a stream")
    streams.append(table, 6, 7)
    with settings({"spark.databricks.delta.commitInfo.userMetadata": "of the session"}):
        streams.copy(source, sink, checkpoint)
        streams.append(table, 7, 8)
        streams.copy(source, sink, checkpoint, userMetadata="by a stream")
    found = [info["userMetadata"] for info in every_action(sink, "commitInfo")]
    assert found == ["by a stream", "by a stream", "of the session", "by a stream"]


@pytest.mark.covers("DELTA_ILLEGAL_OPTION")
@pytest.mark.parametrize(
    ("name", "value", "explained"),
    [
        ("mergeSchema", "yes", "must be 'true' or 'false'"),
        ("overwriteSchema", "1", "must be 'true' or 'false'"),
        ("optimizeWrite", "on", "must be 'true' or 'false'"),
        ("autoCompact", "on", "must be 'true' or 'false'"),
        ("txnVersion", "-1", "must be a non-negative integer"),
        ("maxRecordsPerFile", "many", "must be an integer"),
    ],
)
@pytest.mark.sampled(3)
def test_illegal_values(
    streams: Any, source: Any, sink: str, checkpoint: str, name: str, value: str, explained: str
) -> None:
    application = {"txnAppId": "a"} if name == "txnVersion" else {}
    with pytest.raises(AnalysisException) as raised:
        streams.write(source, sink, checkpoint, **application, **{name: value})
    words = f"Invalid value '{value}' for option '{name}', {explained}"
    check_refused(raised.value, "DELTA_ILLEGAL_OPTION", words, sink)


@pytest.mark.covers("optimizeWrite")
@pytest.mark.parametrize(("value", "files"), [("true", 1), ("false", 3)])
def test_optimize_write(streams: Any, table: str, sink: str, checkpoint: str, value: str, files: int) -> None:
    streams.append(table, 0, 6, files=3)
    scattered = streams.read(table).repartition(3)
    streams.copy(scattered, sink, checkpoint, optimizeWrite=value)
    assert len(actions(sink, "add", 0)) == files
    assert streams.ids(sink) == list(range(6))


@pytest.mark.covers(
    "txnAppId",
    "txnVersion",
    "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS",
)
def test_application_and_version_are_checked_and_ignored(
    streams: Any, source: Any, sink: str, checkpoint: str
) -> None:
    for half in ({"txnAppId": "mine"}, {"txnVersion": "1"}):
        with pytest.raises(AnalysisException) as raised:
            streams.write(source, sink, checkpoint, **half)
        code = "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"
        check_refused(raised.value, code, "both txnVersion and txnAppId must be specified", sink)
    query = streams.copy(source, sink, checkpoint, txnAppId="mine", txnVersion="1")
    txns = [txn for version in (0, 1) for txn in actions(sink, "txn", version)]
    assert [(txn["appId"], txn["version"]) for txn in txns] == [(query.id, 0), (query.id, 1)]


@pytest.mark.covers("replaceWhere", "replaceOn", "replaceUsing", "partitionOverwriteMode", "dataChange")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replaceWhere", "id = 1"),
        ("replaceOn", "id"),
        ("replaceUsing", "id"),
        ("partitionOverwriteMode", "dynamic"),
        ("dataChange", "false"),
    ],
)
def test_options_of_batch_writes_are_refused(
    streams: Any, source: Any, sink: str, checkpoint: str, name: str, value: str
) -> None:
    with pytest.raises(AnalysisException, match=f"A stream does not support the option {name}"):
        streams.write(source, sink, checkpoint, **{name: value})
    assert not Path(sink).exists()


@pytest.mark.covers("maxRecordsPerFile", "compression", "parquet.*")
def test_options_of_files(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 6)
    options = {"maxRecordsPerFile": 4, "compression": "gzip", "parquet.enable.dictionary": "false"}
    streams.copy(streams.read(table), sink, checkpoint, **options)
    files = actions(sink, "add", 0)
    assert sorted(json.loads(file["stats"])["numRecords"] for file in files) == [2, 4]
    for file in files:
        column = pq.read_metadata(f"{sink}/{file['path']}").row_group(0).column(0)
        assert column.compression == "GZIP"
        assert not column.has_dictionary_page
    assert streams.ids(sink) == list(range(6))


@pytest.mark.covers("DELTA_NULL_SCHEMA_IN_STREAMING_WRITE")
@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("NULL AS nothing", "nothing"),
        ("named_struct('a', 1, 'b', NULL) AS s", "s.b"),
        ("array(named_struct('n', NULL)) AS a", "a.element.n"),
        ("map('k', NULL) AS m", "m.value"),
    ],
)
def test_columns_without_a_type(
    streams: Any, source: Any, sink: str, checkpoint: str, column: str, name: str
) -> None:
    failure = streams.failure(streams.write(source.selectExpr("id", column), sink, checkpoint))
    check_failed(failure, "DELTA_NULL_SCHEMA_IN_STREAMING_WRITE", f"column {name}")
    assert not Path(sink).exists()


@pytest.mark.covers("DELTA_CONCURRENT_TRANSACTION")
def test_a_rival_run_of_the_same_query(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    """Another run of the query commits the batch first. This run fails, and the batch is written once."""
    streams.append(table, 0, 5, files=2)
    source = streams.read(table, maxFilesPerTrigger=1)
    query = streams.copy(source, sink, checkpoint)
    streams.append(table, 5, 10)

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == "commit prepared" and facts["version"] == 2 and facts["table"] == sink:
            txn = {"txn": {"appId": query.id, "version": 2, "lastUpdated": 0}}
            streams.add_version(sink, txn)

    set_observer(observer)
    failure = streams.failure(streams.write(source, sink, checkpoint))
    check_failed(failure, "DELTA_CONCURRENT_TRANSACTION", query.id)
    set_observer(None)
    streams.copy(source, sink, checkpoint)
    assert versions(sink) == [0, 1, 2]


def test_two_queries_of_one_session_with_one_checkpoint(
    streams: Any, source: Any, sink: str, checkpoint: str, settings: Any
) -> None:
    """By Spark's own setting the second query is refused, or stops the first."""
    forever = {"processingTime": "0 seconds"}
    first = streams.write(source, sink, checkpoint, trigger=forever)
    streams.until(lambda: commit_file(sink, 0).exists(), first)
    with (
        settings({"spark.sql.streaming.stopActiveRunOnRestart": "false"}),
        pytest.raises((PySparkException, Py4JJavaError), match=r"another query with same id|CONCURRENT"),
    ):
        streams.write(source, sink, checkpoint)
    assert first.isActive
    streams.copy(source, sink, checkpoint)
    assert not first.isActive
    assert streams.ids(sink) == list(range(6))
    assert versions(sink) == [0, 1]
