"""Streams of delta-spark go on here from their checkpoints, as they would there.

Needs the folder `streams` of the real tables: DELTAFLOW_GOLDENS, or shared/goldens beside the repository.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.tables import commit_info, read_commit, versions

pytestmark = pytest.mark.spark

DEFAULT = Path(__file__).parents[2].parent / "shared" / "goldens"
STREAMS = Path(os.environ.get("DELTAFLOW_GOLDENS", DEFAULT)) / "streams"


class Begun:
    """A copy of a stream: its folder, and its entry in the manifest."""

    def __init__(self, name: str, folder: Path, streams: Path = STREAMS) -> None:
        manifest = streams / "manifest.json"
        if not manifest.is_file():
            pytest.skip(f"{manifest} is not there: set DELTAFLOW_GOLDENS")
        [self.entry] = [entry for entry in json.loads(manifest.read_text()) if entry["name"] == name]
        self.folder = folder / name
        shutil.copytree(streams / name, self.folder)
        for path in self.folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.source, self.sink = str(self.folder / "source"), str(self.folder / "sink")
        self.checkpoint = str(self.folder / "checkpoint")


def continued(streams: Any, begun: Begun, **options: object) -> list[dict[str, Any]]:
    """Goes on with a stream into a function, and returns the batches in the manifest's form."""
    found = streams.batches(streams.read(begun.source, **options), begun.checkpoint)
    return [{"batch": batch, "ids": ids} for batch, ids in found.items()]


@pytest.mark.parametrize("name", ["source-in-snapshot", "source-in-commit"])
def test_source(streams: Any, tmp_path: Path, name: str) -> None:
    begun = Begun(name, tmp_path)
    options = begun.entry["options"]
    before = streams.offsets(begun.checkpoint)
    assert continued(streams, begun, **options) == begun.entry["next_batches"]
    after = streams.offsets(begun.checkpoint)
    assert {batch: after[batch] for batch in before} == before
    # New offsets have the same keys as the old ones, in the same order.
    planned = begun.entry["last_offset"]["batch"]
    assert list(json.loads(after[planned + 1][0])) == list(json.loads(before[planned][0]))
    assert json.dumps(json.loads(after[planned + 1][0]), separators=(",", ":")) == after[planned + 1][0]
    assert json.loads(Path(begun.checkpoint, "metadata").read_text())["id"] == begun.entry["query_id"]


@pytest.mark.parametrize("option", ["no option", "ignoreDeletes", "skipChangeCommits", "ignoreChanges"])
def test_source_with_deletes(streams: Any, tmp_path: Path, option: str) -> None:
    begun = Begun("source-with-delete", tmp_path)
    outcome = begun.entry["outcome"][option]
    options = {} if option == "no option" else {option: "true"}
    if outcome["error"] is None:
        assert continued(streams, begun, **options) == outcome["batches"]
        return
    code, version = outcome["error"].removesuffix(")").split(" (")
    seen: list[Any] = []
    query = streams.foreach(
        streams.read(begun.source, **options),
        begun.checkpoint,
        lambda batch, batch_id: seen.append((batch_id, batch.collect())),
    )
    with pytest.raises(StreamingQueryException):
        streams.ended(query)
    message = str(query.exception())
    assert message.startswith(f"[{code}]")
    assert version in message
    assert seen == outcome["batches"] == []


def shape(action: dict[str, Any]) -> Any:
    """The keys of an action, nested ones included, in their order and with the types of their values."""
    return [
        (key, shape(value) if isinstance(value, dict) else type(value).__name__)
        for key, value in action.items()
    ]


def test_sink(streams: Any, tmp_path: Path) -> None:
    begun = Begun("sink-replay", tmp_path)
    entry = begun.entry
    before = versions(begun.sink)
    assert streams.ids(begun.sink) == entry["sink_ids_before"]
    query = streams.copy(streams.read(begun.source, **entry["options"]), begun.sink, begun.checkpoint)
    assert query.id == entry["query_id"]
    assert streams.ids(begun.sink) == entry["sink_ids_after"]
    # The batch that the table already had added no version; each later one added one.
    new = versions(begun.sink)[len(before) :]
    theirs, ours = (
        {next(iter(action)): next(iter(action.values())) for action in read_commit(begun.sink, version)}
        for version in (before[-1], new[0])
    )
    assert [read_commit(begun.sink, v)[1]["txn"]["version"] for v in new] == [
        entry["last_offset"]["batch"] + 1 + i for i in range(len(new))
    ]
    assert list(ours) == list(theirs)
    assert ours["txn"]["appId"] == theirs["txn"]["appId"]
    theirs_info, ours_info = theirs["commitInfo"], ours["commitInfo"]
    # What only deltaflow writes comes last, and other readers ignore it.
    offsets = ours_info.pop("sourceOffsets")
    assert offsets == streams.offsets(begun.checkpoint)[entry["last_offset"]["batch"] + 1]
    assert shape(ours_info) == shape(theirs_info)
    assert shape(ours["txn"]) == shape(theirs["txn"])
    for name in ("operation", "isolationLevel", "isBlindAppend", "dataChange"):
        assert ours_info[name] == theirs_info[name]
    assert ours_info["operationParameters"]["outputMode"] == "Append"
    assert set(ours["add"]) >= {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats"}


def test_aggregate_in_complete_mode(streams: Any, tmp_path: Path) -> None:
    begun = Begun("aggregate-complete", tmp_path)
    before = versions(begun.sink)
    counts = (
        streams.read(begun.source, **begun.entry["options"])
        .groupBy((F.col("id") % 4).alias("k"))
        .agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    )
    query = streams.copy(counts, begun.sink, begun.checkpoint, mode="complete")
    assert query.id == begun.entry["query_id"]
    found = deltalake.DeltaTable(begun.sink).to_pyarrow_table().sort_by("k").to_pylist()
    assert [list(row.values()) for row in found] == begun.entry["sink_rows_after"]
    theirs, ours = (commit_info(begun.sink, version) for version in (before[-1], versions(begun.sink)[-1]))
    ours.pop("sourceOffsets")
    assert shape(ours) == shape(theirs)
    for name in ("operation", "isolationLevel", "isBlindAppend", "dataChange"):
        assert ours[name] == theirs[name]
