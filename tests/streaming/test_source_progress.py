"""The source in Spark's progress; restarts with a changed query or another table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.streaming.source_tables import SourceTable
from tests.tables import ids, load

pytestmark = pytest.mark.spark


def test_progress(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [0, 1], [2])
    source.commit([3, 4, 5])
    source.commit([6])
    query = streams.foreach(
        streams.read(table, startingVersion=0, maxFilesPerTrigger=1),
        checkpoint,
        lambda batch, _: batch.count(),
    )
    streams.ended(query)
    # The progress as JSON, because the releases of PySpark parse its offsets differently.
    told = [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]
    assert [progress["numInputRows"] for progress in told] == [2, 1, 3, 1]
    sources = [progress["sources"][0] for progress in told]
    assert {found["description"] for found in sources} == {f"DeltaSource[file:{table}]"}
    assert [found["numInputRows"] for found in sources] == [2, 1, 3, 1]
    ends = [found["endOffset"] for found in sources]
    starts = [found["startOffset"] for found in sources]
    assert starts == [None, *ends[:-1]]
    assert [(end["reservoirVersion"], end["index"]) for end in ends] == [(0, 0), (1, -1), (2, -1), (3, -1)]
    assert [found["latestOffset"] for found in sources] == [ends[-1]] * 4
    metrics = [found["metrics"] for found in sources]
    assert [int(found["numFilesOutstanding"]) for found in metrics] == [3, 2, 1, 0]
    sizes = [source.size(number) for number in range(4)]
    assert [int(found["numBytesOutstanding"]) for found in metrics] == [
        sum(sizes[1:]),
        sum(sizes[2:]),
        sizes[3],
        0,
    ]
    assert [found["versionsBehind"] for found in metrics] == ["3", "2", "1", "0"]
    assert [found["secondsBehind"].isdigit() for found in metrics] == [True] * 4
    assert metrics[-1]["secondsBehind"] == "0"


def test_a_static_table_is_as_new_as_the_batch(streams: Any, table: str, checkpoint: str) -> None:
    source = SourceTable(table, [1], [2], [3])
    static = SourceTable(f"{table}-static", [1])
    seen: list[list[int]] = []

    def see(batch: Any, _: int) -> None:
        seen.append(ids(batch))
        static.commit([len(seen) + 1])

    frame = load(streams.spark, static.path)
    joined = streams.read(source.path, maxFilesPerTrigger=1).join(frame, "id")
    streams.ended(streams.foreach(joined, checkpoint, see))
    assert seen == [[1], [2], [3]]


def test_a_query_that_changes_goes_on(streams: Any, table: str, checkpoint: str) -> None:
    """Another filter, another projection, other limits: the offsets are those of the table."""
    source = SourceTable(table, *([2 * i, 2 * i + 1] for i in range(3)))

    def run(frame: Any, batches: int) -> list[Any]:
        seen: list[Any] = []

        def see(batch: Any, _: int) -> None:
            if len(seen) == batches:
                raise ValueError("enough")
            seen.append(sorted(tuple(row) for row in batch.collect()))

        query = streams.foreach(frame, checkpoint, see)
        if batches < 3:
            with pytest.raises(StreamingQueryException, match="enough"):
                streams.ended(query)
        else:
            streams.ended(query)
        return seen

    first = streams.read(table, maxFilesPerTrigger=1).where("id > 0")
    assert run(first, 1) == [[(1,)]]
    # The planned batch comes with its files, through the changed query.
    second = streams.read(table, maxFilesPerTrigger=7).selectExpr("id * 10 AS tens", "'x' AS x")
    assert run(second, 1) == [[(20, "x"), (30, "x")]]
    source.commit([6])
    assert run(streams.read(table).where("id % 2 = 0"), 3) == [[(4,)], [(6,)]]
