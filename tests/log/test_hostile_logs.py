"""Damaged commits: the answer is a table or an error of ours, never a crash of a library."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaflow.errors import CorruptLogError, DeltaError
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

ACTIONS = [
    protocol(),
    meta_data(partition_columns=["part"], configuration={"delta.appendOnly": "false"}),
    add("a%20b", partitionValues={"part": "x"}, stats='{"numRecords":1}', tags={"a": "b"}),
    remove("q", size=4),
    {"txn": {"appId": "q", "version": 1}},
    {"commitInfo": {"timestamp": 1, "operation": "W", "operationParameters": {}}},
]
CONTENT = "\n".join(json.dumps(action) for action in ACTIONS).encode()
PIECES = [
    b"99999999999999999999999",
    b'"\\ud800"',
    b"null",
    b"1e400",
    b"-1",
    b"{}",
    b"[]",
    b"\x00",
    b'"%FF"',
    b"\n",
]


@settings(max_examples=80, deadline=None)
@given(
    position=st.integers(0, len(CONTENT) - 1),
    length=st.integers(0, 12),
    piece=st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)),
)
def test_damage_anywhere_in_a_commit(position: int, length: int, piece: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = HandWrittenTable(Path(directory) / "t")
        table.write(0, CONTENT[:position] + piece + CONTENT[position + length :])
        message = table.path
        try:
            snapshot = table.log().snapshot()
            assert snapshot.num_files == len(snapshot.files.to_pylist())
            assert snapshot.schema is not None
        except DeltaError as error:
            message = str(error)
        assert table.path in message


@pytest.mark.parametrize("action_name", ["add", "commitInfo", "future"])
def test_bytes_that_are_no_text_are_found_in_unknown_fields_too(
    table: HandWrittenTable, action_name: str
) -> None:
    line = {"add": add("a"), "commitInfo": {"commitInfo": {}}, "future": {"future": {}}}[action_name]
    line[action_name]["unknown"] = "?"
    file = table.first_commit(line)
    file.write_bytes(file.read_bytes().replace(b'"?"', b'"\xc4"'))
    with pytest.raises(CorruptLogError, match=f"Line 3 of {file}"):
        table.log().snapshot()
