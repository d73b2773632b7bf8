"""The table that a stream writes: which batches it has, and whether it takes more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.version import __version__ as pyspark_version

from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.properties import APPEND_ONLY
from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.streaming.operating.obstacles import (
    QUERY_ID_LOST,
    SINK_AHEAD,
    SINK_LACKS_BATCHES,
    Obstacle,
    obstacle,
    obstacle_of,
)
from deltaflow.streaming.stream_records import sink_record


@dataclass(frozen=True)
class SinkState:
    """A sink's table as it is now."""

    path: str
    batch_id: int | None
    """The last batch of the query that the table has; None without one."""
    output_mode: str
    snapshot: Snapshot | None
    """None if the table is not there: the first batch creates it."""
    error: DeltaError | None
    """Why the table cannot be read."""

    def has(self, batch_id: int) -> bool:
        """Whether the table has a batch already; the sink then skips it."""
        return self.batch_id is not None and self.batch_id >= batch_id

    def obstacle_of_write(self, batch_id: int) -> Obstacle | None:
        """What stops the write of a batch."""
        if self.error is not None:
            return obstacle_of(self.error, None, batch_id)
        if self.snapshot is None or self.has(batch_id):
            return None
        snapshot = self.snapshot
        try:
            check_writable(snapshot.protocol, snapshot.metadata, self.path, snapshot.version)
        except DeltaError as error:
            return obstacle_of(error, None, batch_id)
        if self.output_mode == "Complete" and APPEND_ONLY.of(snapshot.metadata.configuration, self.path):
            return obstacle(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY",
                f"The table {self.path} only takes appends, and a stream in complete mode replaces all rows. "
                "Set its property delta.appendOnly to false.",
                batch_id=batch_id,
            )
        return None

    def warnings(
        self, checkpoint: StreamCheckpoint, next_batch: int, *, is_replay: bool
    ) -> Iterator[Obstacle]:
        """What makes the query lose or repeat rows without an error."""
        newest_done = checkpoint.newest_done
        last = next_batch if is_replay else next_batch - 1
        if self.batch_id is not None and self.batch_id > last:
            yield obstacle(
                SINK_AHEAD,
                f"The table {self.path} has batch {self.batch_id} of this query already, but the checkpoint "
                f"knows no batch after {last}. The sink skips the batches up to {self.batch_id}, and their "
                "rows are lost if they are not those that the table has.",
                is_fatal=False,
                batch_id=next_batch,
            )
        edited = checkpoint.newest_edit
        if newest_done is None or (edited is not None and newest_done <= edited):
            return
        if self.batch_id is None or self.batch_id < newest_done:
            kept = "none" if self.batch_id is None else f"none after batch {self.batch_id}"
            forgotten = ""
            if self.snapshot is not None and self.snapshot.transactions_expire:
                forgotten = " Or it has forgotten them by its property delta.setTransactionRetentionDuration."
            yield obstacle(
                SINK_LACKS_BATCHES,
                f"By the checkpoint batch {newest_done} is done, but the table {self.path} has {kept} of "
                "this query's batches. It is another table, or an older state of it, and lacks their rows."
                f"{forgotten}",
                is_fatal=False,
                batch_id=next_batch,
            )


def sink_state(checkpoint: StreamCheckpoint, path: str | None, app_id: str | None) -> SinkState | None:
    """The state of the table at `path`, or else of the one that the checkpoint names; None without both."""
    record = sink_record(checkpoint)
    if path is None and record is None:
        return None
    log = DeltaLog.for_table(path or (record.path if record is not None else ""), with_files=False)
    mode = "Append" if record is None else record.output_mode
    try:
        snapshot = log.snapshot_if_exists()
    except DeltaError as error:
        return SinkState(log.path, None, mode, None, error)
    application = app_id or checkpoint.query_id
    batch_id = None
    if snapshot is not None and application is not None:
        batch_id = snapshot.txn_version(application)
    return SinkState(log.path, batch_id, mode, snapshot, None)


def lost_query_id(checkpoint: StreamCheckpoint) -> Obstacle | None:
    """The obstacle if the checkpoint has batches and no query id. Spark refuses it since its release 4.2."""
    if checkpoint.query_id is not None:
        return None
    release = tuple(int(part) for part in pyspark_version.split(".")[:2])
    return obstacle(
        QUERY_ID_LOST,
        f"The checkpoint {checkpoint.directory} lacks its file metadata, which has the query's id. With "
        "another id, as older releases of Spark go on, the sink does not know which batches it has, and "
        "writes one twice if it is replayed.",
        is_fatal=release >= (4, 2),
    )
