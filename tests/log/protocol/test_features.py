from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, StructField, StructType, VariantType

from deltaflow.errors import DeltaAnalysisException, UnsupportedFeatureError
from deltaflow.log import DeltaLog, remove_files
from deltaflow.log.protocol.features import FEATURES
from deltaflow.log.protocol.schema import READS_SHREDDED_VARIANTS
from deltaflow.store import LocalLogStore
from tests.log.hand_written import (
    WRITE,
    HandWrittenTable,
    add,
    append,
    meta_data,
    new_metadata,
    paths,
    protocol,
    remove,
)


def table_with(table: HandWrittenTable, protocol_action: dict[str, Any], **metadata: Any) -> HandWrittenTable:
    table.commit(0, protocol_action, meta_data(**metadata))
    return table


def column(**metadata: str) -> StructType:
    return StructType([StructField("s", StructType([StructField("id", LongType(), True, metadata)]))])


@pytest.mark.parametrize("name", ["catalogManaged", "geospatial", "brandNew", "Deletionvectors"])
def test_reader_features_that_are_missing_are_named(table: HandWrittenTable, name: str) -> None:
    features = ["vacuumProtocolCheck", name]
    log = table_with(table, protocol(3, 7, readerFeatures=features, writerFeatures=features)).log()
    for call in (log.snapshot, log.start_transaction):
        with pytest.raises(UnsupportedFeatureError, match=f"needs {name} ") as raised:
            call()
        assert raised.value.features == (name,)
        assert raised.value.error_class == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"


MAPPED = {"configuration": {"delta.columnMapping.mode": "name"}}
VARIANTS: dict[str, Any] = {"schema": StructType([StructField("v", ArrayType(VariantType()))])}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 1, "cardinality": 1}


@pytest.mark.parametrize(
    "name", ["typeWidening", "variantType-preview", "variantShredding", "deletionVectors"]
)
def test_a_feature_that_is_listed_and_not_used_stops_nobody(table: HandWrittenTable, name: str) -> None:
    action = protocol(3, 7, readerFeatures=[name], writerFeatures=[name])
    log = table_with(table, action).log()
    append(log, "a")
    log.checkpoint()
    append(log, "b")
    assert paths(log) == ["a", "b"]
    transaction = log.start_transaction()
    assert transaction.snapshot is not None
    first = transaction.snapshot.with_stats(transaction.snapshot.files.slice(0, 1))
    transaction.commit(remove_files(first, 1), WRITE)
    assert log.snapshot().num_files == log.snapshot_at(1).num_files == 1


