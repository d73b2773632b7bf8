"""A second stream that goes on beside the first, from the same place."""

from __future__ import annotations

import uuid

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.streams.checkpoint import COMMITS, EDITS, OFFSETS, StreamCheckpoint
from deltaflow.log.streams.checkpoint_edit import (
    FIRST_COMMIT,
    METADATA,
    CheckpointEdit,
    is_unfinished,
    note,
    places,
    refused,
    schema_log_places,
    written_batch,
)
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import store_for

_NOT_OF_A_FORK = ("sink/", f"{EDITS}/")


def plan_fork(checkpoint: str, target: str, *, sink: str | None = None) -> CheckpointEdit:
    """Makes a checkpoint at `target` whose stream goes on where that of `checkpoint` is, as another query.

    State is copied, too. `sink` is the path of the Delta table that the stream writes: it says whether a
    batch that is planned and not recorded as done is written. DeltaIllegalArgumentException if something is
    at `target`; DeltaUnsupportedOperationException if it is not known how far the stream has come.
    """
    found = StreamCheckpoint(checkpoint)
    check_free(target)
    last = written_batch(found, sink)
    query_id = str(uuid.uuid4())
    copied = [place for place in places(found.directory) if _is_copied(place, last)]
    schema_logs = [place for place in schema_log_places(found.directory) if place in copied]
    copied = [place for place in copied if place not in schema_logs]
    files = {place: _moved_entry(found, place, target) for place in schema_logs}
    files |= {METADATA: msgspec.json.encode({"id": query_id}).decode()}
    if f"{COMMITS}/{last}" not in copied:
        if found.has_state:
            raise refused(
                checkpoint,
                f"Batch {last} is written and not recorded as done. Of a query that keeps state the record "
                "has the watermark and the files of the state with which it goes on. Start the stream once "
                "so that it finishes the batch, with the trigger availableNow.",
            )
        files[f"{COMMITS}/{last}"] = FIRST_COMMIT
    steps = [
        f"{target} becomes a checkpoint that goes on after batch {last} of {checkpoint}, which stays as "
        "it is.",
        f"Its query has the id {query_id}. A table takes its batches for those of another stream: let it "
        "write another table, or the rows come there twice.",
    ]
    if schema_logs:
        steps.append(f"Its schema log goes with it: give its query a schemaTrackingLocation below {target}.")
    return CheckpointEdit(
        directory=store_for(target)[1],
        steps=steps,
        files=files | note(last, steps),
        copied_from=found.directory,
        copied=copied,
    )


def _moved_entry(checkpoint: StreamCheckpoint, place: str, target: str) -> str:
    """An entry of a schema log, whose source has its directory below the new checkpoint."""
    version, _, json = checkpoint.store.read(f"{checkpoint.directory}/{place}").decode().partition("\n")
    entry = decode_json(json)
    source = entry["sourceMetadataPath"].rpartition("/")[2]
    root = store_for(target)[1]
    # As Spark names a local path.
    root = f"file:{root}" if root.startswith("/") else root
    entry["sourceMetadataPath"] = f"{root}/sources/{source}"
    return f"{version}\n{msgspec.json.encode(entry).decode()}"


def _is_copied(place: str, last: int) -> bool:
    folder, _, name = place.rpartition("/")
    if folder in (OFFSETS, COMMITS):
        return name.isdecimal() and int(name) <= last
    return place != METADATA and not place.startswith(_NOT_OF_A_FORK)


def check_free(target: str) -> None:
    """DeltaIllegalArgumentException if there are files at the place of a new checkpoint, other than what an
    interrupted change has left, which `apply` removes.
    """
    if any(True for _ in places(target)) and not is_unfinished(target):
        raise DeltaIllegalArgumentException(
            f"There are files in {target} already. Give a directory that is empty or not there.", file=target
        )
