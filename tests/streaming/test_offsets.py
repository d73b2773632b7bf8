"""Offsets without a JVM: their JSON, what is refused, and the files between two of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.streaming.offsets import BASE_INDEX, DeltaSourceOffset, parse_offset
from deltaflow.streaming.source import files_between

EXAMPLES = [
    (
        '{"sourceVersion":1,"reservoirId":"id","reservoirVersion":4,"index":2,"isStartingVersion":true}',
        DeltaSourceOffset("id", 4, 2, True),
    ),
    (
        '{"sourceVersion":1,"reservoirId":"id","reservoirVersion":5,"index":-1,"isStartingVersion":false}',
        DeltaSourceOffset("id", 5, BASE_INDEX, False),
    ),
    (
        '{"sourceVersion":1,"reservoirId":"id","reservoirVersion":9,"index":23,"isStartingVersion":false}',
        DeltaSourceOffset("id", 9, 23, False),
    ),
]


@pytest.mark.parametrize(("text", "offset"), EXAMPLES)
def test_json_letter_by_letter(text: str, offset: DeltaSourceOffset) -> None:
    assert offset.json() == text
    assert parse_offset(text, "id", "/t") == offset


def test_other_spellings_of_the_base() -> None:
    spaced = json.dumps(
        {
            "isStartingVersion": False,
            "index": -100,
            "reservoirVersion": 5,
            "reservoirId": "id",
            "sourceVersion": 3,
            "later": {"field": 1},
        }
    )
    assert parse_offset(spaced, "id", "/t") == DeltaSourceOffset("id", 5, BASE_INDEX, False)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sourceVersion": 0}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": 2}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": None}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"sourceVersion": 4}, "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"),
        ({"sourceVersion": 3, "index": -20}, "DELTA_UNSUPPORTED_SCHEMA_TRACKING_OFFSET"),
        ({"sourceVersion": 3, "index": -19}, "DELTA_UNSUPPORTED_SCHEMA_TRACKING_OFFSET"),
        ({"reservoirId": "other"}, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"),
        ({"reservoirVersion": "5"}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"isStartingVersion": 1}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
    ],
)
def test_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(DeltaIllegalStateException) as refused:
        parse_offset(json.dumps({**json.loads(EXAMPLES[0][0]), **changes}), "id", "/t")
    assert refused.value.error_class == code
    assert "/t" in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"reservoirId":"id"}'])
def test_no_offset_at_all(text: str) -> None:
    with pytest.raises(DeltaIllegalStateException) as refused:
        parse_offset(text, "id", "/t")
    assert refused.value.error_class in ("DELTA_INVALID_SOURCE_OFFSET_FORMAT", "DELTA_INVALID_SOURCE_VERSION")


def test_a_planned_batch_does_not_read_another_table(tmp_path: Path) -> None:
    """The table was deleted and made anew after the batch was planned."""
    import deltalake

    table = str(tmp_path / "table")
    deltalake.write_deltalake(table, pa.table({"id": [1]}))
    end = DeltaSourceOffset("planned-for", 1, BASE_INDEX, False)
    description = {
        "path": table,
        "id": "planned-for",
        "start": None,
        "end": end.json(),
        "schema": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "options": {
            "max_files_per_trigger": 1,
            "ignore_deletes": False,
            "ignore_changes": False,
            "skip_change_commits": False,
        },
    }
    with pytest.raises(DeltaIllegalStateException) as refused:
        files_between(description)
    assert refused.value.error_class == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
