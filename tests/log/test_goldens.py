"""Real tables of other writers, through the log and pyarrow."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from deltaflow.errors import CorruptLogError, DeltaTableNotFoundError, UnsupportedFeatureError
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.files.deletion_vectors import read_deletion_vectors
from deltaflow.log.files.partition_values import typed_values
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.data_types import is_nested
from deltaflow.log.replay.log_files import LogFiles, random_id, system_clock
from deltaflow.log.replay.segment import list_newest, load_state
from deltaflow.store import LocalLogStore
from tests.goldens import GOLDENS, entries, missing_features, needed, opened, text

pytestmark = needed
ERRORS: dict[str, tuple[type[Exception], str]] = {
    "no metadata": (CorruptLogError, "DELTA_STATE_RECOVER_ERROR.*no metaData action"),
    "no protocol": (CorruptLogError, "DELTA_STATE_RECOVER_ERROR.*no protocol action"),
    "versions not contiguous": (CorruptLogError, "DELTA_VERSIONS_NOT_CONTIGUOUS.*Missing versions"),
    "log is truncated at its start": (
        CorruptLogError,
        "DELTA_VERSIONS_NOT_CONTIGUOUS.*Missing versions .*: 0;",
    ),
    "no _delta_log": (DeltaTableNotFoundError, "is not a Delta table"),
    "empty _delta_log": (DeltaTableNotFoundError, "is not a Delta table"),
}


def log_of(entry: dict[str, Any]) -> DeltaLog:
    return DeltaLog(LocalLogStore(), str(GOLDENS / entry["path"]))


def rows_as_text(snapshot: Snapshot, schema: pa.Schema) -> list[str]:
    """The rows of a table's files in the columns of `schema`, as sorted text."""
    found: list[str] = []
    vectors = read_deletion_vectors(snapshot.files, snapshot.path, snapshot.version)
    for file, vector in zip(snapshot.files.to_pylist(), vectors, strict=True):
        partition = {name.lower(): value for name, value in file["partition_values"]}
        path = unquote(file["path"]).removeprefix("file:")
        data = pq.ParquetFile(os.path.join(snapshot.path, path), coerce_int96_timestamp_unit="us").read()
        if vector is not None:
            data = data.filter(pa.array([row not in vector.rows for row in range(data.num_rows)]))
        columns = {name.lower(): data[name] for name in data.column_names}
        values = []
        for field in snapshot.schema.fields:
            arrow_type, name = schema.field(field.name).type, physical_name(field).lower()
            if name in partition:
                typed = typed_values(pa.array([partition[name]], pa.string()), field.dataType)
                values.append(pa.repeat(typed[0], data.num_rows).cast(arrow_type).to_pylist())
            elif name in columns:
                found_values = as_type(columns[name], arrow_type).to_pylist()
                values.append([with_names(value, field.dataType) for value in found_values])
            else:
                values.append([None] * data.num_rows)
        found.extend(map(text, zip(*values, strict=True)))
    return sorted(found)


def with_names(value: Any, data_type: DataType) -> Any:
    """A value of a file with the table's names for its fields, which may have others in the file, and with
    the digits of the table's type, which may be wider."""
    if value is None or not is_nested(data_type):
        is_decimal = value is not None and isinstance(data_type, DecimalType)
        return value.quantize(Decimal(1).scaleb(-data_type.scale)) if is_decimal else value
    if isinstance(data_type, StructType):
        return {
            field.name: with_names(value.get(physical_name(field)), field.dataType)
            for field in data_type.fields
        }
    if isinstance(data_type, MapType):
        return [(with_names(k, data_type.keyType), with_names(v, data_type.valueType)) for k, v in value]
    assert isinstance(data_type, ArrayType)
    return [with_names(element, data_type.elementType) for element in value]


def as_type(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    return (
        column if pa.types.is_nested(arrow_type) or column.type == arrow_type else pc.cast(column, arrow_type)
    )


@pytest.mark.parametrize("entry", entries("rows"))
@pytest.mark.sampled(4)
def test_the_rows_of_every_listed_version(entry: dict[str, Any], tmp_path: Path) -> None:
    log = DeltaLog(LocalLogStore(), opened(entry, tmp_path))
    newest = log.snapshot()
    assert newest.version == entry["version"]
    assert newest.protocol.min_reader_version == entry["min_reader_version"]
    assert newest.protocol.min_writer_version == entry["min_writer_version"]
    assert newest.partition_columns == entry["partition_columns"]
    check_rows(log, entry["version"], entry["expected"])
    for version, file in entry["versions"].items():
        check_rows(log, version, file)


def check_rows(log: DeltaLog, version: int, file: str) -> None:
    wanted = pq.read_table(GOLDENS / file)
    found = rows_as_text(log.snapshot_at(version), wanted.schema)
    wanted = wanted.select(log.snapshot_at(version).schema.names)
    columns = [wanted[name].to_pylist() for name in wanted.column_names]
    assert found == sorted(map(text, zip(*columns, strict=True))), f"version {version}"
    snapshot = log.snapshot_at(version)
    assert snapshot.number_of_rows(snapshot.files) in (None, len(found)), f"version {version}"


@pytest.mark.parametrize(
    "entry",
    [
        parameter
        for parameter in entries("rows", "opens", "error", "unsupported")
        if parameter.values[0]["log_readable"]
    ],
)
def test_the_state_of_the_log(entry: dict[str, Any]) -> None:
    """Of tables that are refused as well: their logs can be replayed."""
    files = LogFiles(LocalLogStore(), str(GOLDENS / entry["path"]), system_clock, random_id)
    listing = list_newest(files)
    state = load_state(files, listing, listing.latest_version)
    assert state.version == entry["version"]
    assert state.file_state.files.num_rows == entry["active_files"]
    assert {txn.app_id: txn.version for txn in state.transactions.values()} == entry["txns"]
    assert sorted(state.domains) == entry["domains"]
    rows = state.file_state.files["stats_row"].combine_chunks().drop_null()
    source = state.file_state.stats_source
    pieces = [] if source is None else [piece.to_pylist() for piece in source.read(rows, None)]
    statistics = [text for piece in pieces for text in piece if text is not None]
    statistics += state.file_state.files["stats_text"].drop_null().to_pylist()
    assert all(isinstance(json.loads(text), dict) for text in statistics)


@pytest.mark.parametrize("entry", entries("unsupported"))
def test_what_is_not_supported_is_refused_by_name(entry: dict[str, Any]) -> None:
    """Versions from before it was used are read."""
    log = log_of(entry)
    for version, file in entry["versions"].items():
        with suppress(UnsupportedFeatureError):
            check_rows(log, version, file)
    with pytest.raises(UnsupportedFeatureError) as raised:
        rows_as_text(log.snapshot(), pa.schema([]))
    assert {*raised.value.features} <= missing_features(entry)
    assert all(name in str(raised.value) for name in raised.value.features)


@pytest.mark.parametrize("entry", entries("error"))
def test_what_is_broken_is_an_error_of_ours(entry: dict[str, Any]) -> None:
    reason = entry["expect"].partition(":")[2]
    if reason == "a data file is missing":
        snapshot = log_of(entry).snapshot()
        with pytest.raises(FileNotFoundError):
            rows_as_text(snapshot, pa.schema([(name, pa.null()) for name in snapshot.schema.names]))
    else:
        file = reason.removeprefix("invalid JSON in ")
        error_type, message = ERRORS.get(reason, (CorruptLogError, f"Line .*{file}"))
        with pytest.raises(error_type, match=message):
            log_of(entry).snapshot()
