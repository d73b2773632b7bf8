"""Writes data files into a table as one commit, for batch writes and for the streaming sink.

A write is one transaction: `begin_write` reads the table and decides what may be written and how, Spark
writes the files, and `commit` takes their statistics from the footers and commits. A write costs one listing
of the log, which reads the commits since the last one, one footer for each file, and one put.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.batch.files.file_layout import file_options, optimized_write_bytes, shredding_options
from deltaflow.batch.optimize.auto_compaction import auto_compaction
from deltaflow.batch.options import option
from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.recorded_changes import as_change_file
from deltaflow.batch.rows.column_expressions import check_no_numbers_given, checks_of_numbers
from deltaflow.batch.rows.row_checks import checks_of_table
from deltaflow.batch.rows.row_plan import row_plan
from deltaflow.batch.rows.schema_on_write import DeclaredTable, SchemaRules, named_as_table, update_metadata
from deltaflow.batch.write.overwrites import OverwriteScope
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import (
    AddFile,
    Metadata,
    Operation,
    OptimisticTransaction,
    SetTransaction,
    remove_files,
)
from deltaflow.log.observer import observe
from deltaflow.log.protocol.column_mapping import table_schema
from deltaflow.log.protocol.features import check_writable, has_partition_columns_in_files, is_append_only
from deltaflow.log.protocol.isolation import isolation_of_table
from deltaflow.spark.scan.file_index import mapping_of
from deltaflow.spark.write.file_write import FollowUp, Quarantine, RowPlan, WrittenFile

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class WriteOperation:
    """What a commit says of itself in commitInfo: name, parameters and the names of its metrics."""

    name: str
    parameters: Callable[[Metadata], dict[str, Any]]
    """Makes the parameters from the metadata that the table has after the commit."""
    file_count_metrics: tuple[str, str | None]
    """The names of the metrics for added and for removed files."""
    source_offsets: list[str] | None = None
    """The offsets of a stream's batch. See deltaflow.log.Operation."""


class TransactionalWrite:
    """One write whose files are still to be written. See deltaflow.spark.write.file_write.FileWrite."""

    def __init__(
        self,
        transaction: OptimisticTransaction,
        rows: RowPlan,
        options: Mapping[str, str],
        *,
        overwrite_scope: OverwriteScope,
        operation: WriteOperation,
        application: SetTransaction | None,
        data_change: bool,
        settings_to_unset: Sequence[str],
        only_with_files: bool,
    ) -> None:
        assert transaction.metadata is not None
        assert transaction.protocol is not None
        self.path = transaction.log.path
        self.partition_columns = tuple(transaction.metadata.partition_columns)
        self.rows = rows
        self.keeps_partition_columns = has_partition_columns_in_files(
            transaction.protocol, transaction.metadata
        )
        self.mapping = mapping_of(transaction.metadata, self.path)
        self.file_options = {
            **file_options(options, self.path),
            **shredding_options(transaction.metadata.configuration, self.path),
        }
        self.settings_to_unset = settings_to_unset
        self.optimized_write_bytes = optimized_write_bytes(
            options, transaction.session, transaction.metadata.configuration, self.path
        )
        self._data_files = DataFiles(transaction.metadata, self.path)
        self._data_files.track_numbers(rows.identities)
        self.folder = self._data_files.folder
        self._transaction = transaction
        self._overwrite_scope = overwrite_scope
        self._operation = operation
        self._application = application
        self._data_change = data_change
        self._only_with_files = only_with_files
        self.quarantine: Quarantine | None = None
        self._user_metadata = option(options, "userMetadata")
        self._compaction = auto_compaction(transaction, options, self.file_options)

    def commit(self, files: Sequence[WrittenFile]) -> FollowUp | None:
        """Commits the files, those of copied rows included, and removes the files that they replace."""
        observe("files written", path=self.path, files=len(files))
        adds, rows = self._data_files.add_actions(files, data_change=self._data_change)
        copies = NewFiles(
            self._transaction,
            self._data_files,
            file_options=self.file_options,
            optimized_write_bytes=self.optimized_write_bytes,
            data_change=self._data_change,
        )
        if not self._data_change:
            # The writer says that its rows are those of the table. They come without their ids.
            self._transaction.keeps_row_ids = False
        try:
            self._overwrite_scope.copy_rows(self._transaction, copies)
            removed = self._overwrite_scope.record_removed_files(self._transaction, adds)
            is_committed = self._commit(adds, rows, copies, removed)
        except BaseException:
            copies.discard(is_certain=self._transaction.cancel())
            raise
        if not is_committed or self._compaction is None:
            return None
        return self._compaction.after_commit([*adds, *copies.adds])

    def _commit(self, adds: Sequence[AddFile], rows: int, copies: NewFiles, removed: pa.Table) -> bool:
        """Whether there was something to commit."""
        if self._transaction.snapshot is not None:
            removed = self._transaction.snapshot.with_stats(removed)
        removes = remove_files(removed, self._transaction.log.clock(), data_change=self._data_change)
        # A commit with change files has all of its changes in them.
        changes = [*map(as_change_file, adds), *copies.change_files] if copies.change_files else []
        if self._only_with_files and not adds and not copies.adds and not removes:
            return False
        actions: list[Any] = [] if self._application is None else [self._application]
        actions += [*adds, *copies.adds, *removes, *changes]
        name_of_added, name_of_removed = self._operation.file_count_metrics
        metrics = {
            **({name_of_removed: len(removes)} if name_of_removed else {}),
            name_of_added: len(adds) + len(copies.adds),
            "numOutputRows": rows + copies.rows,
            "numOutputBytes": sum(add.size for add in (*adds, *copies.adds)),
            **self._overwrite_scope.metrics(removed, copies.rows),
        }
        if changes:
            metrics["numAddedChangeFiles"] = len(changes)
        self._transaction.update_identity_marks(self._data_files.numbers)
        metadata = self._transaction.metadata
        assert metadata is not None
        operation = Operation(
            self._operation.name,
            self._operation.parameters(metadata),
            {name: str(number) for name, number in metrics.items()},
            source_offsets=self._operation.source_offsets,
            user_metadata=self._user_metadata,
        )
        version = self._transaction.commit(actions, operation=operation).version
        observe("write committed", path=self.path, version=version)
        _LOG.info("%s: version %s with %s files, %s rows", self.path, version, len(adds), rows)
        return True

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        """Keeps this write from committing from now on, and removes its files if it has not committed."""
        self._data_files.discard(files, is_certain=self._transaction.cancel())


