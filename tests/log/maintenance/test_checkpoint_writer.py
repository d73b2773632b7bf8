from __future__ import annotations

import json
import logging
import os
import tempfile
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltaflow.errors import CorruptLogError
from deltaflow.log import (
    DeltaLog,
    SetTransaction,
    Snapshot,
    add_files,
    commit_name,
    decode_actions,
    encode_actions,
    tombstone_actions,
)
from deltaflow.log.maintenance import checkpoint_hook as hook
from deltaflow.log.maintenance.checkpoint_parts import murmur3, parts_of_paths
from deltaflow.log.replay.last_checkpoint import json_checksum
from deltaflow.store import LocalLogStore, store_for
from tests.log.hand_written import (
    WRITE,
    HandWrittenTable,
    add,
    add_file,
    append,
    create,
    meta_data,
    new_metadata,
    paths,
    protocol,
    remove,
)
from tests.tables import checkpoint_versions

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS
V2 = protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint", "domainMetadata"])
CLASSIC = protocol(1, 7, writerFeatures=["domainMetadata"])
PART_SIZE = "spark.databricks.delta.checkpoint.partSize"
FORMAT = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
AS_STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
CHECKPOINT_SETTINGS: Mapping[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    "classic": (CLASSIC, {}, {}),
    "struct": (CLASSIC, AS_STRUCT, {}),
    "parts": (CLASSIC, {}, {PART_SIZE: "2"}),
    "v2 json": (V2, {"delta.checkpointPolicy": "v2"}, {PART_SIZE: "2"}),
    "v2 parquet": (V2, {"delta.checkpointPolicy": "v2", **AS_STRUCT}, {FORMAT: "parquet"}),
    "v2 supported": (V2, {}, {PART_SIZE: "1"}),
}
SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])


def log_at(table: HandWrittenTable, now_ms: int = NOW_MS) -> DeltaLog:
    return DeltaLog(LocalLogStore(), table.path, clock=lambda: now_ms)


def without_commits(table: HandWrittenTable) -> Snapshot:
    """The table as its checkpoint alone tells it."""
    for version in table.log().available_versions():
        (table.log_directory / commit_name(version)).unlink()
    return table.log().snapshot()


def contents(snapshot: Snapshot) -> tuple[Any, ...]:
    """Everything a checkpoint keeps, in a form that can be compared."""
    return (
        snapshot.version,
        snapshot.protocol,
        json.loads(encode_actions([snapshot.metadata])),
        dict(snapshot.transactions),
        dict(snapshot.domains),
        sorted((normal(row) for row in snapshot.with_stats(snapshot.files).to_pylist()), key=str),
        sorted((normal(row) for row in snapshot.tombstones.to_pylist()), key=str),
    )


def normal(row: dict[str, Any]) -> dict[str, Any]:
    parsed = {name: json.loads(row[name]) for name in ("stats", "extra") if row[name] is not None}
    values = row["partition_values"]
    return {**row, **parsed, "partition_values": None if values is None else sorted(values)}


def checkpoint_of(table: HandWrittenTable) -> pa.Table:
    (file,) = table.log_directory.glob("*.checkpoint.parquet")
    return pq.read_table(file)


def hint_of(table: HandWrittenTable) -> dict[str, Any]:
    hint: dict[str, Any] = json.loads((table.log_directory / "_last_checkpoint").read_bytes())
    return hint


