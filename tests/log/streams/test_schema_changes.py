"""Which actions change what a stream reads, and how columns of an older schema come into a newer one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql import types as T

from deltaflow.log import Metadata, Protocol, schema_to_string
from deltaflow.log.streams.schema_changes import (
    column_changes,
    has_changed,
    merged_ahead,
    obstacle_to_evolution,
)
from deltaflow.log.streams.schema_log import SchemaLog, TrackedMetadata, tracked_metadata
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove
from tests.mapped_tables import mapped

LONG, TEXT = T.LongType(), T.StringType()
INNER = [mapped("x", LONG, 3), mapped("y", TEXT, 4)]
SCHEMA = T.StructType([mapped("a", LONG, 1), mapped("s", T.StructType(INNER), 2), mapped("p", TEXT, 5)])
PROTOCOL = Protocol(
    min_reader_version=2, min_writer_version=7, writer_features=["columnMapping", "appendOnly"]
)


def metadata(
    schema: T.StructType = SCHEMA, partitions: tuple[str, ...] = ("p",), **configuration: str
) -> Metadata:
    return Metadata(
        id="table-1",
        schema_string=schema_to_string(schema),
        partition_columns=list(partitions),
        configuration={"delta.columnMapping.mode": "name"} | configuration,
    )


def entry(version: int = 3, **given: Any) -> TrackedMetadata:
    return tracked_metadata(metadata(**given), PROTOCOL, version, "file:/c/sources/0")


def with_metadata(name: str, value: Any) -> T.StructType:
    first = SCHEMA.fields[0]
    changed = T.StructField(first.name, first.dataType, first.nullable, first.metadata | {name: value})
    return T.StructType([changed, *SCHEMA.fields[1:]])


def test_an_entry_gives_back_what_it_was_made_of() -> None:
    read = msgspec.json.decode(msgspec.json.encode(entry()), type=TrackedMetadata)
    assert read == entry()
    assert read.metadata == metadata()
    assert read.protocol == PROTOCOL
    assert not has_changed(read, metadata(), PROTOCOL)
    assert not has_changed(read, None, None)


SAME_FEATURES = msgspec.structs.replace(PROTOCOL, writer_features=["appendOnly", "columnMapping"])


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        (metadata(T.StructType(SCHEMA.fields[:-1]), ()), True),
        (metadata(partitions=("a",)), True),
        (metadata(**{"delta.appendOnly": "true"}), True),
        (metadata(owner="me"), False),
        (metadata(with_metadata("comment", "c")), True),
        (metadata(with_metadata("delta.identity.highWaterMark", 7)), False),
        (metadata(with_metadata("delta.generationExpression", "1")), False),
        (SAME_FEATURES, False),
        (msgspec.structs.replace(PROTOCOL, writer_features=["columnMapping"]), True),
        (msgspec.structs.replace(PROTOCOL, min_reader_version=3, reader_features=[]), True),
    ],
)
def test_what_changes_a_stream(new: Metadata | Protocol, changes: bool) -> None:
    is_metadata = isinstance(new, Metadata)
    assert has_changed(entry(), new if is_metadata else None, None if is_metadata else new) is changes


def test_columns_that_were_renamed_dropped_and_widened() -> None:
    inner = T.StructType([mapped("z", LONG, 3), mapped("new", LONG, 6)])
    new = T.StructType([mapped("a", T.DecimalType(20, 0), 1), mapped("t", inner, 2), mapped("n", LONG, 7)])
    changes = column_changes(SCHEMA, new)
    assert changes.renamed == [(("s",), ("t",)), (("s", "x"), ("t", "z"))]
    assert changes.dropped == [("s", "y"), ("p",)]
    assert changes.widened == [(("a",), LONG, T.DecimalType(20, 0))]
    assert "dropped 's.y'" in str(changes)
    assert not any(column_changes(SCHEMA, T.StructType([*SCHEMA.fields, mapped("n", LONG, 7)])))
    assert obstacle_to_evolution(SCHEMA, new, may_widen=True) is None
    assert obstacle_to_evolution(SCHEMA, new, may_widen=False) is not None
    assert obstacle_to_evolution(new, SCHEMA, may_widen=True) is not None
    # The same name for another column: one was dropped, and one is new.
    again = T.StructType([*SCHEMA.fields[:-1], mapped("p", LONG, 8)])
    assert column_changes(SCHEMA, again).dropped == [("p",)]
    assert obstacle_to_evolution(SCHEMA, again, may_widen=False) is None


def test_changes_without_files_between_them_are_one(tmp_path: Any) -> None:
    table = HandWrittenTable(tmp_path / "t")
    configuration = {"delta.columnMapping.mode": "name"}
    first = meta_data(schema=SCHEMA, configuration=configuration)
    wider = T.StructType([*SCHEMA.fields, mapped("n", LONG, 7)])
    upgraded = protocol(2, 7, writerFeatures=["columnMapping", "rowTracking"])
    table.commit(0, protocol(2, 5), first)
    table.commit(1, meta_data(schema=wider, configuration=configuration))
    table.commit(2, upgraded)
    table.commit(3, remove("f"), meta_data(schema=SCHEMA, configuration=configuration))
    log = table.log()
    merged = merged_ahead(entry(0), log.commits_present(0, 3))
    assert merged is not None
    assert merged.delta_commit_version == 2
    assert merged.metadata.schema_string == schema_to_string(wider)
    assert merged.protocol == Protocol(
        min_reader_version=2, min_writer_version=7, writer_features=["columnMapping", "rowTracking"]
    )
    assert merged_ahead(entry(2), log.commits_present(2, 3)) is None
    assert merged_ahead(entry(3), log.commits_present(3, 3)) is None
    table.commit(4, add("g"))
    assert merged_ahead(entry(4), log.commits_present(4, 4)) is None


def test_the_entry_before_the_newest(tmp_path: Any) -> None:
    """An entry that replaces another one follows the one before that."""
    location = str(tmp_path)
    log = SchemaLog.read(location, "table-1", None, "file:/c/sources/0")
    assert (log.current, log.before, log.number) == (None, None, -1)
    for version in (1, 2):
        log = log.with_entry(entry(version))
    same = log.with_entry(entry(2))
    assert same is log
    log = log.with_entry(entry(5), replaces_current=True)
    again = SchemaLog.read(location, "table-1", None, "file:/c/sources/0")
    assert again == log
    assert (log.number, log.before) == (2, entry(1))
    assert log.current is not None
    assert log.current.previous_metadata_seq_num == 0
    dry = msgspec.structs.replace(log, is_dry=True).with_entry(entry(7))
    assert (dry.number, dry.before) == (3, log.current)
    assert SchemaLog.read(location, "table-1", None, "file:/c/sources/0") == log
    assert SchemaLog.read(location, "table-1", "other", "file:/c/sources/0").current is None
