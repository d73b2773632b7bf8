"""What an operation would have to record for a table's change data feed.

Readers of the feed take the rows of added and removed files, and those in which two deletion vectors differ,
for inserts and deletes. An operation that writes rows of removed files again has to record the changed ones
in files of their own, which deltaflow does not write yet.
"""

from __future__ import annotations

import pyarrow as pa

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import Metadata
from deltaflow.log.protocol.features import has_change_data_feed


def refuse_unrecorded_changes(
    metadata: Metadata, files_to_read: pa.Table, operation: str, table: str
) -> None:
    """DELTA_CHANGE_FILES_NOT_WRITTEN if rows of these files are to be written again, and the table records
    its changes."""
    if files_to_read.num_rows and has_change_data_feed(metadata):
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_CHANGE_FILES_NOT_WRITTEN", operation=operation, table=table
        )