def stats(low: int, high: int) -> str:
    return json.dumps(
        {"numRecords": 2, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    )


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="%\0"), min_size=1, max_size=8)
ADDS = st.builds(
    lambda path, value, low, tags, extra: add(
        f"f/{path}",
        partitionValues={"part": value},
        stats=None if low is None else stats(low, low + 5),
        **({} if tags is None else {"tags": tags}),
        **extra,
    ),
    NAMES,
    st.one_of(st.none(), NAMES),
    st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    st.one_of(st.none(), st.dictionaries(NAMES, st.one_of(st.none(), NAMES), max_size=2)),
    st.fixed_dictionaries(
        {},
        optional={
            "baseRowId": st.integers(0, 9),
            "ofTomorrow": st.fixed_dictionaries(
                {"a": st.lists(st.integers(0, 9), min_size=1), "when": NAMES}
            ),
        },
    ),
)
REMOVES = st.builds(
    lambda path, age_ms, size: remove(f"f/{path}", deletionTimestamp=NOW_MS - age_ms, size=size),
    NAMES,
    st.integers(0, 6 * DAY_MS),
    st.one_of(st.none(), st.integers(0, 9)),
)
OTHERS = st.one_of(
    st.builds(lambda app, number: {"txn": {"appId": app, "version": number}}, NAMES, st.integers(0, 9)),
    st.builds(
        lambda name, text: {"domainMetadata": {"domain": name, "configuration": text, "removed": False}},
        NAMES,
        NAMES,
    ),
)


@settings(max_examples=40, deadline=None)
@given(
    checkpoint=st.sampled_from(sorted(CHECKPOINT_SETTINGS)),
    actions=st.lists(
        st.one_of(ADDS, REMOVES, OTHERS),
        max_size=8,
        unique_by=lambda action: str(action.get("add", action.get("remove", action)).get("path", action)),
    ),
)
def test_a_checkpoint_is_lossless(checkpoint: str, actions: list[dict[str, Any]]) -> None:
    table_protocol, configuration, session = CHECKPOINT_SETTINGS[checkpoint]
    with tempfile.TemporaryDirectory() as directory:
        table = HandWrittenTable(Path(directory) / "t")
        metadata = meta_data(configuration=configuration, partition_columns=["part"])
        metadata["metaData"]["ofTomorrow"] = {"x": "y"}
        table.commit(0, table_protocol, metadata, *actions)
        before = table.log().snapshot()
        log_at(table).checkpoint(session)
        assert contents(without_commits(table)) == contents(before)


@pytest.mark.parametrize("checkpoint", sorted(CHECKPOINT_SETTINGS))
def test_deltalake_reads_every_checkpoint(table: HandWrittenTable, checkpoint: str) -> None:
    table_protocol, configuration, session = CHECKPOINT_SETTINGS[checkpoint]
    table.commit(0, table_protocol, meta_data(configuration=configuration, partition_columns=["part"]))
    adds = [
        add(f"part=a/f{number}", partitionValues={"part": "a"}, stats=stats(number, 9)) for number in range(5)
    ]
    table.commit(1, *adds, {"txn": {"appId": "app", "version": 3}})
    table.commit(2, remove("part=a/f4", deletionTimestamp=NOW_MS))
    log_at(table).checkpoint(session)
    expected = contents(table.log().snapshot())
    for version in range(2):
        (table.log_directory / f"{version:020}.json").unlink()
    assert contents(table.log().snapshot()) == expected
    other = deltalake.DeltaTable(table.path)
    assert other.version() == 2
    assert sorted(other.file_uris()) == [f"{table.path}/part=a/f{number}" for number in range(4)]
    actions = pa.table(other.get_add_actions(flatten=True)).sort_by("path")
    assert actions["min.id"].to_pylist() == [0, 1, 2, 3]
    assert other.transaction_version("app") == 3


