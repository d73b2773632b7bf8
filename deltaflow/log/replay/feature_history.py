"""Whether a log still has traces of a feature that the newest version no longer needs."""

from __future__ import annotations

import re

from deltaflow.log.protocol.actions import AddFile, RemoveFile
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import FEATURES, asks_for_v2_checkpoints
from deltaflow.log.replay.checkpoint_file import CheckpointFile, part_of_checkpoint
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import load_state
from deltaflow.log.replay.snapshot import Snapshot

_CLASSIC_NAME = re.compile(r"\d{20}\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_OF_V2 = "checkpointMetadata"


def has_feature_history(log: LogFiles, feature: str) -> bool:
    """Whether the earliest version that the log can give, or a commit after it, uses the feature: by its
    metadata, or by a file that has a deletion vector.

    Reads every commit. V2 checkpoints have a function of their own.
    """
    listing = log.list(0)
    earliest = min(listing.rebuildable_versions())
    snapshot = Snapshot(log.path, load_state(log, listing, earliest))
    if FEATURES[feature].is_active(snapshot.metadata):
        return True
    vectors = feature == "deletionVectors"
    if vectors and (
        snapshot.num_deletion_vectors
        or snapshot.tombstones["deletion_vector"].null_count < snapshot.tombstones.num_rows
    ):
        return True
    return any(
        (commit.metadata is not None and FEATURES[feature].is_active(commit.metadata))
        or (vectors and _has_vectors(commit))
        for commit in log.commits_present(earliest + 1, listing.latest_version)
    )


def _has_vectors(commit: Commit) -> bool:
    files: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
    return any(file.deletion_vector is not None for file in files)


def has_v2_checkpoint_history(log: LogFiles) -> bool:
    """Whether a V2 checkpoint is there, whatever its name, or a commit whose metadata asks for them.

    Reads every commit, and one column of each checkpoint of a classic name.
    """
    listing = log.list(0)
    if any(_is_v2(log, checkpoint) for checkpoint in listing.checkpoints):
        return True
    return any(
        commit.metadata is not None and asks_for_v2_checkpoints(commit.metadata)
        for commit in log.commits_present(min(listing.commits, default=0), max(listing.commits, default=-1))
    )


def _is_v2(log: LogFiles, checkpoint: Checkpoint) -> bool:
    if not _CLASSIC_NAME.fullmatch(str(checkpoint)):
        return True
    path = f"{log.directory}/{checkpoint}"
    with part_of_checkpoint(path), log.store.open(path) as stream:
        file = CheckpointFile(stream)
        if _OF_V2 not in file.parquet.schema_arrow.names:
            return False
        return any(batch.column(_OF_V2).null_count < batch.num_rows for batch in file.batches([_OF_V2]))
