"""Options of the streaming sink, all checked when the query starts."""

from __future__ import annotations

from collections.abc import Mapping

from deltaflow.batch.file_layout import file_options
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.options import boolean_option, option
from deltaflow.errors import DeltaUnsupportedOperationException

_BOOLEANS = ("mergeSchema", "overwriteSchema", "optimizeWrite", "dataChange")
# Options of batch writes. Each would change what is written; so none is passed over in silence.
_OF_BATCHES = ("replaceWhere", "replaceOn", "replaceUsing", "partitionOverwriteMode", "__clustering_columns")


def check_sink_options(options: Mapping[str, str], path: str) -> None:
    """Raises one of ours for a bad or unsupported option of a writeStream."""
    for name in _BOOLEANS:
        boolean_option(options, name)
    file_options(options, path)
    # Checked and not used: a stream's application is the query, and its number the batch's id.
    idempotent_write(options, {}, path)
    found = [name for name in _OF_BATCHES if option(options, name) is not None]
    if (option(options, "dataChange") or "true").lower() == "false":
        found.append("dataChange=false")
    if found:
        raise DeltaUnsupportedOperationException(
            f"A stream does not write with option {', '.join(found)}. Remove it, or write its batches by "
            "foreachBatch, with txnAppId and txnVersion.",
            error_class="DELTA_UNSUPPORTED_OPTION",
            table=path,
        )
