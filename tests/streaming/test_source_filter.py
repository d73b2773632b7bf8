"""The option sourceFilter: a batch has only files that may hold its rows, and the stream only its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaflow.spark.scan.file_index import ScannedFiles
from deltaflow.streaming import source as streaming_source
from tests.streaming.source_tables import FIELDS, SourceTable, metadata_action, read_batches, read_ids
from tests.tables import ids

pytestmark = pytest.mark.spark

PART = [
    {**FIELDS[0], "name": "p", "type": "string"},
    {**FIELDS[0], "name": "d", "type": "date"},
    {**FIELDS[0], "name": "f", "type": "double"},
]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of files in each batch that Spark plans."""
    numbers: list[int] = []

    def scanned(path: str, partition_columns: tuple[str, ...], files: pa.Table) -> ScannedFiles:
        numbers.append(files.num_rows)
        return ScannedFiles(path, partition_columns, files)

    monkeypatch.setattr(streaming_source, "ScannedFiles", scanned)
    return numbers


def test_char_is_compared_as_batch_queries_compare_it(
    spark: Any, streams: Any, table: str, checkpoint: str
) -> None:
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, c CHAR(3)) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a'), (2, 'b'), (3, 'a')")
    stream, seen = streams.read(table, sourceFilter="c = 'a'"), []

    def see(batch: Any, _: int) -> None:
        assert batch.where("c = 'a'").count() == batch.count()
        seen.extend(sorted(tuple(row) for row in batch.collect()))

    streams.ended(streams.foreach(stream, checkpoint, see))
    assert seen == [(1, "a  "), (3, "a  ")]


@pytest.mark.covers("sourceFilter")
@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
def test_files_are_left_out_before_a_batch_is_made_up(
    streams: Any, planned: list[int], table: str, checkpoint: str, start: dict[str, int]
) -> None:
    """Ten of two hundred files, spread over the table, make one batch of ten."""
    source = SourceTable(table, *([2 * i, 2 * i + 1] for i in range(100)))
    source.commit(*([2 * i, 2 * i + 1] for i in range(100, 200)))
    wanted = [40 * i for i in range(10)]
    sql = f"ID IN ({', '.join(map(str, wanted))}) AND id + 1 > 0"
    options = {"sourceFilter": sql, "maxFilesPerTrigger": 10, **start}

    def see(batch: Any, _: int) -> None:
        assert ids(batch) == wanted

    query = streams.ended(streams.foreach(streams.read(table, **options), checkpoint, see))
    assert planned == [10]
    assert query.lastProgress["sources"][0]["metrics"]["numFilesOutstanding"] == "0"
    [offset] = streams.offsets(checkpoint)[0]
    assert '"reservoirVersion":2,"index":-1,"isStartingVersion":false' in offset


@pytest.mark.covers("sourceFilter")
def test_numbers_of_files_stay_and_the_filter_may_change(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, *([i] for i in range(8)))
    query = streams.foreach(
        streams.read(table, sourceFilter="id IN (1, 4, 6)", maxFilesPerTrigger=1),
        checkpoint,
        lambda batch, _: batch.collect(),
    )
    streams.ended(query)
    ends = [json.loads(offset)["index"] for [offset] in streams.offsets(checkpoint).values()]
    # Each batch ends before the next file that the filter keeps.
    assert ends == [3, 5, -1]
    streams.forget_all_but(checkpoint, 0)
    assert read_batches(streams, source, checkpoint, sourceFilter="id <> 5") == [[4, 6, 7]]


@pytest.mark.covers("sourceFilter")
@pytest.mark.parametrize(
    ("sql", "files", "rows"),
    [
        ("p = 'a'", 2, [0, 1]),
        ("p IS NULL", 1, [3]),
        ("p LIKE 'b%' OR d >= '2024-03-01'", 2, [2, 3]),
        ("d < DATE'2024-02-01'", 2, [0, 1]),
        ("d BETWEEN '2024-02-01' AND '2024-02-28'", 1, [2]),
        # NaN is larger than every number, in Spark.
        ("f > 5", 2, [2, 3]),
        ("NOT (p = 'a' AND id = 0)", 3, [1, 2, 3]),
        # Statistics cannot decide these. Spark filters the rows.
        ("length(p) = 1", 3, [0, 1, 2]),
        ("rand() < 2", 4, [0, 1, 2, 3]),
    ],
)
@pytest.mark.sampled(3)
def test_partition_values_and_statistics(
    streams: Any, planned: list[int], table: str, checkpoint: str, sql: str, files: int, rows: list[int]
) -> None:
    source = SourceTable(table)
    source.commit(metaData=metadata_action(*FIELDS, *PART, partition_columns=("p", "d", "f")))
    values = [
        ("a", "2024-01-01", "1.5"),
        ("a", "2024-01-02", "-0.0"),
        ("b", "2024-02-01", "NaN"),
        (None, "2024-03-01", "7"),
    ]
    adds = [
        {**source.file([number]), "dataChange": True, "partitionValues": dict(zip("pdf", value, strict=True))}
        for number, value in enumerate(values)
    ]
    source.commit_file(1).write_text(
        "".join([source.commit_file(1).read_text(), *(json.dumps({"add": add}) + "\n" for add in adds)])
    )
    assert read_ids(streams, source, checkpoint, sourceFilter=sql) == rows
    assert planned == [files]


