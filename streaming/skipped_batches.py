"""What the log says of a batch that a table has already."""

from __future__ import annotations

import logging

_LOG = logging.getLogger(__name__)


def tell_skipped(table: str, query_id: str, batch_id: int, newest: int) -> None:
    """Says that a batch is skipped, because the table has it; `newest` is the last batch that it has.

    Spark runs its last batch again, and no older one: such a one is of a checkpoint that is older than the
    table.
    """
    _LOG.info("%s: batch %d of query %s is in the table already", table, batch_id, query_id)
    if newest > batch_id:
        _LOG.warning(
            "%s: batch %d of query %s is skipped, and the table has batch %d: the checkpoint is older than "
            "the table. Rows that these batches did not have the first time are not written. Stop the query. "
            "The checkpoint of a stream into one table can be rebuilt (deltaflow offsets rebuild).",
            table,
            batch_id,
            query_id,
            newest,
        )
