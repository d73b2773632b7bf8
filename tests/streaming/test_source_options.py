"""Every option of the streaming source: its effect on the rows, and refused values."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaUnsupportedOperationException,
)
from tests.streaming.source_tables import SourceTable, read_batches

pytestmark = pytest.mark.spark


ILLEGAL = [
    *(
        ("maxFilesPerTrigger", value, "must be a positive integer")
        for value in ("0", "-1", "ten", "1.5", "2147483648", " 1", "1_0")
    ),
    *(
        ("maxBytesPerTrigger", value, "must be a size configuration such as '10g'")
        for value in ("0", "-1g", "1x", "1.5g", "", "9223372036854775808")
    ),
    ("maxRowsPerTrigger", "0", "must be a positive integer"),
    ("startingVersion", "-1", "must be greater than or equal to zero"),
    ("startingVersion", "Latest", "must be greater than or equal to zero"),
    ("endingVersion", "latest", "must be greater than or equal to zero"),
    *(
        (name, value, "must be 'true' or 'false'")
        for name in (
            "ignoreDeletes",
            "ignoreChanges",
            "skipChangeCommits",
            "ignoreFileDeletion",
            "failOnDataLoss",
        )
        for value in ("yes", "")
    ),
]


@pytest.mark.covers(
    "DELTA_ILLEGAL_OPTION",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "startingVersion",
    "endingVersion",
)
def test_illegal_values_are_told_when_the_query_starts(streams: Any, table: str, checkpoint: str) -> None:
    SourceTable(table, [1])
    seen: list[Any] = []
    for name, value, explain in ILLEGAL:
        source = streams.read(table, **{name.upper(): value})
        error = streams.failure(streams.foreach(source, checkpoint, lambda batch, _: seen.append(batch)))
        assert (error.code, error.state) == ("DELTA_ILLEGAL_OPTION", "42616")
        assert f"Invalid value '{value}' for option '{name}', {explain}" in error.message
    assert seen == []


@pytest.mark.covers("maxFilesPerTrigger", "maxBytesPerTrigger", "maxRowsPerTrigger")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]),
        ({"maxFilesPerTrigger": 2}, [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]),
        # The next file is admitted as long as a byte is left, so the last one may exceed the limit.
        ({"maxBytesPerTrigger": "1b"}, [[0], [1, 2], [3], [4, 5, 6], [7], [8, 9]]),
        ({"maxBytesPerTrigger": "{two}"}, [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]),
        ({"maxBytesPerTrigger": "1gB"}, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]),
        ({"maxBytesPerTrigger": "1g", "maxFilesPerTrigger": 5}, [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]),
        ({"maxBytesPerTrigger": "1", "maxFilesPerTrigger": 5}, [[0], [1, 2], [3], [4, 5, 6], [7], [8, 9]]),
        ({"maxRowsPerTrigger": 4}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        ({"maxRowsPerTrigger": 3, "maxFilesPerTrigger": 1}, [[0], [1, 2], [3], [4, 5, 6], [7], [8, 9]]),
    ],
)
@pytest.mark.sampled(3)
def test_limits_of_a_batch(
    streams: Any, table: str, checkpoint: str, options: dict[str, object], wanted: list[list[int]]
) -> None:
    source = SourceTable(table, [0], [1, 2], [3])
    source.commit([4, 5, 6])
    if "maxBytesPerTrigger" in options:
        size = source.size(0) + source.size(1) // 2
        options = {**options, "maxBytesPerTrigger": str(options["maxBytesPerTrigger"]).format(two=size)}
    source.commit([7], [8, 9])
    assert read_batches(streams, source, checkpoint, startingVersion=0, **options) == wanted


@pytest.mark.covers("ignoreDeletes", "ignoreChanges", "skipChangeCommits", "ignoreFileDeletion")
@pytest.mark.covers("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES")
@pytest.mark.parametrize(
    ("options", "deleted", "changed"),
    [
        ({}, "DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
        ({"ignoreDeletes": "True"}, [9], "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
        ({"ignoreChanges": "true"}, [9], [2, 3, 9]),
        ({"ignoreFileDeletion": "true"}, [9], [2, 3, 9]),
        ({"skipChangeCommits": "true"}, [9], [9]),
        ({"skipChangeCommits": "true", "ignoreChanges": "true"}, [9], [9]),
    ],
)
@pytest.mark.sampled(6)
def test_commits_that_delete_or_rewrite(
    streams: Any, table: str, tmp_path: Any, options: dict[str, str], deleted: object, changed: object
) -> None:
    for change, wanted in (("deleted", deleted), ("changed", changed)):
        path, checkpoint = f"{table}-{change}", str(tmp_path / change)
        source = SourceTable(path, [1], [2])
        assert read_batches(streams, source, checkpoint) == [[1, 2]]
        # The stream ignores a commit that only rearranges rows.
        source.commit([2], data_change=False, remove=("f001.parquet",))
        version = source.commit(*([[2, 3]] if change == "changed" else []), remove=("f000.parquet",))
        source.commit([9])
        if isinstance(wanted, list):
            found = read_batches(streams, source, checkpoint, **options)
            assert [row for rows in found for row in rows] == wanted
            continue
        query = streams.foreach(streams.read(path, **options), checkpoint, lambda batch, _: batch.collect())
        error = streams.failure(query)
        assert (error.code, error.state) == (wanted, "0A000")
        assert 'TEST ({"by":"hand"})' in error.message
        assert f"version {version}" in error.message
        goes_on = ["skipChangeCommits", "ignoreChanges"]
        for option in [*goes_on, "ignoreDeletes"] if change == "deleted" else goes_on:
            assert f"'{option}'" in error.message


@pytest.mark.covers("ignoreFileDeletion")
def test_a_deprecated_option_warns(
    streams: Any, table: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = SourceTable(table, [1])
    with caplog.at_level(logging.INFO, "deltaflow.streaming.source_options"):
        assert read_batches(streams, source, checkpoint, ignoreFileDeletion=True, nobodyKnows="this") == [[1]]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "nobodyknows" in caplog.records[0].message.lower()
    assert "ignoreFileDeletion is deprecated" in caplog.records[1].message


@pytest.mark.covers("excludeRegex")
def test_files_that_a_regex_excludes(streams: Any, table: str, checkpoint: str) -> None:
    """Java's: Python knows neither possessive quantifiers nor \\p{Alpha}. Offsets count them all the same."""
    source = SourceTable(table, [0], [1], [2])
    source.commit([3], [4])
    exclude = r"f00*+1|\p{Alpha}003"
    found = read_batches(streams, source, checkpoint, excludeRegex=exclude, maxFilesPerTrigger=2)
    assert found == [[0], [2], [4]]
    ends = [offset[0].partition('"reservoirVersion":')[2] for offset in streams.offsets(checkpoint).values()]
    assert ends == [
        '1,"index":1,"isStartingVersion":true}',
        '1,"index":3,"isStartingVersion":true}',
        '2,"index":-1,"isStartingVersion":false}',
    ]


