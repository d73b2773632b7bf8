"""Offsets without a JVM: their JSON, what is refused, and the files between two of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset, check_advance, parse_offset
from deltaflow.streaming.reading import DescribedBatch
from deltaflow.streaming.source import files_of_batch
from deltaflow.streaming.source_options import source_options

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
    """The table was deleted and created again after the batch was planned."""
    import deltalake

    table = str(tmp_path / "table")
    deltalake.write_deltalake(table, pa.table({"id": [1]}))
    end = DeltaSourceOffset("planned-for", 1, BASE_INDEX, False)
    planned = DescribedBatch(
        path=table,
        id="planned-for",
        schema_version=0,
        schema='{"type":"struct","fields":[]}',
        partition_columns=(),
        options=source_options({}, {}),
        mapping_mode="none",
        start=None,
        end=end.json(),
        newest_time_ms=0,
    )
    with pytest.raises(DeltaIllegalStateException) as refused:
        files_of_batch(msgspec.to_builtins(planned))
    assert refused.value.error_class == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


@pytest.mark.parametrize(
    ("start", "end", "moved"),
    [
        ((4, 2, False), (4, 2, True), "'isInitialSnapshot' flipped incorrectly"),
        ((4, 2, False), (3, 5, False), "'reservoirVersion' moved back"),
        ((4, 2, False), (4, 1, False), "'index' moved back"),
        ((4, 0, False), (4, BASE_INDEX, False), "'index' moved back"),
    ],
)
def test_offsets_that_go_back(start: tuple[int, int, bool], end: tuple[int, int, bool], moved: str) -> None:
    with pytest.raises(DeltaIllegalStateException, match=moved):
        check_advance(DeltaSourceOffset("id", *start), DeltaSourceOffset("id", *end), "/t")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ((4, 2, True), (5, BASE_INDEX, False)),
        ((4, 2, False), (4, 2, False)),
        ((4, BASE_INDEX, True), (4, 0, True)),
    ],
)
def test_offsets_that_go_on(start: tuple[int, int, bool], end: tuple[int, int, bool]) -> None:
    check_advance(DeltaSourceOffset("id", *start), DeltaSourceOffset("id", *end), "/t")