def begin_write(
    frame_schema: StructType,
    partition_by: Sequence[str],
    options: Mapping[str, str],
    *,
    rules: SchemaRules,
    operation: WriteOperation,
    transaction: OptimisticTransaction,
    overwrite_scope: OverwriteScope | None = None,
    declared: DeclaredTable | None = None,
    application: SetTransaction | None = None,
    settings_to_unset: Sequence[str] = (),
    only_with_files: bool = False,
) -> TransactionalWrite:
    """Checks a write against the table, and gives the transaction the metadata that it leaves.

    Without `overwrite_scope` the commit removes no file. `only_with_files`: nothing is committed if there is
    no file to add or remove. Raises SchemaMismatchError, SchemaError or UnsupportedFeatureError before any
    file is written.
    """
    snapshot, path = transaction.snapshot, transaction.log.path
    overwrite_scope = overwrite_scope or OverwriteScope()
    if snapshot is not None:
        check_writable(snapshot.protocol, snapshot.metadata, path, snapshot.version)
        isolation_of_table(snapshot.metadata, path)  # a wrong value would stop the commit
        if rules.overwrites and is_append_only(snapshot.metadata):
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=path
            )
        if not rules.replaces_table:
            given = named_as_table(frame_schema, snapshot.schema, rules, path)
            check_no_numbers_given(snapshot.schema, given.names, path)
    update_metadata(transaction, frame_schema, partition_by, rules, declared or DeclaredTable())
    metadata, protocol = transaction.metadata, transaction.protocol
    assert metadata is not None
    assert protocol is not None
    check_writable(protocol, metadata, path)
    schema = table_schema(metadata, table=path)
    overwrite_scope.begin(transaction)
    schema_changes = snapshot is not None and schema != snapshot.schema
    named = named_as_table(frame_schema, schema, rules, path)
    checks = [
        *checks_of_table(metadata, schema, schema_changes=schema_changes),
        *overwrite_scope.checks,
        *checks_of_numbers(schema, named.names),
    ]
    return TransactionalWrite(
        transaction,
        row_plan(
            named,
            overwrite_scope.columns_of_files(transaction, schema),
            metadata.partition_columns,
            checks,
            path,
        ),
        options,
        overwrite_scope=overwrite_scope,
        operation=operation,
        application=application,
        data_change=rules.data_change,
        settings_to_unset=settings_to_unset,
        only_with_files=only_with_files,
    )