@pytest.mark.covers("excludeRegex", "DELTA_REGEX_OPT_SYNTAX_ERROR")
def test_a_regex_that_is_none(streams: Any, table: str, checkpoint: str) -> None:
    SourceTable(table, [1])
    query = streams.foreach(
        streams.read(table, excludeRegex="(a"), checkpoint, lambda batch, _: batch.collect()
    )
    error = streams.failure(query)
    assert (error.code, error.state) == ("DELTA_REGEX_OPT_SYNTAX_ERROR", "2201B")
    assert "Please recheck your syntax for 'excludeRegex'" in error.message


NEEDS = {
    "withEventTimeOrder": "event time order",
    "computeUpdates": "all files of a commit",
    "netChanges": "all commits of a range",
}


@pytest.mark.covers("withEventTimeOrder")
def test_options_whose_features_are_to_come(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [1])
    for name, feature in NEEDS.items():
        with pytest.raises(DeltaUnsupportedOperationException, match=f"{name} needs .*{feature}") as refused:
            streams.read(table, **{name.upper(): "true"})
        assert (refused.value.error_class, refused.value.sqlstate) == ("DELTA_UNSUPPORTED_OPTION", "0AKDC")
    assert read_batches(streams, source, checkpoint, withEventTimeOrder="false") == [[1]]


@pytest.mark.covers("versionAsOf", "timestampAsOf", "path", "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS")
def test_a_stream_does_not_travel_in_time(streams: Any, table: str, checkpoint: str) -> None:
    SourceTable(table, [1])
    reader = streams.spark.readStream.format("delta")
    for load in (
        lambda: streams.read(table, versionAsOf=0),
        lambda: streams.read(table, TIMESTAMPASOF="2024-01-01"),
        lambda: streams.read(f"{table}@v0"),
        lambda: streams.read(f"{table}@20240101000000000"),
    ):
        with pytest.raises(DeltaUnsupportedOperationException, match="Cannot time travel") as refused:
            load()
        assert refused.value.error_class == "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"
        assert refused.value.sqlstate == "0AKDC"
    named_so = SourceTable(f"{table}@v0", [7])
    assert read_batches(streams, named_so, checkpoint) == [[7]]
    with pytest.raises(DeltaIllegalArgumentException, match="'path' is not specified"):
        reader.load()


@pytest.mark.covers("schema", "DELTA_READ_SOURCE_SCHEMA_CONFLICT")
def test_a_given_schema_is_the_tables(streams: Any, table: str, checkpoint: str) -> None:
    SourceTable(table, [1])
    reader = streams.spark.readStream.format("delta")
    assert streams.batches(reader.schema("id BIGINT NOT NULL").load(table), checkpoint) == {0: [1]}
    for other in ("id INT", "ID BIGINT", "id BIGINT, x INT"):
        with pytest.raises(DeltaIllegalArgumentException, match=r"Remove \.schema") as refused:
            streams.spark.readStream.format("delta").schema(other).load(table)
        assert refused.value.error_class == "DELTA_READ_SOURCE_SCHEMA_CONFLICT"
        assert refused.value.sqlstate == "42K07"