@pytest.mark.covers("sourceFilter")
@pytest.mark.parametrize(("now", "files"), [("unix_timestamp()", 2), ("unix_seconds(TIMESTAMP'now')", 3)])
def test_the_time_chooses_no_files(
    streams: Any, planned: list[int], table: str, checkpoint: str, now: str, files: int
) -> None:
    """It is another one for each batch, and the filter is read at the start."""
    source = SourceTable(table, [0], [1], [10**10])
    assert read_ids(streams, source, checkpoint, sourceFilter=f"id > 0 AND id > {now}") == [10**10]
    assert planned == [files]


@pytest.mark.covers("sourceFilter")
def test_the_settings_of_the_start_choose_files_and_rows(
    spark: Any, streams: Any, settings: Any, table: str, checkpoint: str
) -> None:
    """A time zone that the session gets while the query runs moves no midnight."""

    def append(*hours: int) -> None:
        times = " UNION ALL ".join(
            f"SELECT {hour} AS id, timestamp_seconds({hour} * 3600) AS t" for hour in hours
        )
        spark.sql(times).coalesce(1).write.format("delta").mode("append").save(table)

    with settings({"spark.sql.session.timeZone": "UTC"}):
        append(0)
        stream, seen = streams.read(table, sourceFilter="t < '1970-01-02'"), []
        trigger = {"processingTime": "0 seconds"}
        query = streams.foreach(stream, checkpoint, lambda batch, _: seen.extend(ids(batch)), trigger)
        query.processAllAvailable()
        for zone in ("Asia/Tokyo", "America/New_York"):
            with settings({"spark.sql.session.timeZone": zone}):
                append(20)
                append(-20, 26)
                append(27)
                query.processAllAvailable()
        query.stop()
    assert sorted(seen) == [-20, -20, 0, 20, 20]


@pytest.mark.covers("sourceFilter")
def test_a_variable_of_the_session(spark: Any, streams: Any, table: str, checkpoint: str) -> None:
    """It has the value of the start."""
    source = SourceTable(table, [0, 5], [6])
    spark.sql("DECLARE VARIABLE least INT DEFAULT 5")
    try:
        trigger = {"processingTime": "0 seconds"}
        stream, seen = streams.read(table, sourceFilter="ID >= least"), []
        query = streams.foreach(stream, checkpoint, lambda batch, _: seen.extend(ids(batch)), trigger)
        query.processAllAvailable()
        spark.sql("SET VAR least = 3")
        source.commit([4, 7], [4])
        query.processAllAvailable()
        query.stop()
    finally:
        spark.sql("DROP TEMPORARY VARIABLE least")
    assert seen == [5, 6, 7]


@pytest.mark.covers("sourceFilter")
def test_what_is_no_filter(streams: Any, table: str, tmp_path: Path) -> None:
    source = SourceTable(table, [0], [1])
    for sql in ("id >", "x = 1", "id + 1", "id IN (SELECT 1)", ""):
        query = streams.foreach(
            streams.read(table, sourceFilter=sql), str(tmp_path / "c"), lambda batch, _: batch.collect()
        )
        error = streams.failure(query)
        assert (error.code, error.state) == ("DELTA_ILLEGAL_OPTION", "42616")
        assert f"Invalid value '{sql}' for option 'sourceFilter', must be a predicate" in error.message
    assert read_batches(streams, source, tmp_path / "all", sourceFilter="true") == [[0, 1]]
    assert read_batches(streams, source, tmp_path / "none", sourceFilter="false") == []
