"""Rebuilds a lost checkpoint from the commits of the table that its stream writes.

Each commit of a stream has the offsets of its sources at the end of the batch (commitInfo.sourceOffsets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from deltaflow.log.replay.commit_history import CommitRecord, read_history
from deltaflow.log.streams.checkpoint import COMMITS, OFFSETS
from deltaflow.log.streams.checkpoint_edit import (
    FIRST_COMMIT,
    METADATA,
    CheckpointEdit,
    newest_version,
    refused,
)
from deltaflow.log.streams.fork import check_free
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import store_for

_BY_NAME = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Spark's setting by which a query finds its sources by their names: an entry has it for later runs."""


class _Batch(NamedTuple):
    """A batch of a query, by its commit."""

    query_id: str
    batch_id: int
    version: int
    output_mode: str
    offsets: Sequence[str]


def plan_rebuilding(target: str, sink: str, *, query_id: str | None = None) -> CheckpointEdit:
    """Makes a checkpoint at `target` for the query that wrote the table at `sink`, from the table's log.

    `query_id` is needed if several queries have written it. The query goes on after its last batch in the
    table, under its old id. DeltaUnsupportedOperationException if the checkpoint held more than offsets:
    state, or the list of files of a file source. DeltaIllegalArgumentException if something is at `target`.
    """
    check_free(target)
    log, newest = newest_version(sink)
    last: dict[str, _Batch] = {}
    for record in read_history(log, newest, None):
        batch = _batch(record)
        if batch is not None:
            last.setdefault(batch.query_id, batch)
    if query_id is None and len(last) > 1:
        listed = ", ".join(f"{b.query_id} (batch {b.batch_id}, version {b.version})" for b in last.values())
        raise refused(target, f"Several queries have written {sink}. Name the one that is meant: {listed}.")
    batch = last.get(query_id) if query_id is not None else next(iter(last.values()), None)
    if batch is None:
        raise refused(
            target,
            f"The log of {sink} has no commit of {'a' if query_id is None else 'this'} query with the "
            "offsets of its sources. Another implementation has written the table, or log clean-up has "
            "removed the commit (delta.logRetentionDuration).",
        )
    held = newest.txn_version(batch.query_id)
    if held is not None and held > batch.batch_id:
        raise refused(
            target,
            f"{sink} has batch {held} of the query, and the last one whose commit has offsets is "
            f"{batch.batch_id}: what lies between would come twice.",
        )
    _check_stateless(target, batch)
    text = "\n".join([*_head(batch.offsets), *batch.offsets])
    # Spark wants the entries of two batches, and plans nothing from the first one.
    numbers = [number for number in (batch.batch_id - 1, batch.batch_id) if number >= 0]
    return CheckpointEdit(
        directory=store_for(target)[1],
        steps=[
            f"{target} becomes the checkpoint of the query {batch.query_id}, which goes on after batch "
            f"{batch.batch_id}, the last one in {sink} (version {batch.version}).",
            "Start the same query with it, with the same sources in the same order. A query that keeps state "
            "cannot be rebuilt: Spark will not find its state, and refuses to start it.",
        ],
        files={
            METADATA: msgspec.json.encode({"id": batch.query_id}).decode(),
            f"{COMMITS}/{batch.batch_id}": FIRST_COMMIT,
            **{f"{OFFSETS}/{number}": text for number in numbers},
        },
    )


def _head(offsets: Sequence[str]) -> tuple[str, str]:
    """The version of the format and Spark's OffsetSeqMetadata, for the entry with these offsets."""
    is_named = all(_is_named(line) for line in offsets)
    # Sources without names have numbers in their place.
    by_name = is_named and not all(line.partition(":")[0].isdecimal() for line in offsets)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {_BY_NAME: "true"} if by_name else {}}
    return "v2" if is_named else "v1", msgspec.json.encode(metadata).decode()


def _batch(record: CommitRecord) -> _Batch | None:
    """The batch that a commit is of; None for other commits, and for those without offsets."""
    info: Mapping[str, Any] = record.info or {}
    parameters, offsets = info.get("operationParameters"), info.get("sourceOffsets")
    if not isinstance(parameters, dict) or not isinstance(offsets, list):
        return None
    query_id, batch_id = parameters.get("queryId"), str(parameters.get("epochId"))
    if not isinstance(query_id, str) or not batch_id.isdecimal():
        return None
    return _Batch(query_id, int(batch_id), record.version, str(parameters.get("outputMode")), offsets)


def _check_stateless(target: str, batch: _Batch) -> None:
    if batch.output_mode == "Complete":
        raise refused(
            target,
            f"The query {batch.query_id} has the output mode Complete, so it aggregates and keeps state, "
            "which was in the checkpoint alone. Start it with a new checkpoint: in this mode its first batch "
            "replaces the whole table.",
        )
    for number, line in enumerate(batch.offsets):
        json = line.partition(":")[2] if _is_named(line) else line
        try:
            offset = None if json == "-" else decode_json(json)
        except msgspec.DecodeError:
            offset = json
        if offset is not None and (not isinstance(offset, dict) or "logOffset" in offset):
            raise refused(
                target,
                f"Source {number} of the query {batch.query_id} keeps more than offsets in the checkpoint: "
                "a file source the list of the files that it has read, a rate source its start. Read such "
                "files with a new query whose options leave out what has been read.",
            )


def _is_named(line: str) -> bool:
    """Whether an offset has the name of its source before it, as in version 2 of the file."""
    name, colon, rest = line.partition(":")
    return bool(colon) and name.replace("_", "").isalnum() and (rest[:1] in ("{", "-") or rest.isdecimal())
