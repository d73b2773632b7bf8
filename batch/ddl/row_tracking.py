"""Gives all files of a table row ids, and takes them away, for row tracking that is enabled or dropped.

A file is added again with other ids, and its rows stay as they are. Each commit holds at most so many files
that its size stays bounded, and starts from the newest version: a file that another writer removes meanwhile
must not come back (delta-spark's RowTrackingBackfillCommand and RowTrackingUnBackfillCommand).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.ddl.changes import begin_change
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import AddFile, Committed, Conflict, DeltaLog, Operation, Unknown, add_files
from deltaflow.log.protocol.features import supported_features
from deltaflow.log.protocol.properties import ROW_TRACKING_SUSPENDED
from deltaflow.log.protocol.protocols import weakest_protocol
from deltaflow.log.protocol.row_tracking import FEATURE, supports_row_ids, suspends_row_ids

_FILES_OF_A_COMMIT = 100_000
_ATTEMPTS = 10


def give_row_ids(log: DeltaLog, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Adds row tracking to the protocol, and gives ids to the files that lack them.

    `properties` are those that the table is to have. DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION if row
    tracking is suspended by them, or by the table until now.
    """
    transaction, metadata = begin_change(log, settings)
    if ROW_TRACKING_SUSPENDED.of(properties, log.path) or suspends_row_ids(metadata, log.path):
        raise _suspended(log)
    protocol = transaction.protocol
    assert protocol is not None
    if not supports_row_ids(protocol):
        new = weakest_protocol({*supported_features(protocol), FEATURE, "domainMetadata"})
        transaction.update_protocol(new, metadata)
        described = {"newProtocol": msgspec.json.encode(msgspec.to_builtins(new)).decode()}
        transaction.commit([], Operation("UPGRADE PROTOCOL", described))
    _add_again(log, "ROW TRACKING BACKFILL", settings, with_ids=False)


def take_row_ids(log: DeltaLog, settings: Mapping[str, str]) -> None:
    """Takes the ids from the files of a table whose row tracking is suspended."""
    _add_again(log, "ROW TRACKING UNBACKFILL", settings, with_ids=True)


def files_with_row_ids(files: pa.Table) -> pa.ChunkedArray:
    """A mask of a snapshot's `files`: which of them have ids, or a version, for their rows."""
    return pc.or_(files["base_row_id"].is_valid(), files["default_row_commit_version"].is_valid())


def _add_again(log: DeltaLog, name: str, settings: Mapping[str, str], *, with_ids: bool) -> None:
    """Adds the files that have ids, or that lack one, again. The commit gives ids, or takes them.

    Raises the conflict after so many in a row.
    """
    batch = conflicts = 0
    while True:
        transaction, metadata = begin_change(log, settings)
        assert transaction.snapshot is not None
        if suspends_row_ids(metadata, log.path) is not with_ids:
            raise _suspended(log)  # another writer has changed it meanwhile
        files = transaction.snapshot.files
        chosen = files_with_row_ids(files) if with_ids else files["base_row_id"].is_null()
        found = files.filter(chosen).slice(0, _FILES_OF_A_COMMIT)
        if not found.num_rows:
            return
        transaction.record_read_of_files(found)
        adds: list[AddFile] = list(add_files(transaction.snapshot.with_stats(found), data_change=False))
        match transaction.try_commit(adds, Operation(name, {"batchId": str(batch)})):
            case Committed():
                batch, conflicts = batch + 1, 0
            case Conflict(error) if conflicts < _ATTEMPTS:
                conflicts += 1
            case Conflict(error) | Unknown(error):
                raise error


def _suspended(log: DeltaLog) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        error_class="DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION", table=log.path
    )