def test_the_first_column_that_needs_it_is_the_end(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark 4.0, which does not read shredded variants."""
    name = "variantShredding"
    monkeypatch.setitem(FEATURES, name, replace(FEATURES[name], reads="unused"))
    action = protocol(3, 7, readerFeatures=[name], writerFeatures=[name])
    log = table_with(table, action).log()
    append(log, "a")
    table.commit(2, meta_data(**VARIANTS))
    with pytest.raises(UnsupportedFeatureError, match=r"This Spark cannot read variants") as raised:
        log.snapshot()
    assert raised.value.features == (name,)
    assert raised.value.error_class == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
    assert log.snapshot_at(1).num_files == 1


@pytest.mark.parametrize(
    ("reader", "writer", "supports"),
    [(1, 2, False), (1, 5, False), (2, 4, False), (2, 5, True), (2, 6, True)],
)
def test_column_mapping_needs_the_support_of_the_protocol(
    table: HandWrittenTable, reader: int, writer: int, supports: bool
) -> None:
    log = table_with(table, protocol(reader, writer), **MAPPED).log()
    with nullcontext() if supports else pytest.raises(UnsupportedFeatureError, match="needs columnMapping "):
        assert log.snapshot().mapping_mode == "name"


def test_files_with_deletion_vectors_stay_as_they_are(table: HandWrittenTable) -> None:
    action = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"])
    log = table_with(table, action, configuration={"delta.enableDeletionVectors": "true"}).log()
    append(log, "a")
    table.commit(2, add("b", deletionVector=VECTOR))
    log.checkpoint()
    append(log, "c")
    assert DeltaLog(LocalLogStore(), table.path).snapshot().num_files == 3
    assert log.snapshot().files["deletion_vector"].drop_null().to_pylist() == [{"offset": None, **VECTOR}]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("catalogManaged", "A catalog decides"),
        ("coordinatedCommits-preview", "A service"),
    ],
)
def test_a_refusal_says_its_reason(table: HandWrittenTable, name: str, reason: str) -> None:
    readers = [name] if FEATURES[name].for_readers else []
    log = table_with(table, protocol(3, 7, readerFeatures=readers, writerFeatures=[name])).log()
    with pytest.raises(UnsupportedFeatureError, match=reason):
        append(log, "a")


@pytest.mark.parametrize("name", ["catalogCommits", "brandNew"])
def test_writer_features_that_are_missing_are_named_and_do_not_keep_from_reading(
    table: HandWrittenTable, name: str
) -> None:
    log = table_with(table, protocol(1, 7, writerFeatures=["appendOnly", name])).log()
    assert paths(log) == []
    with pytest.raises(UnsupportedFeatureError, match=f"cannot write .* needs {name} ") as raised:
        append(log, "a")
    assert raised.value.features == (name,)
    assert raised.value.error_class == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
    assert log.latest_version() == 0


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (0, 2), (99, 99)])
def test_unknown_reader_versions(table: HandWrittenTable, reader: int, writer: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"reader version {reader}"):
        table_with(table, protocol(reader, writer)).log().snapshot()


def test_unknown_writer_versions(table: HandWrittenTable) -> None:
    log = table_with(table, protocol(1, 8)).log()
    assert paths(log) == []
    with pytest.raises(UnsupportedFeatureError, match="writer version 8"):
        append(log, "a")


@pytest.mark.parametrize("writer", range(1, 7))
@pytest.mark.parametrize("reader", [1, 2])
def test_legacy_versions_are_written_while_the_metadata_activates_nothing(
    table: HandWrittenTable, reader: int, writer: int
) -> None:
    log = table_with(table, protocol(reader, writer)).log()
    append(log, "a")
    assert paths(log) == ["a"]


ACTIVE: list[tuple[str, dict[str, Any]]] = [
    ("icebergCompatV2", {"configuration": {"delta.enableIcebergCompatV2": "true"}}),
]


@pytest.mark.parametrize("protocol_action", ["legacy", "listed"])
@pytest.mark.parametrize(("name", "metadata"), ACTIVE)
def test_what_the_metadata_activates_is_refused_for_writing_by_name(
    table: HandWrittenTable, name: str, metadata: dict[str, Any], protocol_action: str
) -> None:
    action = protocol(1, 2) if protocol_action == "legacy" else protocol(1, 7, writerFeatures=[name])
    log = table_with(table, action, **metadata).log()
    assert paths(log) == []
    with pytest.raises(UnsupportedFeatureError, match=f"needs {name} ") as raised:
        append(log, "a")
    assert raised.value.features == (name,)


@pytest.mark.parametrize(
    ("action", "is_written"),
    [
        (protocol(1, 4), True),
        (protocol(1, 7, writerFeatures=["generatedColumns"]), True),
        (protocol(1, 3), False),
        (protocol(1, 7, writerFeatures=["appendOnly"]), False),
    ],
)
def test_generated_columns_are_written_where_the_protocol_has_them(
    table: HandWrittenTable, action: dict[str, Any], is_written: bool
) -> None:
    """Other implementations take them for columns like any other where it has not."""
    log = table_with(table, action, schema=column(**{"delta.generationExpression": "1"})).log()
    refused = pytest.raises(UnsupportedFeatureError, match="needs generatedColumns ")
    with nullcontext() if is_written else refused:
        append(log, "a")


@pytest.mark.parametrize(("writer", "is_written"), [(6, True), (5, False)])
def test_identity_columns_are_written_where_the_protocol_has_them(
    table: HandWrittenTable, writer: int, is_written: bool
) -> None:
    log = table_with(table, protocol(1, writer), schema=column(**{"delta.identity.start": 1})).log()
    refused = pytest.raises(UnsupportedFeatureError, match="needs identityColumns ")
    with nullcontext() if is_written else refused:
        append(log, "a")


def test_a_default_needs_the_feature(table: HandWrittenTable) -> None:
    """Only when it is given to a column: other writers may have left some without the feature."""
    field = StructField("id", LongType(), True, {"CURRENT_DEFAULT": "1"})
    log = table_with(table, protocol(1, 2), schema=StructType([field])).log()
    append(log, "a")
    other = StructType([field, StructField("x", LongType(), True, {"CURRENT_DEFAULT": "2"})])
    transaction = log.start_transaction()
    with pytest.raises(DeltaAnalysisException, match="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"):
        transaction.update_metadata(new_metadata(schema_string=other.json()))
    allowed = {"delta.feature.allowColumnDefaults": "supported"}
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(schema_string=other.json(), configuration=allowed))
    transaction.commit([], WRITE)
    assert "allowColumnDefaults" in (log.snapshot().protocol.writer_features or ())


WRITTEN_WHILE_INACTIVE = [name for name, feature in FEATURES.items() if feature.writes == "inactive"]


@pytest.mark.parametrize("name", WRITTEN_WHILE_INACTIVE)
def test_a_listed_feature_that_is_not_active_does_not_keep_from_writing(
    table: HandWrittenTable, name: str
) -> None:
    log = table_with(table, protocol(1, 7, writerFeatures=[name])).log()
    append(log, "a")
    assert paths(log) == ["a"]


@pytest.mark.parametrize("name", [name for name, feature in FEATURES.items() if feature.writes == "always"])
def test_features_that_ask_nothing_of_an_append(table: HandWrittenTable, name: str) -> None:
    log = table_with(
        table, protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint", name])
    ).log()
    append(log, "a")
    assert paths(log) == ["a"]


def test_a_feature_that_was_dropped_again_does_not_matter(table: HandWrittenTable) -> None:
    features = ["catalogManaged"]
    table.commit(0, protocol(3, 7, readerFeatures=features, writerFeatures=features), meta_data())
    table.commit(1, protocol(1, 2), remove("a"))
    assert table.log().snapshot().version == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableRowTracking": "true"},
    ],
)
def test_a_legacy_table_whose_properties_ask_for_what_is_missing_is_read_and_not_written(
    table: HandWrittenTable, properties: dict[str, str]
) -> None:
    log = table_with(table, protocol(1, 2), configuration=properties).log()
    assert paths(log) == []
    with pytest.raises(UnsupportedFeatureError, match=r"needs rowTracking "):
        append(log, "a")


def test_every_feature_is_listed_under_its_name() -> None:
    assert all(name == feature.name for name, feature in FEATURES.items())
    # What readers must have, and deltaflow reads: nothing else may change how files are read.
    reads = {name for name, feature in FEATURES.items() if feature.for_readers and feature.reads == "always"}
    assert reads == {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        *(("variantShredding", "variantShredding-preview") if READS_SHREDDED_VARIANTS else ()),
    }