class TestLayouts:
    def checkpoint_files(self, table: HandWrittenTable, session: dict[str, str]) -> list[str]:
        log_at(table).checkpoint(session)
        return sorted(file.name for file in table.log_directory.glob("*.checkpoint*"))

    def test_classic(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"))
        assert self.checkpoint_files(table, {}) == ["00000000000000000000.checkpoint.parquet"]

    def test_parts_hold_the_files_that_sparks_hash_gives_them(self, table: HandWrittenTable) -> None:
        files = [f"f{number}" for number in range(7)]
        table.first_commit(*(add(path) for path in files))
        names = self.checkpoint_files(table, {PART_SIZE: "3"})
        assert names == [f"{0:020}.checkpoint.{part:010}.{3:010}.parquet" for part in (1, 2, 3)]
        parts = parts_of_paths(pa.array(files), 3).to_pylist()
        for number, name in enumerate(names):
            rows = pq.read_table(table.log_directory / name).to_pylist()
            found = [row["add"]["path"] for row in rows if row["add"] is not None]
            assert found == [path for path, part in zip(files, parts, strict=True) if part == number]
            assert any(row["protocol"] is not None for row in rows) == (number == 42 % 3)
        assert hint_of(table)["parts"] == 3

    def test_no_parts_where_v2_checkpoints_are_supported(self, table: HandWrittenTable) -> None:
        table.commit(0, V2, meta_data(), add("a"), add("b"))
        assert self.checkpoint_files(table, {PART_SIZE: "1"}) == ["00000000000000000000.checkpoint.parquet"]

    def test_v2(self, table: HandWrittenTable) -> None:
        configuration = {"delta.checkpointPolicy": "v2"}
        table.commit(0, V2, meta_data(configuration=configuration), add("a"), add("b"), add("c"))
        (name,) = self.checkpoint_files(table, {PART_SIZE: "2"})
        assert name.endswith(".json")
        lines = [json.loads(line) for line in (table.log_directory / name).read_text().splitlines()]
        names = [name for line in lines for name in line]
        assert names == ["checkpointMetadata", "protocol", "metaData", "sidecar", "sidecar"]
        sidecars = [line["sidecar"] for line in lines if "sidecar" in line]
        rows = []
        for sidecar in sidecars:
            file = table.log_directory / "_sidecars" / sidecar["path"]
            assert file.stat().st_size == sidecar["sizeInBytes"]
            rows.append(pq.read_table(file).num_rows)
        assert rows == [2, 1]
        assert hint_of(table)["v2Checkpoint"]["path"] == name


def test_the_hash_is_sparks() -> None:
    """Of the strings alone, checked against a plain implementation; with a negative and a long tail."""
    texts = ["", "a", "é", "abcd", "Spark", "part-0000é€😀.parquet", "x" * 37]
    array = pa.array(["before", *texts]).slice(1)
    assert murmur3(array).to_pylist() == [plain_murmur3(text.encode()) for text in texts]
    signed = [number - 2**32 if number >= 2**31 else number for number in murmur3(array).to_pylist()]
    assert parts_of_paths(array, 5).to_pylist() == [number % 5 for number in signed]
    # Spark's documentation: hash('Spark', array(123), 2) is -1321691492.
    chained = plain_murmur3_word(2, plain_murmur3_word(123, plain_murmur3(b"Spark")))
    assert chained - 2**32 == -1321691492


def rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF


def mixed(number: int, word: int) -> int:
    word = rotated(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    return (rotated(number ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF


def finished(number: int, length: int) -> int:
    number ^= length
    number = (number ^ number >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    number = (number ^ number >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16


def plain_murmur3(data: bytes) -> int:
    number, whole = 42, len(data) // 4 * 4
    for start in range(0, whole, 4):
        number = mixed(number, int.from_bytes(data[start : start + 4], "little"))
    for octet in data[whole:]:
        number = mixed(number, (octet - 256 if octet > 127 else octet) & 0xFFFFFFFF)
    return finished(number, len(data))


def plain_murmur3_word(word: int, seed: int) -> int:
    return finished(mixed(seed, word), 4)


class TestColumns:
    def test_the_schema_is_that_of_the_protocol(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"))
        log_at(table).checkpoint()
        schema = checkpoint_of(table).schema
        assert schema.names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
        strings = pa.map_(pa.string(), pa.string())
        column_types = {field.name: {child.name: child.type for child in field.type} for field in schema}
        add_types = column_types["add"]
        vector, parsed = add_types.pop("deletionVector"), add_types.pop("stats_parsed")
        assert {field.name: field.type for field in vector} == {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
        assert add_types == {
            "path": pa.string(),
            "partitionValues": strings,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "tags": strings,
            "baseRowId": pa.int64(),
            "defaultRowCommitVersion": pa.int64(),
            "clusteringProvider": pa.string(),
            "stats": pa.string(),
        }
        bounds = [("id", pa.int64()), ("part", pa.string())]
        assert parsed.field("minValues").type == parsed.field("maxValues").type == pa.struct(bounds)
        assert parsed.field("nullCount").type == pa.struct([("id", pa.int64()), ("part", pa.int64())])
        assert not {"stats", "tags"} & column_types["remove"].keys()
        assert column_types["remove"]["deletionTimestamp"] == pa.int64()
        assert column_types["txn"] == {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}
        assert column_types["protocol"]["minReaderVersion"] == pa.int32()
        assert column_types["metaData"]["configuration"] == strings
        assert all(field.nullable and all(child.nullable for child in field.type) for field in schema)
        of_hint = hint_of(table)["checkpointSchema"]["fields"]
        assert [field["name"] for field in of_hint] == schema.names

    def test_each_row_is_one_action_that_changes_no_data(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"), remove("b", deletionTimestamp=NOW_MS))
        log_at(table).checkpoint()
        rows = checkpoint_of(table).to_pylist()
        assert [sum(action is not None for action in row.values()) for row in rows] == [1] * 4
        assert [row["add"]["dataChange"] for row in rows if row["add"]] == [False]
        assert [row["remove"]["dataChange"] for row in rows if row["remove"]] == [False]

    @pytest.mark.parametrize("as_json", ["true", "false"])
    @pytest.mark.parametrize("as_struct", ["true", "false"])
    def test_statistics_as_the_properties_say(
        self, table: HandWrittenTable, as_json: str, as_struct: str
    ) -> None:
        configuration = {
            "delta.checkpoint.writeStatsAsJson": as_json,
            "delta.checkpoint.writeStatsAsStruct": as_struct,
        }
        table.first_commit(
            add("a", partitionValues={"part": "x"}, stats=stats(1, 2)),
            configuration=configuration,
            partition_columns=["part"],
        )
        log_at(table).checkpoint()
        (row,) = [row for row in checkpoint_of(table)["add"].to_pylist() if row is not None]
        assert row.get("stats") == (stats(1, 2) if as_json == "true" else None)
        assert ("stats" in row) == (as_json == "true")
        assert ("stats_parsed" in row) == ("partitionValues_parsed" in row) == (as_struct == "true")
        if as_struct == "true":
            assert row["partitionValues_parsed"] == {"part": "x"}
            assert row["stats_parsed"]["minValues"] == {"id": 1}

    def test_parsed_values_have_the_types_of_the_table(self, table: HandWrittenTable) -> None:
        schema = StructType(
            [
                StructField("day", DateType()),
                StructField("price", DecimalType(20, 2)),
                StructField("at", TimestampType()),
                StructField("ratio", DoubleType()),
                StructField("tags", ArrayType(StringType())),
                StructField("in", StructType([StructField("n", IntegerType())])),
                StructField("part", DateType()),
            ]
        )
        bounds = {
            "day": "2024-02-29",
            "price": 123456789012345678.25,
            "at": "2024-01-01T00:00:00.123Z",
            "ratio": 3,
            "in": {"n": 7},
        }
        text = json.dumps({"numRecords": 1, "minValues": bounds, "nullCount": {"tags": 1, "in": {"n": 0}}})
        text = text.replace("1.2345678901234568e+17", "123456789012345678.25")
        table.first_commit(
            add("a", partitionValues={"part": "2024-03-01"}, stats=text),
            add("b", partitionValues={"part": None}, stats="no statistics"),
            add("c", partitionValues={"part": ""}),
            schema=schema,
            partition_columns=["part"],
            configuration={"delta.checkpoint.writeStatsAsStruct": "true"},
        )
        log_at(table).checkpoint()
        rows = {row["path"]: row for row in checkpoint_of(table)["add"].to_pylist() if row is not None}
        assert [rows[path]["partitionValues_parsed"]["part"] for path in "abc"] == [
            date(2024, 3, 1),
            None,
            None,
        ]
        assert rows["b"]["stats_parsed"] is None
        assert rows["b"]["stats"] == "no statistics"
        assert rows["c"]["stats_parsed"] is None
        assert rows["a"]["stats_parsed"]["minValues"] == {
            "day": date(2024, 2, 29),
            "price": Decimal("123456789012345678.25"),
            "at": datetime(2024, 1, 1, microsecond=123_000, tzinfo=UTC),
            "ratio": 3.0,
            "in": {"n": 7},
        }
        counts = rows["a"]["stats_parsed"]["nullCount"]
        assert (counts["tags"], counts["in"], counts["day"]) == (1, {"n": 0}, None)

    def test_partition_values_that_python_has_no_words_for(self, table: HandWrittenTable) -> None:
        schema = StructType(
            [
                StructField("id", LongType()),
                StructField("day", DateType()),
                StructField("at", TimestampType()),
                StructField("n", IntegerType()),
                StructField("bytes", BinaryType()),
            ]
        )
        values = [
            {"day": "10000-01-01", "at": "+10000-01-01T00:00:00.000000Z", "n": "1", "bytes": "\1é"},
            {"day": "+10000-01-01", "at": "2024-01-01 00:00:00+0000", "n": "x", "bytes": ""},
            {"day": "2024-01-01", "at": "2024-01-01 00:00:00", "n": "3000000000", "bytes": None},
        ]
        table.first_commit(
            *(add(path, partitionValues=each) for path, each in zip("abc", values, strict=True)),
            schema=schema,
            partition_columns=["day", "at", "n", "bytes"],
            configuration={"delta.checkpoint.writeStatsAsStruct": "true"},
        )
        log_at(table).checkpoint()
        parsed = pc.struct_field(checkpoint_of(table)["add"], "partitionValues_parsed").drop_null()
        assert pc.struct_field(parsed, "day").cast(pa.int32()).to_pylist() == [2_932_897, 2_932_897, 19_723]
        new_year = 1_704_067_200_000_000
        instants = pc.struct_field(parsed, "at").cast(pa.int64()).to_pylist()
        assert instants == [253_402_300_800_000_000, new_year, new_year]
        assert pc.struct_field(parsed, "n").to_pylist() == [1, None, None]
        assert pc.struct_field(parsed, "bytes").to_pylist() == ["\1é".encode(), None, None]
        assert '"binary"' in json.dumps(hint_of(table))
        assert [dict(row) for row in without_commits(table).files["partition_values"].to_pylist()] == values

    def test_a_bound_that_has_no_place_is_lost_alone(self, table: HandWrittenTable) -> None:
        schema = StructType(
            [
                StructField("x", DoubleType()),
                StructField("text", StringType()),
                StructField("day", DateType()),
                StructField("at", TimestampType()),
                StructField("n", IntegerType()),
                StructField("price", DecimalType(5, 2)),
                StructField("in", StructType([StructField("f", DoubleType())])),
            ]
        )
        low = {"x": 1.5, "text": "NaN", "day": "2024-01-01", "at": "2024-01-01T00:00:00.000-08:00", "n": 1}
        low |= {"price": 1.25, "in": {"f": 2.5}}
        high = {"x": "NaN", "text": "Infinity", "day": "10000-01-01", "at": "+10000-01-01T00:00:00.000Z"}
        high |= {"n": 3_000_000_000, "price": 123_456.789, "in": {"f": "-Infinity"}}
        counts = {"x": 0, "in": {"f": 1}}
        whole = {"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": counts}
        strange = {"numRecords": 4, "minValues": 5, "maxValues": {"n": "7", "text": 8, "price": True}}
        table.first_commit(
            add("a", stats=json.dumps(whole)),
            add("b", stats=json.dumps(strange)),
            add("c", stats="[1]"),
            add("d", stats="null"),
            add("e", stats="{} null"),
            add("f", stats='{"numRecords":5,"minValues":{"text":"{} null"}}'),
            *(add(f"{number}", stats=stats(number, number)) for number in range(1_000)),
            schema=schema.add("id", LongType()),
            configuration=AS_STRUCT,
        )
        log_at(table).checkpoint()
        rows = {row["path"]: row for row in checkpoint_of(table)["add"].to_pylist() if row is not None}
        parsed = rows["a"]["stats_parsed"]
        assert parsed["minValues"] == {
            "x": 1.5,
            "text": "NaN",
            "day": date(2024, 1, 1),
            "at": datetime(2024, 1, 1, 8, tzinfo=UTC),
            "n": 1,
            "price": Decimal("1.25"),
            "in": {"f": 2.5},
            "id": None,
        }
        assert {name: value for name, value in parsed["maxValues"].items() if value is not None} == {
            "text": "Infinity",
            "in": {"f": None},
        }
        assert (parsed["numRecords"], parsed["nullCount"]["x"], parsed["nullCount"]["in"]) == (3, 0, {"f": 1})
        assert rows["b"]["stats_parsed"]["numRecords"] == 4
        assert rows["b"]["stats_parsed"]["minValues"] is None
        assert set(rows["b"]["stats_parsed"]["maxValues"].values()) == {None}
        assert [rows[path]["stats_parsed"] for path in "cde"] == [None] * 3
        assert rows["f"]["stats_parsed"]["minValues"]["text"] == "{} null"
        assert all(rows[f"{number}"]["stats_parsed"]["maxValues"]["id"] == number for number in range(1_000))

    def test_only_indexed_columns_have_parsed_statistics(self, table: HandWrittenTable) -> None:
        configuration = {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.dataSkippingNumIndexedCols": "1",
        }
        table.first_commit(add("a", stats=stats(1, 2)), configuration=configuration)
        log_at(table).checkpoint()
        parsed = checkpoint_of(table).schema.field("add").type.field("stats_parsed").type
        assert [field.name for field in parsed.field("nullCount").type] == ["id"]

    def test_a_field_that_no_column_holds_is_left_out_with_a_warning(
        self, table: HandWrittenTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        metadata = meta_data()
        metadata["metaData"]["ofTomorrow"] = 2**63
        table.commit(0, protocol(), metadata, add("a", ofTomorrow=1), add("b", ofTomorrow={"x": 2}))
        log_at(table).checkpoint()
        assert "are in no checkpoint" in caplog.text
        assert "Field ofTomorrow in metaData" in caplog.text
        assert without_commits(table).num_files == 2

    def test_deletion_vectors_stay_as_they_are(self, table: HandWrittenTable) -> None:
        vector = {"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": 9, "cardinality": 1}
        actions = [
            add("a", deletionVector=vector | {"offset": 1}),
            add("b", deletionVector=vector | {"maxRowIndex": 7, "of": {"tomorrow": "x"}}),
            add("c", baseRowId=3),
            add("d", deletionVector=vector | {"offset": 12}, baseRowId=3),
            remove("e", deletionVector=vector, deletionTimestamp=NOW_MS),
            remove("e", deletionTimestamp=NOW_MS),
        ]
        table.first_commit(*actions)
        before = log_at(table).snapshot()
        log_at(table).checkpoint()
        snapshot = without_commits(table)
        written = [decode_actions(json.dumps(action).encode(), "f")[0] for action in actions]
        texts = [json.loads(encode_actions([add])) for add in add_files(snapshot.with_stats(snapshot.files))]
        assert texts == [json.loads(encode_actions([add])) for add in written[:4]]
        assert {remove.deletion_vector for remove in tombstone_actions(snapshot.tombstones)} == {
            None,
            written[4].deletion_vector,
        }
        for ours, theirs in ((before.files, snapshot.files), (before.tombstones, snapshot.tombstones)):
            assert ours["deletion_vector"].to_pylist() == theirs["deletion_vector"].to_pylist()

    def test_a_deletion_vector_of_a_wrong_type_is_no_action(self, table: HandWrittenTable) -> None:
        vector = {"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": 2**40, "cardinality": 1}
        table.first_commit(add("a", deletionVector=vector))
        with pytest.raises(CorruptLogError, match="is not an action"):
            log_at(table).checkpoint()
        assert not list(table.log_directory.glob("*checkpoint*"))


class TestRetention:
    def test_tombstones_within_their_retention_are_kept(self, table: HandWrittenTable) -> None:
        table.first_commit(
            remove("old", deletionTimestamp=NOW_MS - 7 * DAY_MS),
            remove("kept", deletionTimestamp=NOW_MS - 7 * DAY_MS + 1),
            {"remove": {"path": "timeless", "dataChange": True}},
        )
        log_at(table).checkpoint()
        assert [action.path for action in tombstone_actions(without_commits(table).tombstones)] == ["kept"]

    def test_their_retention_is_the_tables(self, table: HandWrittenTable) -> None:
        table.first_commit(
            remove("old", deletionTimestamp=NOW_MS - 2 * 3_600_000),
            remove("kept", deletionTimestamp=NOW_MS - 3_599_999),
            configuration={"delta.deletedFileRetentionDuration": "interval 1 hour"},
        )
        log_at(table).checkpoint()
        assert without_commits(table).tombstones["path"].to_pylist() == ["kept"]

    @pytest.mark.parametrize(
        ("configuration", "kept"),
        [
            ({}, {"new", "old", "timeless"}),
            ({"delta.setTransactionRetentionDuration": "interval 1 day"}, {"new"}),
        ],
    )
    def test_applications(
        self, table: HandWrittenTable, configuration: dict[str, str], kept: set[str]
    ) -> None:
        table.first_commit(
            {"txn": {"appId": "new", "version": 1, "lastUpdated": NOW_MS}},
            {"txn": {"appId": "old", "version": 1, "lastUpdated": NOW_MS - DAY_MS}},
            {"txn": {"appId": "timeless", "version": 1}},
            configuration=configuration,
        )
        log_at(table).checkpoint()
        assert set(without_commits(table).transactions) == kept


class TestHint:
    def test_the_checksum_is_that_of_the_protocols_example(self) -> None:
        content = {
            "k0": "'v 0'",
            "checksum": "adsaskfljadfkjadfkj",
            "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
        }
        assert json_checksum(content) == "6a92d155a59bf2eecbd4b4ec7fd1f875"

    def test_the_order_of_the_fields_is_of_no_account(self) -> None:
        assert json_checksum({"k-": 1, "k": {"a": None}}) == json_checksum({"k": {"a": None}, "k-": 1})
        assert json_checksum({"a": [1, 2]}) != json_checksum({"a": [2, 1]})

    def test_its_fields(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"), remove("b", deletionTimestamp=NOW_MS))
        log_at(table).checkpoint()
        hint = hint_of(table)
        file = table.log_directory / "00000000000000000000.checkpoint.parquet"
        assert (hint["version"], hint["size"], hint["numOfAddFiles"]) == (0, 4, 1)
        assert hint["sizeInBytes"] == file.stat().st_size
        assert "parts" not in hint
        assert hint["checksum"] == json_checksum(hint)

    def test_hadoops_checksum_of_the_file_before_goes(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"))
        stale = [
            table.log_directory / f".{name}.crc"
            for name in ("_last_checkpoint", f"{0:020}.checkpoint.parquet")
        ]
        for file in stale:
            file.write_bytes(b"of another file")
        log_at(table).checkpoint()
        assert not any(file.exists() for file in stale)

    def test_a_later_checkpoint_stays_named(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"))
        slow = log_at(table)
        early = slow.snapshot()
        table.commit(1, add("b"))
        log_at(table).checkpoint()
        hook.checkpoint(slow._files, early, {})
        assert hint_of(table)["version"] == 1

    def test_one_that_is_not_there_does_not(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a"))
        (table.log_directory / "_last_checkpoint").write_text('{"version":7,"size":1}')
        log_at(table).checkpoint()
        assert hint_of(table)["version"] == 0


class TestAfterCommits:
    def test_every_tenth(self, log: DeltaLog) -> None:
        create(log)
        for number in range(21):
            append(log, f"f{number}")
        assert checkpoint_versions(log.path) == [10, 20]
        assert paths(DeltaLog(LocalLogStore(), log.path)) == sorted(f"f{number}" for number in range(21))

    def test_as_often_as_the_property_says(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.checkpointInterval": "2"})
        for number in range(5):
            append(log, f"f{number}")
        assert checkpoint_versions(log.path) == [2, 4]

    def test_as_the_commit_itself_says(self, log: DeltaLog) -> None:
        create(log)
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(configuration={"delta.checkpointInterval": "1"}))
        transaction.commit([], WRITE)
        assert checkpoint_versions(log.path) == [1]

    def test_after_a_lost_race(self, log: DeltaLog) -> None:
        create(log, configuration={"delta.checkpointInterval": "3"})
        slow = log.start_transaction()
        append(log, "a")
        append(log, "b")
        assert slow.commit([add_file("c"), SetTransaction(app_id="x", version=1)], WRITE).version == 3
        assert checkpoint_versions(log.path) == [3]
        for version in range(4):
            Path(log.path, "_delta_log", f"{version:020}.json").unlink()
        assert paths(DeltaLog(LocalLogStore(), log.path)) == ["a", "b", "c"]

    def test_on_another_store(self) -> None:
        path = f"memory://checkpoints-{uuid.uuid4()}/t"
        log = DeltaLog.for_table(path)
        create(log, configuration={"delta.checkpointInterval": "1"})
        append(log, "a")
        for version in range(2):
            log._files.store.delete(log._files.commit_path(version))
        store, table = store_for(path)
        assert paths(DeltaLog(store, table)) == ["a"]

    def test_a_failure_is_a_warning(
        self, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        create(log, configuration={"delta.checkpointInterval": "1"})

        def full(*_: Any) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(LocalLogStore, "open_output", full)
        assert append(log, "a") == 1
        assert paths(log) == ["a"]
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert "Version 1" in record.getMessage()
        assert "no space left" in caplog.text
        assert checkpoint_versions(log.path) == []

    def test_a_failure_on_the_way_leaves_no_part_of_a_file(
        self, table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table.first_commit(add("a"), add("b"))
        monkeypatch.setattr("deltaflow.log.maintenance.checkpoint_writer._file_batches", failing_batches)
        before = os.listdir(table.log_directory)
        with pytest.raises(RuntimeError, match="of the test"):
            log_at(table).checkpoint()
        assert os.listdir(table.log_directory) == before


def failing_batches(*_: Any) -> Any:
    yield from ()
    raise RuntimeError("of the test")


def test_a_checkpoint_of_many_row_groups(table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaflow.log.maintenance.checkpoint_writer._ROWS_PER_GROUP", 3)
    table.first_commit(*(add(f"f{number}", stats=stats(number, 9)) for number in range(10)))
    snapshot = table.log().snapshot()
    before = list(add_files(snapshot.with_stats(snapshot.files), data_change=False))
    log_at(table).checkpoint()
    (file,) = table.log_directory.glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups == 1 + 4
    snapshot = without_commits(table)
    assert list(add_files(snapshot.with_stats(snapshot.files), data_change=False)) == before


def test_commits_of_a_log_without_files_write_checkpoints_and_checksums(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "t")
    create(DeltaLog.for_table(path))
    log = DeltaLog.for_table(path, with_files=False)
    for number in range(11):
        append(log, f"f{number}")
    assert caplog.text == ""
    assert checkpoint_versions(path) == [10]
    assert len(list(Path(path, "_delta_log").glob("*.crc"))) == 12
    log.checkpoint()
    assert checkpoint_versions(path) == [10, 11]
    transaction = log.start_transaction()
    assert transaction.snapshot is not None
    assert transaction.snapshot.num_files == 11


@pytest.mark.parametrize("value", ["1e999", '{"a":\r1}'])
def test_no_field_that_the_protocol_lacks_keeps_a_table_from_its_checkpoint(
    table: HandWrittenTable, value: str
) -> None:
    lines = [json.dumps(action) for action in (protocol(), meta_data(), add("a"))]
    lines[1] = f'{lines[1][:-2]}, "later": {value}}}}}'
    file = table.write(0, "\n".join(lines).encode())
    table.log().checkpoint()
    file.unlink()
    snapshot = table.log().snapshot()
    assert (snapshot.table_id, snapshot.num_files) == ("table-1", 1)
