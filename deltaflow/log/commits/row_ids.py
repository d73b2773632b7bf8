"""Gives the rows of new files their ids and their commit's version, where a table has row tracking.

Every commit is prepared here, whoever makes it, so that no file comes into such a table without ids. They
follow the highest id of the version before, so they are given anew when another commit has won its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.commits.head import Head
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.files.file_key import file_key
from deltaflow.log.files.file_rows import file_keys
from deltaflow.log.files.footers import numbers_of_rows
from deltaflow.log.protocol.actions import AddFile, Metadata, Protocol, RemoveFile
from deltaflow.log.protocol.row_tracking import (
    NO_ROW_ID,
    domain_of,
    has_row_ids,
    supports_row_ids,
    suspends_row_ids,
)
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.untrusted_json import decode_json


class _Statistics(msgspec.Struct):
    num_records: int | None = msgspec.field(name="numRecords", default=None)


class RowIds:
    """The row ids of one transaction's new files."""

    def __init__(self, log: LogFiles) -> None:
        self._table = log.path
        self._stores = log.stores
        self._rows: dict[str, int] = {}

    def given(
        self, head: Head | None, protocol: Protocol, metadata: Metadata, actions: Sequence[Any]
    ) -> Sequence[Any]:
        """The actions of the commit that follows `head`, whose added files have ids.

        Files that have ids already, as they were in the table before, keep them. The last action is the
        domain with the highest id, if that has grown. The number of rows comes from numRecords, or from the
        footer of a file that has no statistics. StoreError for a footer that cannot be read.
        """
        if not supports_row_ids(protocol):
            return actions
        if suspends_row_ids(metadata, self._table):
            return [_with_ids(action, None, None) for action in actions]
        adds = [action for action in actions if isinstance(action, AddFile)]
        self._count_rows(adds)
        before = NO_ROW_ID if head is None else head.highest_row_id
        version = 0 if head is None else head.version + 1
        # Files that come back after the feature was dropped may have higher ids than the table knows of.
        ends = [add.base_row_id + self._rows[add.path] - 1 for add in adds if add.base_row_id is not None]
        highest = max([before, *ends])
        with_ids: list[Any] = []
        for action in actions:
            if isinstance(action, AddFile):
                base_row_id = action.base_row_id
                if base_row_id is None:
                    base_row_id = highest + 1
                    highest += self._rows[action.path]
                own_version = action.default_row_commit_version
                action = _with_ids(action, base_row_id, version if own_version is None else own_version)
            with_ids.append(action)
        return [*with_ids, domain_of(highest)] if highest > before else with_ids

    def _count_rows(self, adds: Sequence[AddFile]) -> None:
        """Finds how many rows each file holds, those included that a deletion vector deletes."""
        unknown: list[AddFile] = []
        for add in adds:
            if add.path in self._rows:
                continue
            try:
                rows = decode_json(add.stats or "{}", as_type=_Statistics).num_records
            except msgspec.MsgspecError:
                rows = None
            if rows is None:
                unknown.append(add)
            else:
                self._rows[add.path] = rows
        if unknown:
            paths = store_paths(self._table, pa.chunked_array([[add.path for add in unknown]], pa.string()))
            files = [(path, add.size) for path, add in zip(paths.to_pylist(), unknown, strict=True)]
            for add, rows in zip(unknown, numbers_of_rows(files, self._stores), strict=True):
                self._rows[add.path] = rows


def check_enablement(
    snapshot: Snapshot, protocol: Protocol, metadata: Metadata, actions: Sequence[Any]
) -> None:
    """DeltaIllegalStateException if a commit enables row tracking, and leaves a file of the snapshot that has
    no row ids."""
    table = snapshot.path
    if not has_row_ids(protocol, metadata, table):
        return
    if has_row_ids(snapshot.protocol, snapshot.metadata, table):
        return
    without = snapshot.files.filter(snapshot.files["base_row_id"].is_null())
    changed = {file_key(action, table) for action in actions if isinstance(action, AddFile | RemoveFile)}
    left = [key for key in file_keys(without, table).to_pylist() if key not in changed]
    if left:
        raise DeltaIllegalStateException(
            error_class="DELTA_ROW_TRACKING_BACKFILL_NEEDED",
            number=len(left),
            table=table,
            version=snapshot.version,
        )


def _with_ids(action: Any, base_row_id: int | None, version: int | None) -> Any:
    if not isinstance(action, AddFile):
        return action
    if (action.base_row_id, action.default_row_commit_version) == (base_row_id, version):
        return action
    return msgspec.structs.replace(action, base_row_id=base_row_id, default_row_commit_version=version)
