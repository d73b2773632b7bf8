"""Options of the streaming sink. All are checked when the query starts."""

from __future__ import annotations

from collections.abc import Mapping

from deltaflow.batch.files.file_layout import file_options
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.options import boolean_option, option, required_path
from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog
from deltaflow.store import is_same_directory

_BOOLEANS = ("mergeSchema", "overwriteSchema", "optimizeWrite", "autoCompact", "dataChange")
# Options of batch writes that would change what is written: they are refused, not ignored.
_OF_BATCHES = ("replaceWhere", "replaceOn", "replaceUsing", "partitionOverwriteMode")


def check_sink_options(options: Mapping[str, str], path: str, output_mode: str) -> None:
    """Raises an error for a wrong or unsupported option of a writeStream."""
    for name in _BOOLEANS:
        boolean_option(options, name)
    file_options(options, path)
    # txnAppId and txnVersion are checked and not used: a stream's own are the query id and the batch id.
    idempotent_write(options, {}, path)
    found = [name for name in _OF_BATCHES if option(options, name) is not None]
    if (option(options, "dataChange") or "true").lower() == "false":
        found.append("dataChange=false")
    if found:
        raise DeltaUnsupportedOperationException(
            f"A stream does not support the option {', '.join(found)}. Remove it, or write the batches with "
            "foreachBatch, txnAppId and txnVersion.",
            error_class="DELTA_UNSUPPORTED_OPTION",
            table=path,
        )
    quarantine = option(options, "quarantinePath")
    if quarantine is not None:
        _check_quarantine(required_path(quarantine), path, output_mode)


def _check_quarantine(quarantine: str, path: str, output_mode: str) -> None:
    if output_mode != "Append":
        raise DeltaUnsupportedOperationException(
            "A stream in complete mode writes all its rows again in every batch, so it cannot have a "
            "quarantine. Remove the option quarantinePath, or write in append mode.",
            error_class="DELTA_UNSUPPORTED_OPTION",
            table=path,
        )
    if is_same_directory(DeltaLog.for_table(quarantine).path, DeltaLog.for_table(path).path):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=quarantine,
            name="quarantinePath",
            explain="must be another table than the stream's own",
        )
