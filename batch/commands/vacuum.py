"""VACUUM: deletes the files that no version within the retention needs (delta-spark's VacuumCommand).

The log core finds them (vacuum_candidates, vacuum_plan). They are deleted in parallel, between the commits
VACUUM START and VACUUM END.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.commands.vacuum_deletion import Deletion, delete_planned
from deltaflow.errors import (
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalArgumentException,
    StoreError,
)
from deltaflow.log import DeltaLog, Operation
from deltaflow.log.files.data_path import hadoop_path
from deltaflow.log.maintenance.vacuum_candidates import (
    INVENTORY_SCHEMA,
    Find,
    in_directory,
    in_inventory,
    in_log,
)
from deltaflow.log.maintenance.vacuum_plan import Retention, VacuumPlan, retention
from deltaflow.log.protocol.properties import (
    VACUUM_LITE_ENABLED,
    VACUUM_LOGGING_ENABLED,
)
from deltaflow.spark.expressions.frames import delta_settings
from deltaflow.spark.sql.statements import NamedTable, refused, run_statement
from deltaflow.store import qualified_path, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
_NAMED_FAILURES = 3
_INVENTORY_TYPES = {
    "path": "string",
    "length": "bigint",
    "isDir": "boolean",
    "modificationTime": "bigint",
}
"""The columns of an inventory with their types in SQL: INVENTORY_SCHEMA."""
# Where delta-spark writes the commits unless it is told otherwise: by fsspec's names of the schemes.
_LOGGED_SCHEMES = (None, "abfs", "gs", "hdfs")


def vacuum(
    spark: SparkSession,
    table: NamedTable,
    retention_hours: float | None,
    checkpoints: Sequence[str],
    *,
    dry_run: bool,
    lite: bool | None = None,
    inventory: DataFrame | None = None,
) -> DataFrame:
    """Deletes the files and returns an empty frame. A dry run returns the `path` and `size` of each file
    instead.

    Without `retention_hours` the table's delta.deletedFileRetentionDuration holds. `checkpoints` are those of
    streams: DELTA_VACUUM_BREAKS_STREAM if a stream has yet to read a file that would be deleted. For `lite`
    and `inventory` see `find_by`. StoreError if some files could not be deleted; the others are. StoreError
    if a commit brought files back in the moment in which they were deleted.
    """
    settings = delta_settings(spark)
    find = find_by(settings, table, lite=lite, inventory=inventory)
    if dry_run:
        assert table.path is not None
        # There may be a million files: they stay columns.
        return spark.createDataFrame(
            deletable_files(table.path, retention_hours, settings, checkpoints, find)
        )
    fields = {"retentionHours": retention_hours, "dryRun": False, "checkpoints": checkpoints, "find": find}
    run_statement(spark, "Vacuum", table, fields)
    return spark.range(0).select()


def find_by(
    settings: Mapping[str, str],
    table: NamedTable | None,
    *,
    lite: bool | None,
    inventory: DataFrame | None,
) -> Find:
    """Where a vacuum looks for files: in the log if it is `lite`, in the directory if not, by the session's
    settings without it; or in an inventory, a frame with the columns of INVENTORY_SCHEMA.

    DELTA_INVALID_INVENTORY_SCHEMA if the frame lacks a column.
    """
    if inventory is None:
        is_lite = VACUUM_LITE_ENABLED.of(settings) if lite is None else lite
        return in_log if is_lite else in_directory
    if lite:
        raise refused("VACUUM LITE with an inventory", table, "Leave LITE or the inventory out.")
    types = dict(inventory.dtypes)
    if any(types.get(name) != type_name for name, type_name in _INVENTORY_TYPES.items()):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_INVALID_INVENTORY_SCHEMA",
            expected=", ".join(f"{name} {type_name}" for name, type_name in _INVENTORY_TYPES.items()),
            found=", ".join(f"{name} {type_name}" for name, type_name in types.items()),
        )
    return in_inventory(inventory.select(*_INVENTORY_TYPES).toArrow().cast(INVENTORY_SCHEMA))


def deletable_files(
    path: str,
    retention_hours: float | None,
    settings: Mapping[str, str],
    checkpoints: Sequence[str] = (),
    find: Find = in_directory,
) -> pa.Table:
    """The path and size of each file that a vacuum would delete, and of empty directories, whose size is 0.

    `settings` are the session's spark.databricks.delta.*. `find` finds the files (vacuum_candidates).
    """
    _, _, plan = _plan(path, retention_hours, settings, checkpoints, find)
    root = pa.scalar(f"{hadoop_path(plan.directory.path)}/")
    directories = pa.table(
        [plan.empty_directories, [0] * len(plan.empty_directories)], schema=plan.files.schema
    )
    everything = pa.concat_tables([plan.files, directories])
    return everything.set_column(0, "path", pc.binary_join_element_wise(root, everything["path"], ""))


def delete_files(
    path: str,
    retention_hours: float | None,
    settings: Mapping[str, str],
    checkpoints: Sequence[str] = (),
    find: Find = in_directory,
) -> str:
    """Deletes the files that `deletable_files` returns, between the commits of a vacuum. Returns the path."""
    log, kept, plan = _plan(path, retention_hours, settings, checkpoints, find)
    _delete(log, kept, plan, settings)
    log.record_vacuum(plan)
    return hadoop_path(log.path)


def retention_hours_of(value: Any) -> float | None:
    """The hours of RETAIN: a number, or a parameter, which may have any type."""
    if value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool)):
        return None if value is None else float(value)
    raise DeltaIllegalArgumentException(f"VACUUM RETAIN needs a number of hours, and has {value!r}.")


def _plan(
    path: str,
    retention_hours: float | None,
    settings: Mapping[str, str],
    checkpoints: Sequence[str],
    find: Find,
) -> tuple[DeltaLog, Retention, VacuumPlan]:
    # The log is followed without the table's files; the plan reads of them what it needs.
    log = DeltaLog.for_table(path, with_files=False)
    kept = retention(log.snapshot(), retention_hours, settings)
    plan = log.plan_vacuum(kept.ms, find)
    log.check_streams(plan, [qualified_path(checkpoint) for checkpoint in checkpoints])
    _LOG.info(
        "Found %d files (%d bytes) and %d empty directories in a total of %d directories of %s that are safe "
        "to delete",
        plan.files.num_rows,
        plan.size_in_bytes,
        len(plan.empty_directories),
        plan.num_directories,
        log.path,
    )
    return log, kept, plan


def _delete(log: DeltaLog, kept: Retention, plan: VacuumPlan, settings: Mapping[str, str]) -> None:
    is_logged = VACUUM_LOGGING_ENABLED.of(settings, log.path)
    if is_logged is None:
        is_logged = scheme_of(log.path) in _LOGGED_SCHEMES
    if is_logged:
        _commit(log.path, _start(kept, plan), settings)
    deletion = Deletion()
    try:
        delete_planned(log, plan, deletion)
    finally:
        is_complete = deletion.is_complete and not deletion.failures and not deletion.lost
        try:
            if is_logged:
                _commit(log.path, _end(plan, deletion, is_complete=is_complete), settings)
        except DeltaError as error:
            if deletion.lost:  # nobody else says so
                raise _lost(deletion, log.path) from error
            raise
    _LOG.info(
        "Deleted %d files and directories in a total of %d directories of %s",
        deletion.number,
        plan.num_directories,
        log.path,
    )
    if deletion.lost:
        raise _lost(deletion, log.path)
    if deletion.failures:
        raise _incomplete(deletion, log.path)


def _start(kept: Retention, plan: VacuumPlan) -> Operation:
    parameters: dict[str, str | bool | int] = {"retentionCheckEnabled": kept.is_checked}
    if kept.given_ms is not None:
        parameters["specifiedRetentionMillis"] = kept.given_ms
    parameters["defaultRetentionMillis"] = kept.of_table_ms
    metrics = {
        "numFilesToDelete": str(plan.files.num_rows + len(plan.empty_directories)),
        "sizeOfDataToDelete": str(plan.size_in_bytes),
    }
    return Operation("VACUUM START", parameters, metrics)


def _end(plan: VacuumPlan, deletion: Deletion, *, is_complete: bool) -> Operation:
    if not is_complete:
        return Operation("VACUUM END", {"status": "FAILED"})
    metrics = {
        "numDeletedFiles": str(deletion.number),
        "numVacuumedDirectories": str(plan.num_directories),
    }
    return Operation("VACUUM END", {"status": "COMPLETED"}, metrics)


def _commit(path: str, operation: Operation, settings: Mapping[str, str]) -> None:
    """Commits an operation that changes no file. It is retried, since it holds after any other commit."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            DeltaLog.for_table(path).start_transaction(settings).commit([], operation)
        except DeltaConcurrentModificationException:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def _lost(deletion: Deletion, path: str) -> DeltaError:
    first = ", ".join(deletion.lost[:_NAMED_FAILURES])
    return StoreError(
        f"VACUUM deleted {len(deletion.lost)} files of {path} while another operation (a RESTORE, say) "
        f"brought them back, so the table lacks them: {first}. Find that operation in the table's history, "
        "and restore the version before it.",
        error_class="DELTA_FILE_NOT_FOUND_DETAILED",
        table=path,
        file=deletion.lost[0],
    )


def _incomplete(deletion: Deletion, path: str) -> DeltaError:
    first = "; ".join(failure.message for failure in deletion.failures[:_NAMED_FAILURES])
    return StoreError(
        f"VACUUM deleted {deletion.number} files and directories and could not delete "
        f"{deletion.num_failures} others: {first}. Run it again when their cause is removed.",
        error_class="DELTA_VACUUM_INCOMPLETE",
        table=path,
    )
