"""Writes the new files of an operation that removes others: the rows that stay, changed or as they are.

DELETE, UPDATE, MERGE, replaceWhere and compaction all write here. The write makes no commit: the operation
commits after it has accounted for the rows of the files that it removes
(deltaflow.batch.rewrite.row_account).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.batch.files.file_layout import shredding_options
from deltaflow.batch.rewrite.recorded_changes import CHANGE_FOLDER, as_change_file, with_change_type
from deltaflow.batch.rows.row_checks import checks_of_table
from deltaflow.batch.rows.row_plan import plain_schema, row_plan
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import AddCDCFile, AddFile, DeletionVectorDescriptor, OptimisticTransaction
from deltaflow.log.files.change_files import CHANGE_TYPE
from deltaflow.log.files.deletion_vectors import packed_vectors
from deltaflow.log.observer import observe
from deltaflow.log.protocol.column_mapping import table_schema
from deltaflow.log.protocol.features import has_partition_columns_in_files
from deltaflow.log.protocol.row_tracking import row_id_columns
from deltaflow.spark.scan.file_index import mapping_of
from deltaflow.spark.write.file_write import RowPlan, WrittenFile, write_frame

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame


class NewFiles:
    """Files that an operation writes before its commit names them."""

    def __init__(
        self,
        transaction: OptimisticTransaction,
        data_files: DataFiles,
        *,
        file_options: Mapping[str, str],
        optimized_write_bytes: int | None,
        data_change: bool = True,
        log_level: int = logging.WARNING,
    ) -> None:
        """The files get the schema and partitioning that the table has after the transaction. For
        `file_options` and `optimized_write_bytes` see deltaflow.spark.write.file_write.FileWrite, for
        `log_level` see DataFiles.discard."""
        assert transaction.metadata is not None
        assert transaction.protocol is not None
        transaction.keeps_row_ids = True
        self._metadata = transaction.metadata
        self.path = transaction.path
        snapshot = transaction.snapshot
        self._row_ids = (
            None if snapshot is None else row_id_columns(snapshot.protocol, snapshot.metadata, self.path)
        )
        self.partition_columns = tuple(self._metadata.partition_columns)
        self.keeps_partition_columns = has_partition_columns_in_files(transaction.protocol, self._metadata)
        self.mapping = mapping_of(self._metadata, self.path)
        self.file_options = {
            **file_options,
            **shredding_options(self._metadata.configuration, self.path),
        }
        self.optimized_write_bytes = optimized_write_bytes
        self.adds: list[AddFile] = []
        self.rows = 0
        """How many rows the files hold."""
        self.change_files: list[AddCDCFile] = []
        """The files that hold change rows, those of `adds` that do included."""
        self.recorded_rows = 0
        """How many rows `record` has written."""
        self._data_change = data_change
        self._log_level = log_level
        self._data_files = data_files
        self.folder = data_files.folder
        self._written: list[WrittenFile] = []

    def write(self, rows: DataFrame, operation: str) -> dict[str, int]:
        """Writes the frame's rows by one job; returns what the frame's observations have counted.

        The frame has the table's columns by name, of any types that store assignment allows, and those of
        TouchedFiles.with_row_ids. Every row has to pass the table's checks. If it has the column CHANGE_TYPE,
        too, which is none of the table's, every row is a change: then the files are change files as well
        (PROTOCOL.md, "Add CDC File").
        """
        schema = table_schema(self._metadata, table=self.path)
        checks = checks_of_table(self._metadata, schema)
        columns = self._with_row_ids(schema, rows)
        # A table without the feed may have a column of this name.
        are_changes = CHANGE_TYPE in rows.columns and CHANGE_TYPE not in schema.names
        if are_changes:
            columns = with_change_type(columns)
        plan = row_plan(rows.schema, columns, self.partition_columns, checks, self.path)
        known = len(self.adds)
        observed = write_frame(rows, _Write(self, plan), operation)
        if are_changes:
            self.change_files += map(as_change_file, self.adds[known:])
        return observed

    def copy(self, rows: DataFrame, operation: str) -> dict[str, int]:
        """Writes rows of the table as they are, by one job.

        The frame has the table's columns in their order, and then those of TouchedFiles.with_row_ids.
        """
        schema = self._with_row_ids(table_schema(self._metadata, table=self.path), rows)
        return self._copy(rows, schema, operation)

    def record(self, rows: DataFrame, operation: str) -> None:
        """Writes change rows by one job, into files that no reader of the table reads.

        The frame has the table's columns in their order, and then CHANGE_TYPE.
        """
        schema = with_change_type(table_schema(self._metadata, table=self.path))
        self._copy(rows, schema, operation, DataFiles(self._metadata, self.path, CHANGE_FOLDER))

    def _copy(
        self, rows: DataFrame, schema: T.StructType, operation: str, changes: DataFiles | None = None
    ) -> dict[str, int]:
        plan = row_plan(
            plain_schema(rows.schema), plain_schema(schema), self.partition_columns, (), self.path
        )
        return write_frame(rows, _Write(self, plan, changes), operation)

    def _with_row_ids(self, schema: T.StructType, rows: DataFrame) -> T.StructType:
        """The schema of the files: the table's, and the columns in which rows keep their ids."""
        if self._row_ids is None:
            return schema
        missing = set(self._row_ids) - set(rows.columns)
        if missing:
            raise DeltaIllegalStateException(
                f"Rows of {self.path} were to be written again without their row ids. Nothing was committed.",
                table=self.path,
            )
        return T.StructType([*schema.fields, *(T.StructField(name, T.LongType()) for name in self._row_ids)])

    def write_vectors(self, vectors: Sequence[BitMap64]) -> list[DeletionVectorDescriptor]:
        """Writes deletion vectors, many in one file; how the log names each. An empty one is an error."""
        files, descriptors = packed_vectors(vectors, self.folder)
        for file in files:
            # A put that fails may have made the file.
            self._written.append(self._data_files.written_file(file.name, len(file.content)))
            self._data_files.put(file.name, file.content)
        observe("vectors written", path=self.path, files=len(files))
        return descriptors

    def add(self, files: Sequence[WrittenFile]) -> None:
        """Adds the files that one job has written."""
        adds, rows = self._data_files.add_actions(files, data_change=self._data_change)
        self.adds += adds
        self.rows += rows
        self._written += files

    def add_changes(self, files: Sequence[WrittenFile], change_files: DataFiles) -> None:
        """Adds the files of change rows that one job has written."""
        actions, rows = change_files.change_actions(files)
        self.change_files += actions
        self.recorded_rows += rows
        self._written += files

    def discard(self, *, is_certain: bool) -> None:
        """Removes the files if it `is_certain` that no commit names them."""
        if self._written:
            self._data_files.discard(self._written, is_certain=is_certain, log_level=self._log_level)

    def discard_job(self, files: Sequence[WrittenFile] | None) -> None:
        """Removes the files of a job that has failed. See DataFiles.discard."""
        self._data_files.discard(files, is_certain=True, log_level=self._log_level)


class _Write:
    """The write of one job. See deltaflow.spark.write.FileWrite."""

    settings_to_unset: Sequence[str] = ()
    quarantine = None

    def __init__(self, files: NewFiles, rows: RowPlan, changes: DataFiles | None = None) -> None:
        """`changes`: the place of change rows; None for rows of the table."""
        self.path = files.path
        self.folder = files.folder if changes is None else changes.folder
        self.rows = rows
        self.partition_columns = files.partition_columns
        self.keeps_partition_columns = files.keeps_partition_columns
        self.mapping = files.mapping
        self.file_options = files.file_options
        self.optimized_write_bytes = files.optimized_write_bytes if changes is None else None
        self._files = files
        self._changes = changes

    def commit(self, files: Sequence[WrittenFile]) -> None:
        """Notes the files for the operation's commit."""
        if self._changes is None:
            self._files.add(files)
        else:
            self._files.add_changes(files, self._changes)

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        """Removes the files: the job has failed, or its files could not be added."""
        self._files.discard_job(files)
