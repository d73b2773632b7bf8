"""Whether a log still has traces of V2 checkpoints (PROTOCOL.md, "V2 Checkpoint Table Feature")."""

from __future__ import annotations

import re

import pyarrow.parquet as pq

from deltaflow.log.protocol.features import asks_for_v2_checkpoints
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles

_CLASSIC_NAME = re.compile(r"\d{20}\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_OF_V2 = "checkpointMetadata"


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
    with log.store.open(f"{log.directory}/{checkpoint}") as stream:
        parquet = pq.ParquetFile(stream)
        if _OF_V2 not in parquet.schema_arrow.names:
            return False
        column = parquet.read([_OF_V2])[_OF_V2]
        return bool(column.null_count < len(column))
