from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from deltaflow.errors import CorruptLogError
from deltaflow.log import (
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
    decode_actions,
    encode_actions,
)
from tests.log.hand_written import add, add_file, meta_data, protocol

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.", "offset": 4, "sizeInBytes": 40, "cardinality": 6}
ACTIONS: list[dict[str, Any]] = [
    protocol(),
    protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]),
    meta_data(configuration={"delta.appendOnly": "true"}),
    add("a%20b.parquet", partitionValues={"p": None, "q": ""}, stats='{"numRecords":1}', tags={"t": None}),
    add("c", deletionVector=VECTOR, baseRowId=0, defaultRowCommitVersion=4, clusteringProvider="liquid"),
    {
        "remove": {
            "path": "a",
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": 1,
        }
    },
    {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}},
    {"txn": {"appId": "app", "version": 364475, "lastUpdated": 5}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {
        "commitInfo": {
            "timestamp": 1,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "txnId": "x",
        }
    },
]


def round_trip(action: dict[str, Any]) -> dict[str, Any]:
    return json.loads(encode_actions(decode_actions(json.dumps(action).encode(), "f")))


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: next(iter(action)))
def test_every_action_is_written_as_it_was_read(action: dict[str, Any]) -> None:
    assert round_trip(action) == action


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: next(iter(action)))
def test_unknown_fields_survive(action: dict[str, Any]) -> None:
    name, fields = next(iter(action.items()))
    extended = {name: fields | {"newField": {"a": [1.10, None]}, "other": None}}
    assert round_trip(extended) == extended
    assert type(decode_actions(json.dumps(extended).encode(), "f")[0]).__name__ != "UnknownAction"


def test_unknown_fields_of_nested_values_survive() -> None:
    action = add("c", deletionVector=VECTOR | {"more": 1})
    assert round_trip(action) == action
    metadata = meta_data()
    metadata["metaData"]["format"]["more"] = "x"
    assert round_trip(metadata) == metadata


def test_unknown_numbers_keep_their_digits() -> None:
    line = b'{"txn":{"appId":"a","version":1,"price":1.10000000000000000000001}}\n'
    assert encode_actions(decode_actions(line, "f")) == line


def test_unknown_actions_survive() -> None:
    action = {"actionOfTheFuture": {"version": 1}}
    (decoded,) = decode_actions(json.dumps(action).encode(), "f")
    assert isinstance(decoded, UnknownAction)
    assert round_trip(action) == action


def test_an_unknown_action_may_stand_on_the_line_of_a_known_one() -> None:
    decoded = decode_actions(b'{"txn":{"appId":"a","version":1},"future":{"x":1}}', "f")
    assert decoded == [SetTransaction(app_id="a", version=1), UnknownAction("future", Raw(b'{"x":1}'))]


def test_a_null_or_missing_field_is_none_and_none_is_not_written() -> None:
    (decoded,) = decode_actions(b'{"txn":{"appId":"a","version":1,"lastUpdated":null}}', "f")
    assert decoded == SetTransaction(app_id="a", version=1)
    assert encode_actions([decoded]) == b'{"txn":{"appId":"a","version":1}}\n'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"configuration": None}, {}),
        ({"configuration": {"a": "1", "delta.appendOnly": None}}, {"configuration": {"a": "1"}}),
        ({"format": None}, {}),
        ({"format": {"provider": "parquet", "options": None}}, {}),
        ({"format": {"provider": "parquet", "options": {"a": None}}, "new": None}, {"new": None}),
    ],
)
def test_a_property_that_is_null_is_not_set(written: dict[str, Any], meant: dict[str, Any]) -> None:
    """As releases of delta-rs before 0.18 wrote a property without a value."""
    plain = meta_data()["metaData"]
    assert round_trip({"metaData": plain | written}) == {"metaData": plain | meant}


def test_what_the_protocol_requires_is_written_even_when_empty() -> None:
    encoded = json.loads(encode_actions([Metadata(id="i", schema_string="{}", partition_columns=[])]))[
        "metaData"
    ]
    assert encoded == {
        "id": "i",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": "{}",
        "partitionColumns": [],
        "configuration": {},
    }


def test_odd_provenance_does_not_break_a_table() -> None:
    action = {"commitInfo": {"timestamp": "yesterday", "operation": "WRITE", "operationMetrics": 5}}
    (info,) = decode_actions(json.dumps(action).encode(), "f")
    assert isinstance(info, CommitInfo)
    assert (info.operation, info.timestamp, info.operation_metrics) == ("WRITE", None, None)
    assert round_trip(action) == action


def test_the_action_that_removes_a_file_keeps_what_was_known_of_it() -> None:
    (added,) = decode_actions(
        json.dumps(add("c", deletionVector=VECTOR, baseRowId=0, stats="{}")).encode(), "f"
    )
    assert isinstance(added, AddFile)
    removed = added.remove(7)
    assert removed == RemoveFile(
        path="c",
        deletion_timestamp=7,
        data_change=True,
        extended_file_metadata=True,
        partition_values={},
        size=10,
        stats="{}",
        deletion_vector=added.deletion_vector,
        base_row_id=0,
    )


def test_blank_lines_and_windows_line_ends_are_no_actions() -> None:
    data = b'\r\n{"txn":{"appId":"a","version":1}}\r\n\n'
    assert decode_actions(data, "f") == [SetTransaction(app_id="a", version=1)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"a"',
        b'{"add":{"path":"a"}}',
        b'{"add":"a"}',
        b'{"txn":{"appId":"a","version":"1"}}',
        b'{"txn":{"appId":"a","version":1}} {"txn":{"appId":"b","version":1}}',
        b'{"txn":{"appId":"a","version":1},"add":{}}',
        b'{"txn":{"appId":"a","version":1},"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
        b'{"txn":{"appId":"a","version":9223372036854775808}}',
        b'{"txn":{"appId":"\\ud800","version":1}}',
        b"[]",
        b"7",
        b"\x00\x00\x00",
        b'{"txn":{"appId":"\xff","version":1}}',
        b"[" * 100_000,
    ],
)
def test_a_broken_line_names_file_and_line(line: bytes) -> None:
    with pytest.raises(CorruptLogError) as raised:
        decode_actions(encode_actions([add_file("a")]) + line, "/t/_delta_log/5.json")
    assert "Line 2 of /t/_delta_log/5.json" in str(raised.value)
    assert raised.value.file == "/t/_delta_log/5.json"


def test_protocol_without_lists_writes_none() -> None:
    assert encode_actions([Protocol(min_reader_version=1, min_writer_version=2)]) == (
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    )
