"""CLONE: makes a table of a version of another one (delta-spark's CloneTableCommand).

A shallow clone shares the files of its source: its log names them by absolute paths. Writes to the clone go
to its own directory; deletes change its log, and never the source's directory. If a VACUUM of the source
deletes the files of a version, the shallow clones of that version lose them, too. A deep clone has copies of
the files (deep_clone), and can be cloned again to become as the source is then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.types import LongType

from deltaflow.batch.commands.clone_target import CloneTarget
from deltaflow.batch.commands.deep_clone import CopyPlan, copy_files, copy_lost_files, plan_copies
from deltaflow.batch.commands.parquet_source import read_parquet_table
from deltaflow.batch.named_table import named_by_path, table_of_name
from deltaflow.batch.read.load_path import version_number
from deltaflow.batch.result_rows import schema_of
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    StoreError,
    after_commit,
)
from deltaflow.log import (
    AddFile,
    DeletionVectorDescriptor,
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    Protocol,
    Snapshot,
    add_files,
    schema_to_string,
)
from deltaflow.log.commits.validation import check_reserved_columns
from deltaflow.log.files.data_path import absolute_uris
from deltaflow.log.files.deletion_vectors import vector_uri
from deltaflow.log.files.file_key import logical_key
from deltaflow.log.protocol.column_assignment import with_mapped_columns
from deltaflow.log.protocol.column_mapping import mapping_mode
from deltaflow.log.protocol.configuration import canonical_name, checked_name, with_checked_properties
from deltaflow.log.protocol.identity_columns import with_marks_of
from deltaflow.log.protocol.properties import RESTORE_PROTOCOL_DOWNGRADE_ALLOWED
from deltaflow.log.protocol.protocols import merged_protocol, protocol_for, without_protocol_properties
from deltaflow.log.protocol.row_tracking import has_row_ids, with_row_id_columns
from deltaflow.log.replay.log_files import system_clock
from deltaflow.spark.expressions.timestamps import timestamp_of_text
from deltaflow.spark.sql.parquet_tables import describe_table
from deltaflow.spark.sql.sql_text import name_parts
from deltaflow.spark.sql.statements import NamedTable, run_statement
from deltaflow.store import is_absolute_path, is_same_directory, store_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
CLONED = schema_of(
    source_table_size=LongType(),
    source_num_of_files=LongType(),
    num_removed_files=LongType(),
    num_copied_files=LongType(),
    removed_files_size=LongType(),
    copied_files_size=LongType(),
)
"""The output of CLONE."""
_METRICS = (
    "sourceTableSize",
    "sourceNumOfFiles",
    "numRemovedFiles",
    "numCopiedFiles",
    "removedFilesSize",
    "copiedFilesSize",
)
"""The same numbers by their names in commitInfo."""
# The log's columns of so many files are in memory beside the actions that are made of them.
_FILES_AT_ONCE = 65_536
_LOST_FILES_NAMED = 3
# These properties refer to versions of the source.
_OF_HISTORY = (
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
    "delta.requireCheckpointProtectionBeforeVersion",
)


def clone(
    spark: SparkSession,
    source: NamedTable,
    target: str,
    shallow: bool,
    replace: bool,
    properties: dict[str, str],
    *,
    version: int | None = None,
    timestamp: str | None = None,
) -> NamedTable:
    """Clones the table as SQL does, and returns the clone. `target` is an absolute path or a name."""
    is_path = is_absolute_path(target)
    fields = {
        "isShallow": shallow,
        "target": ["delta", target] if is_path else name_parts(spark, target),
        "replace": replace,
        "version": version,
        "timestamp": timestamp,
        "properties": properties,
    }
    run_statement(spark, "Clone", source, fields)
    return named_by_path(target) if is_path else table_of_name(spark, target)


@dataclass(frozen=True)
class _CloneSource:
    """The source of a clone: its name and version, and its files."""

    name: str
    root: str
    """Its directory, to which the paths of its files are relative if they are not absolute."""
    version: int
    metadata: Metadata
    protocol: Protocol
    size_in_bytes: int
    num_files: int
    read_adds: Callable[[], Iterable[AddFile]]
    """Makes the add actions of its files one by one."""
    snapshot: Snapshot | None = None
    """The version of a Delta table."""

    @cached_property
    def adds(self) -> list[AddFile]:
        """All of them at once."""
        return list(self.read_adds())

    def identity(self, add: AddFile) -> object:
        """What makes a file what it is, for ever. Only writers of Delta tables never change a file."""
        if self.snapshot is None:
            return self.root, add.path, add.size, add.modification_time
        return self.snapshot.table_id, logical_key(add.path, None, self.root), add.size


def clone_table(
    spark: SparkSession,
    source: NamedTable | str,
    target: CloneTarget,
    properties: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    is_shallow: bool,
    version: int | str | None = None,
    timestamp: str | None = None,
) -> tuple[int, ...]:
    """Clones a Delta table, or the Parquet table of a name, if the target may be made or replaced. Returns
    the row of CLONED."""
    found = cache(lambda: _source(spark, source, version, timestamp))

    def left_by_copies() -> set[str]:
        plan = plan_copies(found().root, found().adds, found().identity, None, 0)
        return {copy.place for copy in plan.copies}

    target.check(set if is_shallow else left_by_copies)
    if not is_shallow and is_same_directory(store_for(target.path)[1], found().root):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
            table_name=target.name,
            table=target.path,
        )
    return _commit(spark, found(), target, properties, settings, is_shallow=is_shallow)


def _source(
    spark: SparkSession, source: NamedTable | str, version: int | str | None, timestamp: str | None
) -> _CloneSource:
    if isinstance(source, str):
        if version is not None or timestamp is not None:
            raise DeltaAnalysisException(
                f"{source} is a Parquet table, and has no versions: leave VERSION or TIMESTAMP AS OF out.",
                error_class="DELTA_CLONE_UNSUPPORTED_SOURCE",
            )
        return _parquet_source(spark, source)
    return _delta_source(spark, source, version, timestamp)


def _delta_source(
    spark: SparkSession, table: NamedTable, version: int | str | None, timestamp: str | None
) -> _CloneSource:
    assert table.path is not None
    log = DeltaLog.for_table(table.path)
    number = None if version is None else version_number(str(version))
    if timestamp is not None:
        number = log.version_at_timestamp(timestamp_of_text(timestamp, spark).ms)
    snapshot = log.snapshot() if number is None else log.snapshot_at(number)
    return _CloneSource(
        table.name,
        snapshot.path,
        snapshot.version,
        snapshot.metadata,
        snapshot.protocol,
        snapshot.size_in_bytes,
        snapshot.num_files,
        partial(_adds_of, snapshot),
        snapshot,
    )


def _adds_of(snapshot: Snapshot) -> Iterator[AddFile]:
    for start in range(0, snapshot.num_files, _FILES_AT_ONCE):
        yield from add_files(snapshot.with_stats(snapshot.files.slice(start, _FILES_AT_ONCE)))


def _parquet_source(spark: SparkSession, name: str) -> _CloneSource:
    """A Parquet table by name or as parquet.`path`. Statistics are collected from its files.

    DELTA_CLONE_UNSUPPORTED_SOURCE for any other name.
    """
    entry = describe_table(spark, name)
    name = entry.name or f"{entry.provider}.`{entry.path}`"
    provider = "View" if entry.is_view else entry.provider or "Unknown"
    if provider.lower() != "parquet":
        raise DeltaAnalysisException(error_class="DELTA_CLONE_UNSUPPORTED_SOURCE", name=name, format=provider)
    source = read_parquet_table(spark, entry)
    metadata = Metadata(
        id="",
        schema_string=schema_to_string(source.schema),
        partition_columns=source.partition_columns,
        configuration=source.properties,
        created_time=system_clock(),
    )
    adds = source.add_actions(metadata)
    protocol = protocol_for(metadata, None, source.files.root)
    size = source.size_in_bytes
    return _CloneSource(name, source.files.root, -1, metadata, protocol, size, len(adds), lambda: adds)


def _shared(source: _CloneSource) -> list[AddFile]:
    """The files by absolute paths, as the log of another table can name them."""
    shared: list[AddFile] = []
    adds = iter(source.read_adds())
    while some := list(islice(adds, _FILES_AT_ONCE)):
        paths = pa.chunked_array([[add.path for add in some]], pa.string())
        shared += (
            msgspec.structs.replace(
                add,
                path=path,
                # The rows of a clone get row ids of their own.
                base_row_id=None,
                default_row_commit_version=None,
                deletion_vector=_absolute(add.deletion_vector, source.root),
            )
            for add, path in zip(some, absolute_uris(source.root, paths).to_pylist(), strict=True)
        )
    return shared


def _absolute(vector: DeletionVectorDescriptor | None, root: str) -> DeletionVectorDescriptor | None:
    """The deletion vector, whose file another table can name."""
    if vector is None or vector.storage_type != "u":
        return vector
    uri = vector_uri(vector.storage_type, vector.path_or_inline_dv)
    [path] = absolute_uris(root, pa.chunked_array([[uri]], pa.string())).to_pylist()
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=path)


def _commit(
    spark: SparkSession,
    source: _CloneSource,
    target: CloneTarget,
    properties: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    is_shallow: bool,
) -> tuple[int, ...]:
    """Commits the clone, and makes its entry in the catalog. Returns the row of CLONED."""
    transaction = DeltaLog.for_table(target.path).start_transaction(settings)
    transaction.record_read_of_whole_table()
    before = transaction.snapshot
    if before is None:
        transaction.require_no_table()
    elif is_shallow and before.num_files:
        raise DeltaIllegalStateException(error_class="DELTA_UNSUPPORTED_NON_EMPTY_CLONE", table=target.path)
    transaction.update_protocol(*_protocol_and_metadata(transaction, source, properties))
    if source.snapshot is not None:
        transaction.clustering.as_in(source.snapshot)
    else:
        transaction.clustering.by(())
    parameters: dict[str, str | bool | int | None] = {"source": source.name, "sourceVersion": source.version}
    read = f"version {source.version} of"
    if is_shallow:
        plan = CopyPlan(adds=_shared(source))
    else:
        parameters["isShallow"] = False
        assert transaction.protocol is not None
        assert transaction.metadata is not None
        needs_ids = has_row_ids(transaction.protocol, transaction.metadata, target.path)
        now_ms = transaction.log.clock()
        plan = plan_copies(source.root, source.adds, source.identity, before, now_ms, needs_ids=needs_ids)
        _LOG.info("Copying %d of %d files into %s", plan.num_copied, source.num_files, target.path)
        copy_files(plan.copies, source.root, target.path, read)
    row = (
        source.size_in_bytes,
        source.num_files,
        plan.num_removed,
        plan.num_copied,
        plan.removed_size,
        plan.copied_size,
    )
    metrics = {name: str(number) for name, number in zip(_METRICS, row, strict=True)}
    committed = transaction.commit([*plan.adds, *plan.removes], Operation("CLONE", parameters, metrics))
    if before is not None:
        failure = "it is not known whether VACUUM deleted files that CLONE was copying there"
        advice = "FSCK REPAIR TABLE … DRY RUN lists those that are missing."
        with after_commit(failure, advice, table=target.path, version=committed.version):
            lost = copy_lost_files(plan.copies, source.root, target.path, read)
        if lost:
            raise _files_lost(lost, target.path, committed.version)
    failure = "Spark's catalog does not know it yet"
    advice = "REFRESH TABLE, or CREATE TABLE … LOCATION … of a new name, makes it known."
    with after_commit(failure, advice, table=target.path, version=committed.version):
        target.update_catalog(spark)
    return row


def _files_lost(lost: Sequence[str], path: str, version: int) -> StoreError:
    more = len(lost) - _LOST_FILES_NAMED
    named = ", ".join(lost[:_LOST_FILES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return StoreError(
        f"VACUUM deleted files of {path} while CLONE copied them there: the table lacks them since version "
        f"{version}, which is committed. Missing: {named}. When the VACUUM has ended, remove them from the "
        "log by FSCK REPAIR TABLE, and clone again.",
        error_class="DELTA_FILE_NOT_FOUND_DETAILED",
        table=path,
        version=version,
        file=lost[0],
    )


def _protocol_and_metadata(
    transaction: OptimisticTransaction, source: _CloneSource, properties: Mapping[str, str]
) -> tuple[Protocol, Metadata]:
    """The clone's metadata is the source's with an id of its own, and with the statement's properties above
    the source's. Its protocol supports what the source, the properties and the target's earlier versions
    need."""
    path, before = transaction.path, transaction.snapshot
    own = {checked_name(name, value, transaction.session, path): value for name, value in properties.items()}
    inherited = {
        name: value for name, value in source.metadata.configuration.items() if name not in _OF_HISTORY
    }
    kept = {} if before is None else before.metadata.configuration
    of_history = {name: kept[name] for name in _OF_HISTORY if name in kept}
    metadata = msgspec.structs.replace(
        source.metadata,
        id=transaction.log.ids() if before is None else before.metadata.id,
        name=None if before is None else before.metadata.name,
        description=None if before is None else before.metadata.description,
        configuration={
            **{canonical_name(name): value for name, value in inherited.items()},
            **of_history,
            **own,
        },
    )
    metadata = with_checked_properties(metadata, inherited, transaction.session, path)
    check_reserved_columns(metadata, source.metadata, path)
    if mapping_mode(metadata, path) != mapping_mode(source.metadata, path):
        metadata = with_mapped_columns(metadata, source.metadata, transaction.log.ids, path)
    if before is not None:
        metadata = with_marks_of(metadata, before.metadata, path)
    protocol = protocol_for(metadata, source.protocol, path)
    own_metadata = None if before is None else before.metadata
    metadata = with_row_id_columns(metadata, own_metadata, protocol, transaction.log.ids, path)
    if before is not None and not RESTORE_PROTOCOL_DOWNGRADE_ALLOWED.of(transaction.session, path):
        protocol = merged_protocol(protocol, before.protocol)
    return protocol, without_protocol_properties(metadata)
