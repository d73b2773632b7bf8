"""A lost checkpoint is rebuilt from the table, by the code that the documentation gives."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.tables import commit_info, versions

pytestmark = pytest.mark.spark

DOCUMENT = Path(__file__).parents[2] / "docs" / "lost-checkpoint.md"


def rebuild(table: str, checkpoint: str, query_id: str | None = None) -> None:
    """Runs the documentation's code."""
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    exec(code, {"table": table, "checkpoint": checkpoint, "query_id": query_id})


@pytest.fixture
def other(tmp_path: Path) -> str:
    """A second table to read."""
    return str(tmp_path / "other")


def test_offsets_of_every_batch_are_in_the_table(
    streams: Any, table: str, other: str, sink: str, checkpoint: str
) -> None:
    streams.append(table, 0, 10, files=2)
    streams.append(other, 10, 20)
    both = streams.read(table, maxFilesPerTrigger=1).union(streams.read(other, maxFilesPerTrigger=1))
    streams.copy(both, sink, checkpoint)
    offsets = streams.offsets(checkpoint)
    assert len(offsets) > 1
    for batch, of_batch in offsets.items():
        assert len(of_batch) == 2
        assert commit_info(sink, batch)["sourceOffsets"] == of_batch


@pytest.mark.parametrize("planned", [False, True], ids=["between batches", "in a batch"])
@pytest.mark.sampled(2)
def test_the_stream_goes_on(
    streams: Any, table: str, other: str, sink: str, checkpoint: str, planned: bool
) -> None:
    streams.append(table, 0, 10, files=2)
    streams.append(other, 10, 20)

    def both() -> Any:
        return streams.read(table, maxFilesPerTrigger=1).union(streams.read(other, maxFilesPerTrigger=1))

    query = streams.copy(both(), sink, checkpoint)
    streams.append(table, 20, 30)
    if planned:
        broken = both().selectExpr("IF(id >= 20, raise_error('stop'), id) AS id")
        streams.failed(streams.write(broken, sink, checkpoint))
        assert max(streams.offsets(checkpoint)) == versions(sink)[-1] + 1
    # Another stream writes the table later.
    streams.copy(streams.read(other).selectExpr("id + 100 AS id"), sink, f"{checkpoint}2")
    before = versions(sink)

    shutil.rmtree(checkpoint)
    rebuild(sink, checkpoint, query.id)
    streams.append(other, 30, 40)
    again = streams.copy(both(), sink, checkpoint)
    assert again.id == query.id
    assert streams.ids(sink) == [*range(40), *range(110, 120)]
    new = [commit_info(sink, version) for version in versions(sink)[len(before) :]]
    batches = [int(info["operationParameters"]["epochId"]) for info in new]
    assert batches == list(range(batches[0], batches[0] + len(new)))
    assert batches[0] == len(before) - 1


def test_an_older_checkpoint(
    streams: Any, table: str, sink: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its batches are skipped by their numbers, and the log says so; a rebuilt one goes on."""
    streams.append(table, 0, 2)
    streams.copy(streams.read(table), sink, checkpoint)
    shutil.copytree(checkpoint, f"{checkpoint}-copy")
    for first in (2, 4):
        streams.append(table, first, first + 2)
        streams.copy(streams.read(table), sink, checkpoint)
    assert not caplog.messages
    streams.append(table, 6, 8)
    streams.copy(streams.read(table), sink, f"{checkpoint}-copy")
    [warning] = [message for message in caplog.messages if "is skipped" in message]
    assert "batch 1" in warning
    assert "the table has batch 2" in warning
    assert streams.ids(sink) == list(range(6))
    rebuild(sink, f"{checkpoint}-new")
    streams.copy(streams.read(table), sink, f"{checkpoint}-new")
    assert streams.ids(sink) == list(range(8))


def test_without_a_query_the_last_one_is_taken(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 5)
    query = streams.copy(streams.read(table), sink, checkpoint)
    streams.append(sink, 5, 6)
    # The log may also hold log compactions, which have no commitInfo.
    log = Path(sink, "_delta_log")
    lines = [line for version in (0, 1) for line in (log / f"{version:020}.json").read_text().splitlines()]
    kept = [line for line in lines if '"commitInfo"' not in line]
    (log / f"{0:020}.{1:020}.compacted.json").write_text("\n".join(kept))
    shutil.rmtree(checkpoint)
    rebuild(sink, checkpoint)
    streams.append(table, 6, 9)
    assert streams.copy(streams.read(table), sink, checkpoint).id == query.id
    assert streams.ids(sink) == list(range(9))


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="needs sources with names")
def test_sources_with_names(streams: Any, setting: Any, table: str, sink: str, checkpoint: str) -> None:
    """Spark finds them by their names if the entry says so, whatever the session does."""
    setting("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    setting("spark.sql.streaming.offsetLog.formatVersion", "2")

    def run() -> None:
        named = streams.spark.readStream.format("delta").name("events").option("startingVersion", 0)
        streams.copy(named.load(table), sink, checkpoint)

    streams.append(table, 0, 5)
    run()
    shutil.rmtree(checkpoint)
    rebuild(sink, checkpoint)
    streams.append(table, 5, 9)
    run()
    assert streams.ids(sink) == list(range(9))
