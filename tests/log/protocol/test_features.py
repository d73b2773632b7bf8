from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.protocol.features import FEATURES
from tests.log.hand_written import HandWrittenTable, append, meta_data, paths, protocol, remove


def table_with(table: HandWrittenTable, protocol_action: dict[str, Any], **metadata: Any) -> HandWrittenTable:
    table.commit(0, protocol_action, meta_data(**metadata))
    return table


def column(**metadata: str) -> StructType:
    return StructType([StructField("s", StructType([StructField("id", LongType(), True, metadata)]))])


@pytest.mark.parametrize(
    "name",
    [
        "deletionVectors",
        "columnMapping",
        "typeWidening",
        "variantType",
        "catalogManaged",
        "brandNew",
        "Deletionvectors",
    ],
)
def test_reader_features_that_are_missing_are_named(table: HandWrittenTable, name: str) -> None:
    features = ["vacuumProtocolCheck", name]
    log = table_with(table, protocol(3, 7, readerFeatures=features, writerFeatures=features)).log()
    for call in (log.snapshot, log.start_transaction):
        with pytest.raises(UnsupportedFeatureError, match=f"needs {name} ") as raised:
            call()
        assert raised.value.features == (name,)
        assert raised.value.error_class == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"


@pytest.mark.parametrize("name", ["rowTracking", "clustering", "icebergCompatV2", "brandNew"])
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
    ("changeDataFeed", {"configuration": {"delta.enableChangeDataFeed": "true"}}),
    ("generatedColumns", {"schema": column(**{"delta.generationExpression": "1"})}),
    ("identityColumns", {"schema": column(**{"delta.identity.start": "1"})}),
    ("allowColumnDefaults", {"schema": column(CURRENT_DEFAULT="1")}),
    ("rowTracking", {"configuration": {"delta.enableRowTracking": "true"}}),
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


WRITTEN_WHILE_INACTIVE = [name for name, feature in FEATURES.items() if feature.writes == "inactive"]


@pytest.mark.parametrize("name", [name for name in WRITTEN_WHILE_INACTIVE if name != "columnMapping"])
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


@pytest.mark.parametrize("action", [protocol(1, 2), protocol(2, 5), protocol(3, 7, readerFeatures=[])])
def test_column_mapping_in_use_is_refused_even_if_it_is_not_announced(
    table: HandWrittenTable, action: dict[str, Any]
) -> None:
    log = table_with(table, action, configuration={"delta.columnMapping.mode": "name"}).log()
    with pytest.raises(UnsupportedFeatureError, match="needs columnMapping"):
        log.snapshot()


def test_a_feature_that_was_dropped_again_does_not_matter(table: HandWrittenTable) -> None:
    features = ["deletionVectors"]
    table.commit(0, protocol(3, 7, readerFeatures=features, writerFeatures=features), meta_data())
    table.commit(1, protocol(1, 2), remove("a"))
    assert table.log().snapshot().version == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableDeletionVectors": "true"},
        {"delta.enableTypeWidening": "true"},
        {"delta.enableRowTracking": "true"},
    ],
)
def test_a_legacy_table_whose_properties_ask_for_what_is_missing_is_read_and_not_written(
    table: HandWrittenTable, properties: dict[str, str]
) -> None:
    log = table_with(table, protocol(1, 2), configuration=properties).log()
    assert paths(log) == []
    with pytest.raises(UnsupportedFeatureError, match=r"needs (deletionVectors|typeWidening|rowTracking) "):
        append(log, "a")


def test_every_feature_is_listed_under_its_name() -> None:
    assert all(name == feature.name for name, feature in FEATURES.items())
    # What readers must have, and deltaflow reads: nothing else may change how files are read.
    assert {name for name, feature in FEATURES.items() if feature.for_readers and feature.reads} == {
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
