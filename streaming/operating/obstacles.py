"""What a query will meet when it starts again, and what to do about it."""

from __future__ import annotations

import msgspec

from deltaflow.errors import DeltaError


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Something that stops a query, or that makes it lose or repeat rows without an error."""

    condition: str
    """The condition of the error that the query raises, or a name of this module."""
    message: str
    remedy: str
    is_fatal: bool
    """Whether the query fails with this condition. Otherwise it goes on, though it should not."""
    source: str | None = None
    """The source's number in the checkpoint, or its name; None if it is none of a source."""
    batch_id: int | None = None
    """The batch that is not run; None if the query does not come so far because of an earlier obstacle."""

    def __str__(self) -> str:
        what = "fails" if self.is_fatal else "goes on, and should not"
        where = "" if self.batch_id is None else f" at batch {self.batch_id}"
        return f"The query {what}{where}: [{self.condition}] {self.message}\n-> {self.remedy}"


FILE_NOT_EXIST = "FAILED_READ_FILE.FILE_NOT_EXIST"
BATCH_MISSING = "DELTA_STREAM_CHECKPOINT_LACKS_BATCH"
EDIT_INTERRUPTED = "DELTA_STREAM_CHECKPOINT_EDIT_INTERRUPTED"
SINK_AHEAD = "DELTA_STREAM_SINK_AHEAD"
SINK_LACKS_BATCHES = "DELTA_STREAM_SINK_LACKS_BATCHES"
QUERY_ID_LOST = "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"
DONE_BEFORE = "CONCURRENT_STREAM_LOG_UPDATE"
OTHER_FORMAT = "DELTA_STREAM_SOURCE_NOT_PLANNED"

_NEW_CHECKPOINT = (
    "Start with a new checkpointLocation. It begins with a snapshot of the table: write into a new table, or "
    "give a startingVersion."
)
_REMEDIES = {
    "DELTA_SOURCE_IGNORE_DELETE": "Start with the option ignoreDeletes or skipChangeCommits, which leave out "
    "such commits, or with readChangeFeed, if the message says that the table records its changes.",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": "Start with the option skipChangeCommits, which leaves out such "
    "commits, or with ignoreChanges, which reads rewritten files again with their unchanged rows, or with "
    "readChangeFeed, which reads the changed rows, if the message says that the table records its changes.",
    "DELTA_MISSING_CHANGE_DATA": "Start without the option readChangeFeed, or with a new checkpointLocation "
    "and, if the table has recorded its changes since, with the startingVersion at which that began.",
    "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA": "Start with a new checkpointLocation and a later "
    "startingVersion.",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": "The table was created anew. Let the stream adopt it "
    "(deltaflow offsets adopt). Otherwise: " + _NEW_CHECKPOINT,
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": "Restore the commits from a copy. To go on without their rows, "
    "start with the option failOnDataLoss set to false.",
    "DELTA_STREAMING_TRAILING_COMMIT_MISSING": "Restore the commits from a copy. Otherwise: "
    + _NEW_CHECKPOINT,
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": "Restore the log's files from a copy. Otherwise: "
    + _NEW_CHECKPOINT,
    "DELTA_SCHEMA_CHANGED_WITH_VERSION": _NEW_CHECKPOINT,
    "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS": _NEW_CHECKPOINT,
    "DELTA_STREAMING_METADATA_EVOLUTION": "Load and start the stream once more. It goes on in the new "
    "schema, unless an obstacle behind this one says what the change needs.",
    "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION": "Change the table that the stream "
    "writes if it needs that, and start with the options that the message names.",
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG": "Start with the option "
    "schemaTrackingLocation, which names a directory below the checkpoint.",
    "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT": "Give a schemaTrackingLocation below the "
    "checkpoint.",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ": "Go on with a Delta implementation that supports them.",
    "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE": "Go on with a Delta implementation that supports them.",
    "DELTA_SCHEMA_NOT_SET": "Check the path of the table. If it was deleted, restore it.",
    FILE_NOT_EXIST: "Restore the file from a copy. Without it the stream cannot go on from this checkpoint. "
    + _NEW_CHECKPOINT,
    DONE_BEFORE: "Restore the missing entries of offsets from a copy, or rebuild the checkpoint from the "
    "commits of the sink's table.",
    BATCH_MISSING: "Restore what is missing from a copy, or rebuild the checkpoint from the commits of the "
    "sink's table.",
    EDIT_INTERRUPTED: "Make the change again (deltaflow offsets rewind, or adopt): it first removes what the "
    "interrupted one has written. Or put the newest whole backup of the checkpoint, which is beside it, in "
    "its place.",
    SINK_AHEAD: "Restore the newest checkpoint of this query, or rebuild it from the commits of the sink's "
    "table.",
    SINK_LACKS_BATCHES: "Start with the table that the stream has written, or restore it. For a new table, "
    "start with a new checkpointLocation.",
    QUERY_ID_LOST: "Write the file metadata with the query's old id, which is in the commits of the sink's "
    'table: {"id":"..."}.',
    OTHER_FORMAT: "Look at this source by its own means.",
}
_OTHERWISE = "The message says what helps."


def obstacle(
    condition: str,
    message: str,
    *,
    is_fatal: bool = True,
    source: str | None = None,
    batch_id: int | None = None,
) -> Obstacle:
    """An obstacle with the remedy of its condition."""
    remedy = _REMEDIES.get(condition, _OTHERWISE)
    return Obstacle(
        condition=condition,
        message=message,
        remedy=remedy,
        is_fatal=is_fatal,
        source=source,
        batch_id=batch_id,
    )


def obstacle_of(error: DeltaError, source: str | None, batch_id: int | None) -> Obstacle:
    """The obstacle of an error that the source, or the sink, raises when it is asked for the batch."""
    return obstacle(error.error_class, error.message, source=source, batch_id=batch_id)
