"""Missing commits and changes in its table's log stop a stream, with an error that names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import StreamingQueryException

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from tests.streaming.source_tables import FIELDS, SourceTable, metadata_action, read_failure, read_ids

pytestmark = pytest.mark.spark

TEXT = {**FIELDS[0], "type": "string"}
MORE = {**FIELDS[0], "name": "x"}
REQUIRED = {**FIELDS[0], "nullable": False}
STREAMING = "spark.databricks.delta.streaming."


def planned(streams: Any, table: SourceTable, checkpoint: str, **options: object) -> None:
    """Plans the next batch and lets it fail, so that it comes again at the next start."""

    def fail(batch: Any, _: int) -> None:
        raise ValueError("planned")

    with pytest.raises(StreamingQueryException, match="planned"):
        streams.ended(streams.foreach(streams.read(table.path, **options), checkpoint, fail))


@pytest.mark.covers("DELTA_STREAMING_TRAILING_COMMIT_MISSING", "streaming.trailingCommitValidation.enabled")
@pytest.mark.parametrize("end", ["inside the commit", "behind the commit"])
def test_the_last_commit_of_a_planned_batch_is_gone(
    streams: Any, setting: Any, table: str, checkpoint: str, end: str
) -> None:
    source = SourceTable(table, [0])
    assert read_ids(streams, source, checkpoint) == [0]
    source.commit([1])
    source.commit([2], [3])
    planned(streams, source, checkpoint, maxFilesPerTrigger=2 if end == "inside the commit" else 3)
    source.commit_file(2).unlink()
    error = read_failure(streams, source, checkpoint)
    assert (error.code, error.state) == ("DELTA_STREAMING_TRAILING_COMMIT_MISSING", "42K03")
    assert "commits up to version 2 but files after version 1 are missing" in error.message
    setting(STREAMING + "trailingCommitValidation.enabled", "false")
    assert read_ids(streams, source, checkpoint) == [1]


@pytest.mark.covers("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE")
def test_the_log_of_the_initial_snapshot_is_gone(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [0], [1])
    planned(streams, source, checkpoint, maxFilesPerTrigger=1)
    for version in (1, 2):
        source.commit([version + 1])
    deltalake.DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        source.commit_file(version).unlink()
    error = read_failure(streams, source, checkpoint)
    assert (error.code, error.state) == ("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "42K03")
    assert "version 0" in error.message
    assert "Delete its checkpoint to restart from scratch" in error.message


@pytest.mark.covers("failOnDataLoss", "DELTA_MISSING_FILES_UNEXPECTED_VERSION")
def test_all_that_a_stream_has_still_to_read_is_gone(streams: Any, table: str, checkpoint: str) -> None:
    """A checkpoint proves that versions existed, but their commits are missing."""
    source = SourceTable(table, [0])
    assert read_ids(streams, source, checkpoint) == [0]
    for version in (1, 2):
        source.commit([version])
    deltalake.DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2):
        source.commit_file(version).unlink()
    error = read_failure(streams, source, checkpoint)
    assert (error.code, error.state) == ("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "42K03")
    assert "cannot resume from version 1; transaction log starts at 3" in error.message
    assert read_ids(streams, source, checkpoint, failOnDataLoss="false") == []
    source.commit([3])
    assert read_ids(streams, source, checkpoint, failOnDataLoss="false") == [3]


@pytest.mark.covers("failOnDataLoss", "startingTimestamp", "DELTA_MISSING_FILES_UNEXPECTED_VERSION")
@pytest.mark.parametrize("is_all", [False, True])
def test_commits_of_a_first_batch_that_began_at_a_time_are_gone(
    streams: Any, table: str, checkpoint: str, is_all: bool
) -> None:
    """Only the options say where a planned first batch began: it must not begin later now."""
    source = SourceTable(table, [0])
    for version in (1, 2):
        source.commit([version], time_ms=version * 1_000)
    options = {"startingTimestamp": "1970-01-01T00:00:01Z"}
    os.utime(source.commit_file(0), (0, 0))
    planned(streams, source, checkpoint, **options)
    source.commit([3], time_ms=3_000)
    deltalake.DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2) if is_all else (0, 1):
        source.commit_file(version).unlink()
    error = read_failure(streams, source, checkpoint, **options)
    assert error.code == "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
    assert f"transaction log starts at {3 if is_all else 2}" in error.message
    rows = read_ids(streams, source, checkpoint, failOnDataLoss="false", **options)
    assert rows == ([3] if is_all else [2, 3])


def test_a_file_of_an_earlier_version_is_gone(streams: Any, table: str, checkpoint: str) -> None:
    """A stream reads files as commits have added them: the newest version has nothing to do with it."""
    source = SourceTable(table, [0])
    source.commit([1])
    source.commit(remove=("f001.parquet",))
    Path(table, "f001.parquet").unlink()
    errors: list[StoreError] = []

    def read(batch: Any, _: int) -> None:
        with pytest.raises(StoreError) as raised:
            batch.collect()
        errors.append(raised.value)

    options = {"startingVersion": 1, "ignoreDeletes": True}
    streams.ended(streams.foreach(streams.read(table, **options), checkpoint, read))
    [error] = errors
    assert (error.getCondition(), error.version) == ("DELTA_FILE_NOT_FOUND_DETAILED", None)
    assert "f001.parquet" in str(error)
    assert f"a stream or the change data feed of the table {table} needs it" in str(error)


@pytest.mark.covers("streaming.offsetValidation.enabled")
def test_offsets_of_a_checkpoint_that_go_back(
    streams: Any, setting: Any, table: str, checkpoint: str
) -> None:
    source = SourceTable(table, [0])
    assert read_ids(streams, source, checkpoint) == [0]
    source.commit([1])
    planned(streams, source, checkpoint)
    first, second = (Path(checkpoint, "offsets", name) for name in "01")
    back = second.read_text().replace('"reservoirVersion":2', '"reservoirVersion":0')
    assert back != second.read_text()
    second.write_text(back)
    second.with_name(".1.crc").unlink()
    assert first.exists()
    error = read_failure(streams, source, checkpoint)
    assert error.code == "DELTA_ILLEGAL_STATE"
    assert "'reservoirVersion' moved back" in error.message
    setting(STREAMING + "offsetValidation.enabled", "false")
    assert read_ids(streams, source, checkpoint) == [0, 1]


@pytest.mark.covers("DELTA_INVALID_SOURCE_VERSION", "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION")
@pytest.mark.covers("DELTA_INVALID_SOURCE_OFFSET_FORMAT", "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE")
def test_offsets_that_are_not_understood(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [0])
    assert read_ids(streams, source, checkpoint) == [0]
    source.commit([1])
    file = Path(checkpoint, "offsets", "0")
    good = file.read_text()
    for old, new, code, state, said in (
        ('"sourceVersion":1', '"sourceVersion":2', "DELTA_INVALID_SOURCE_VERSION", "XXKDS", "(2) is invalid"),
        ('"sourceVersion":1,', "", "DELTA_INVALID_SOURCE_VERSION", "XXKDS", "sourceVersion(0)"),
        (
            '"sourceVersion":1',
            '"sourceVersion":4',
            "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION",
            "XXKDS",
            "smaller than or equal to 3 but was 4",
        ),
        ('"index":-1', '"index":"a"', "DELTA_INVALID_SOURCE_OFFSET_FORMAT", "XXKDS", "format is invalid"),
        (
            "table-1",
            "table-0",
            "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            "55019",
            "table (id = 'table-1')",
        ),
        ('1,"reservoirId"', '3,"reservoirId"', None, None, None),
    ):
        assert old in good
        file.write_text(good.replace(old, new))
        file.with_name(".0.crc").unlink(missing_ok=True)
        if code is None:
            continue
        error = read_failure(streams, source, checkpoint)
        assert error.code == code
        assert state in (None, error.state)
        assert said in error.message
    file.write_text(good.replace('1,"reservoirId"', '3,"reservoirId"').replace(":-1,", ":-100,"))
    assert read_ids(streams, source, checkpoint) == [1]


@pytest.mark.covers("DELTA_INVALID_PROTOCOL_VERSION", "DELTA_UNSUPPORTED_FEATURES_FOR_READ")
def test_a_protocol_on_the_way_that_asks_too_much(streams: Any, table: str, tmp_path: Path) -> None:
    """The newest version would be readable."""
    for number, (protocol, code, state, said) in enumerate(
        (
            (
                {"minReaderVersion": 4, "minWriterVersion": 7},
                "DELTA_INVALID_PROTOCOL_VERSION",
                "KD004",
                "reader version 4",
            ),
            (
                {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]},
                "DELTA_UNSUPPORTED_FEATURES_FOR_READ",
                "56038",
                "catalogManaged",
            ),
        )
    ):
        source = SourceTable(f"{table}{number}", [0])
        checkpoint = str(tmp_path / str(number))
        assert read_ids(streams, source, checkpoint) == [0]
        source.commit([1], protocol={**protocol, "writerFeatures": protocol.get("readerFeatures", [])})
        source.commit([2], protocol={"minReaderVersion": 1, "minWriterVersion": 2})
        error = read_failure(streams, source, checkpoint)
        assert (error.code, error.state) == (code, state)
        assert said in error.message
        assert "version 1" in error.message


CHANGED = {**FIELDS[0], "metadata": {"delta.typeChanges": [{"fromType": "string", "toType": "long"}]}}


@pytest.mark.covers("typeWidening", "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA")
@pytest.mark.parametrize("newer", ["last", "newer ones"])
def test_the_first_commit_with_a_change_that_nobody_can_read_stops_the_stream(
    streams: Any, table: str, checkpoint: str, newer: str
) -> None:
    """No row of it is read, nor of what is planned together with it, even if a later version undoes it."""
    names = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    source = SourceTable(table, [0])
    source.commit([1], protocol={"minReaderVersion": 3, "minWriterVersion": 7, **names})
    assert read_ids(streams, source, checkpoint) == [0, 1]
    source.commit([2])
    assert read_ids(streams, source, checkpoint) == [2]
    loaded = streams.read(source.path)
    source.commit([3], metaData=metadata_action(CHANGED))
    if newer != "last":
        source.commit(metaData=source.metadata)
    seen: list[Any] = []
    query = streams.foreach(loaded, str(checkpoint), lambda batch, _: seen.extend(batch.collect()))
    error = streams.failure(query)
    assert seen == []
    assert (error.code, error.state) == ("DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA", "0AKDC")


@pytest.mark.covers("catalogManaged", "DELTA_UNSUPPORTED_FEATURES_FOR_READ")
@pytest.mark.covers("changeDataFeed", "identityColumns")
def test_features_that_nobody_can_leave_unused(streams: Any, table: str, tmp_path: Path) -> None:
    source = SourceTable(f"{table}-managed", [0])
    names = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    source.commit(protocol={"minReaderVersion": 3, "minWriterVersion": 7, **names})
    with pytest.raises(UnsupportedFeatureError, match="A catalog decides") as refused:
        streams.read(source.path)
    assert refused.value.error_class == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
    assert (refused.value.sqlstate, refused.value.features) == ("56038", ("catalogManaged",))
    # These features are for writers only, so the rows are read.
    for feature in ("changeDataFeed", "identityColumns"):
        source = SourceTable(f"{table}-{feature}", [0])
        source.commit([1], protocol={"minReaderVersion": 1, "minWriterVersion": 6})
        assert read_ids(streams, source, tmp_path / feature) == [0, 1]


@pytest.mark.covers("DELTA_SCHEMA_NOT_SET", "path")
def test_a_table_that_has_no_schema_yet(streams: Any, table: str, tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundError, match="not a Delta table") as refused:
        streams.read(str(tmp_path / "nothing"))
    assert (refused.value.error_class, refused.value.sqlstate) == ("DELTA_SCHEMA_NOT_SET", "KD008")
    source = SourceTable(table)
    empty = {**source.metadata, "schemaString": '{"type":"struct","fields":[]}'}
    source.commit(metaData=empty)
    with pytest.raises(DeltaAnalysisException, match="Table schema is not set") as not_set:
        streams.read(table)
    assert (not_set.value.error_class, not_set.value.sqlstate) == ("DELTA_SCHEMA_NOT_SET", "KD008")


@pytest.mark.covers("DELTA_SCHEMA_CHANGED_WITH_VERSION", "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS")
@pytest.mark.parametrize("start", ["startingVersion", None])
def test_another_type_on_the_way(streams: Any, table: str, checkpoint: str, start: str | None) -> None:
    source = SourceTable(table, [0])
    if start is None:
        assert read_ids(streams, source, checkpoint) == [0]
    source.commit(metaData=metadata_action(TEXT))
    source.commit(metaData=metadata_action())
    error = read_failure(streams, source, checkpoint, **({} if start is None else {start: 0}))
    cause = "VERSION" if start is None else "STARTING_OPTIONS"
    assert (error.code, error.state) == (f"DELTA_SCHEMA_CHANGED_WITH_{cause}", "KD007")
    assert "Detected schema change in version 1: streaming source schema: struct<id:bigint>" in error.message
    assert "data file schema: struct<id:string>" in error.message
    assert "new checkpoint location" in error.message
    assert ("startingVersion or startingTimestamp" in error.message) == (start is not None)


@pytest.mark.covers(
    "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS",
    "streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled",
)
def test_a_column_that_is_gone_since(streams: Any, setting: Any, table: str, checkpoint: str) -> None:
    """The commits that the stream has to read have no metaData that would show the change."""
    source = SourceTable(table, [0])
    source.commit(metaData=metadata_action(*FIELDS, MORE))
    source.commit([1])
    source.commit(metaData=metadata_action())
    error = read_failure(streams, source, checkpoint, startingVersion=2)
    assert (error.code, error.state) == ("DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS", "KD007")
    assert "in version 2" in error.message
    assert "The change is incompatible" in error.message
    setting(STREAMING + "unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled", "true")
    assert read_ids(streams, source, checkpoint, startingVersion=2) == [1]


@pytest.mark.covers("streaming.unsafeReadOnNullabilityChange.enabled")
def test_nulls_on_the_way(streams: Any, setting: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [0])
    source.commit(metaData=metadata_action(REQUIRED))
    error = read_failure(streams, source, checkpoint, startingVersion=0)
    assert (error.code, error.state) == ("DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS", "KD007")
    assert "in version 0" in error.message
    setting(STREAMING + "unsafeReadOnNullabilityChange.enabled", "true")
    assert read_ids(streams, source, checkpoint, startingVersion=0) == [0]


@pytest.mark.covers("streaming.unsafeReadOnPartitionColumnChanges.enabled")
def test_partition_columns_on_the_way(streams: Any, setting: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table)
    source.commit(metaData=metadata_action(*FIELDS, MORE))
    source.commit([1])
    source.commit(metaData=metadata_action(*FIELDS, MORE, partition_columns=("x",)))
    error = read_failure(streams, source, checkpoint, startingVersion=2)
    assert (error.code, error.state) == ("DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS", "KD007")
    assert "partition columns" in error.message
    setting(STREAMING + "unsafeReadOnPartitionColumnChanges.enabled", "true")
    assert read_ids(streams, source, checkpoint, startingVersion=2) == [1]


@pytest.mark.covers("DELTA_UNKNOWN_READ_LIMIT")
def test_a_limit_of_an_unknown_kind(streams: Any, table: str) -> None:
    """No trigger of Spark makes this call, so the test makes it."""
    SourceTable(table, [0])
    jvm = streams.spark.sparkContext._jvm
    context = streams.spark._jsparkSession.sqlContext()
    options = getattr(getattr(jvm, "scala.collection.immutable.Map$EmptyMap$"), "MODULE$").updated(
        "path", table
    )
    provider = jvm.io.deltaflow.spark.DeltaProvider()
    provider.sourceSchema(context, jvm.scala.Option.empty(), "delta", options)
    metadata = f"{table}-checkpoint/sources/0"
    source = provider.createSource(context, metadata, jvm.scala.Option.empty(), "delta", options)
    limits = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
    try:
        with pytest.raises(DeltaIllegalArgumentException, match="Unknown ReadLimit: ReadMinRows") as refused:
            source.latestOffset(None, limits.minRows(5, 1000))
        assert refused.value.error_class == "DELTA_UNKNOWN_READ_LIMIT"
        assert refused.value.sqlstate == "42601"
        assert '"reservoirVersion":1' in source.latestOffset(None, limits.allAvailable()).json()
    finally:
        source.stop()
