"""What a transaction has read of its table, as far as the commit of another writer can change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField

from deltaflow.errors import CorruptLogError, DeltaIllegalArgumentException
from deltaflow.log.files.file_key import file_key
from deltaflow.log.files.file_rows import FILES_SCHEMA, file_keys
from deltaflow.log.files.partition_values import typed_values
from deltaflow.log.protocol.actions import AddFile, RemoveFile
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.replay.snapshot import Snapshot

PartitionPredicate: TypeAlias = pc.Expression
"""A condition on partition columns, by their names and types: `pc.field("day") >= date(2024, 1, 1)`.

A file matches where the condition is true, not where it is null, as in a WHERE of SQL. Picklable.
"""

_MAP = FILES_SCHEMA.field("partition_values").type
_ROW = "\0row"
"""A name that no column of a table can have."""


@dataclass(slots=True)
class Reads:
    """Everything that was read of one version of the table at `table`; grows until the commit.

    `snapshot` is that version, None without a table. `time_zone` is the session's: partition values that are
    timestamps without a zone are read in it.
    """

    table: str
    snapshot: Snapshot | None
    time_zone: str = "UTC"
    whole_table: bool = False
    no_table: bool = False
    """Whether the commit depends on there being no table; it may be a blind append all the same."""
    predicates: list[PartitionPredicate] = field(default_factory=list)
    app_ids: set[str] = field(default_factory=set)
    _file_keys: list[pa.Array] = field(default_factory=list)

    @property
    def has_read_data(self) -> bool:
        """Whether rows or files were read: a commit that depends on them is no blind append."""
        return self.whole_table or bool(self.predicates) or bool(self._file_keys)

    def add_predicate(self, predicate: PartitionPredicate) -> pa.Table:
        """Record that all rows for which `predicate` is true are read; their files in the snapshot.

        DeltaIllegalArgumentException unless it is a condition on the partition columns; CorruptLogError for a
        file whose partition values are not of the columns' types.
        """
        if self.snapshot is None:
            self.whole_table = True
            return FILES_SCHEMA.empty_table()
        self._check_predicate(predicate)
        files = self.snapshot.files
        try:
            positions = self._matching(files["partition_values"], predicate)
        except pa.ArrowInvalid as error:
            raise CorruptLogError(str(error), table=self.table, version=self.snapshot.version) from error
        found = files.take(positions)
        self.predicates.append(predicate)
        self.add_files(found)
        return found

    def add_files(self, files: pa.Table) -> None:
        """Record that these files, rows of a snapshot's `files`, are read."""
        self._file_keys.append(file_keys(files, self.table))

    def first_added(self, adds: Sequence[AddFile]) -> AddFile | None:
        """The first of these files that the transaction would have read; None if it would have read none."""
        if not adds or self.whole_table:
            return next(iter(adds), None)
        if not self.predicates:
            return None
        values = pa.array([list(add.partition_values.items()) for add in adds], _MAP)
        first = len(adds)
        for predicate in self.predicates:
            try:
                matching = self._matching(values, predicate)
            except pa.ArrowInvalid:
                # A value that is not of its column's type may match.
                return adds[0]
            if len(matching):
                first = min(first, matching[0].as_py())
        return adds[first] if first < len(adds) else None

    def first_removed(self, removes: Sequence[RemoveFile]) -> RemoveFile | None:
        """The first of these files that the transaction has read; None if it has read none."""
        if not removes or self.whole_table:
            return next(iter(removes), None)
        keys = pa.array([file_key(remove, self.table) for remove in removes], pa.string())
        for read in self._file_keys:
            position: int = pc.index(pc.is_in(keys, value_set=read), True).as_py()
            if position >= 0:
                return removes[position]
        return None

    def _check_predicate(self, predicate: PartitionPredicate) -> None:
        try:
            self._matching(pa.array([], _MAP), predicate)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self._columns)
            raise DeltaIllegalArgumentException(
                f"{predicate} is no condition on the partition columns [{columns}] of the table: "
                f"{str(error).splitlines()[0]}. Name these columns only, by values of their types.",
                error_class="DELTA_INVALID_PARTITION_PREDICATE",
                table=self.table,
            ) from error

    @property
    def _columns(self) -> list[StructField]:
        """The partition columns of the version that was read."""
        if self.snapshot is None:
            return []
        return [self.snapshot.schema[name] for name in self.snapshot.partition_columns]

    def _matching(self, partition_values: pa.Array, predicate: PartitionPredicate) -> pa.Array:
        """Positions of the partition values, a map column, for which the predicate is true; ascending."""
        if isinstance(partition_values, pa.ChunkedArray):
            partition_values = partition_values.combine_chunks()
        columns = {
            column.name: typed_values(
                pc.map_lookup(partition_values, physical_name(column), "first"),
                column.dataType,
                self.time_zone,
            )
            for column in self._columns
        }
        rows = pa.table({_ROW: pa.array(range(len(partition_values)), pa.int64()), **columns})
        return rows.filter(predicate)[_ROW].combine_chunks()
