"""`DeltaTable`: the operations on a table for Python, with the names and signatures of `delta.tables`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from deltaflow.interface.arguments import (
    check_assignments,
    check_boolean,
    check_clone,
    check_condition,
    check_file_system_options,
    check_integer,
    check_protocol_versions,
    check_string,
    check_vacuum,
)
from deltaflow.interface.merge_builder import DeltaMergeBuilder, check_merge
from deltaflow.interface.optimize_builder import DeltaOptimizeBuilder
from deltaflow.interface.table_builder import DeltaTableBuilder, Operation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession
    from pyspark.sql.types import StructType

    Session = SparkSession | ConnectSession

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class DeltaTable(ABC):
    """The operations on a Delta table. Each checks its arguments, and calls a method that a subclass has."""

    _alias: str | None = None

    @classmethod
    def forPath(cls, sparkSession: Session, path: str, hadoopConf: Mapping[str, str] = NO_OPTIONS) -> Self:
        """The table whose directory is `path`; DELTA_MISSING_DELTA_TABLE if there is none.

        `hadoopConf` has settings of Hadoop's file systems, whose keys begin with "fs." or "dfs.". Spark reads
        the files of `toDF` with them. The log is read with the settings of the session.
        """
        check_file_system_options(hadoopConf)
        return cls._at_path(sparkSession, check_string(path, "path"), dict(hadoopConf))

    @classmethod
    def forName(cls, sparkSession: Session, tableOrViewName: str) -> Self:
        """The table of this name in Spark's session catalog, or delta.`path` with an absolute path.

        DELTA_MISSING_DELTA_TABLE if there is no such table, or the name is that of a view or a table of
        another format. DELTA_TABLE_NOT_FOUND if the catalog of a classic session has the name, and its
        directory has no Delta table.
        """
        return cls._of_name(sparkSession, check_string(tableOrViewName, "tableOrViewName"))

    @classmethod
    def convertToDelta(
        cls, sparkSession: Session, identifier: str, partitionSchema: str | StructType | None = None
    ) -> Self:
        """Makes a Delta table of parquet.`path`, or of a Parquet table of the catalog, without moving a file.

        `partitionSchema`: the partition columns, as DDL or a StructType; without it they are inferred.
        """
        return cls._converted(sparkSession, check_string(identifier, "identifier"), partitionSchema)

    @classmethod
    def isDeltaTable(cls, sparkSession: Session, identifier: str) -> bool:
        """Whether a path is the directory of a Delta table."""
        return cls._is_table(sparkSession, check_string(identifier, "identifier"))

    @classmethod
    def create(cls, sparkSession: Session | None = None) -> DeltaTableBuilder[Self]:
        """Builds a table as CREATE TABLE does: an error if there is one."""
        return cls._builder(sparkSession, "create")

    @classmethod
    def createIfNotExists(cls, sparkSession: Session | None = None) -> DeltaTableBuilder[Self]:
        """Builds a table as CREATE TABLE IF NOT EXISTS does: nothing if there is one."""
        return cls._builder(sparkSession, "createIfNotExists")

    @classmethod
    def replace(cls, sparkSession: Session | None = None) -> DeltaTableBuilder[Self]:
        """Builds a table as REPLACE TABLE does: an error if there is none."""
        return cls._builder(sparkSession, "replace")

    @classmethod
    def createOrReplace(cls, sparkSession: Session | None = None) -> DeltaTableBuilder[Self]:
        """Builds a table as CREATE OR REPLACE TABLE does."""
        return cls._builder(sparkSession, "createOrReplace")

    def alias(self, aliasName: str) -> Self:
        """The same table under another name, for conditions."""
        renamed = copy(self)
        renamed._alias = aliasName
        return renamed

    def toDF(self) -> DataFrame:
        """The rows of the table's newest version at each execution, under the alias if there is one."""
        rows = self._rows()
        return rows if self._alias is None else rows.alias(self._alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """The operations on the table, the newest first, as DESCRIBE HISTORY shows them.

        `limit` is the number of versions. Versions that log cleanup has removed are not shown.
        """
        return self._history(None if limit is None else check_integer(limit, "limit"))

    def detail(self) -> DataFrame:
        """One row with the table's location, size, properties and protocol, as DESCRIBE DETAIL shows it."""
        return self._detail()

    def optimize(self) -> DeltaOptimizeBuilder:
        """Builds a rewrite of the table's files into larger or ordered ones; the rows stay the same."""
        return self._optimize()

    def restoreToVersion(self, version: int) -> DataFrame:
        """Commits a new version with the contents of this one. Returns one row with numbers and sizes of
        files.

        If the version is the newest, nothing is done and no row is returned.
        """
        return self._restore(version=check_integer(version, "version"))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """As `restoreToVersion`, for the version at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        return self._restore(timestamp=check_string(timestamp, "timestamp"))

    def addConstraint(self, name: str, expr: str) -> None:
        """Adds a CHECK constraint, as ALTER TABLE … ADD CONSTRAINT does; existing rows have to satisfy it.
        `delta.tables` has no such method.
        """
        self._add_constraint(check_string(name, "name"), check_string(expr, "expr"))

    def dropConstraint(self, name: str, ifExists: bool = False) -> None:
        """Drops a CHECK constraint, as ALTER TABLE … DROP CONSTRAINT does; not in `delta.tables` either."""
        self._drop_constraint(check_string(name, "name"), if_exists=check_boolean(ifExists, "ifExists"))

    def generate(self, mode: str) -> None:
        """Writes manifests for Presto, Athena and Redshift Spectrum: mode "symlink_format_manifest"."""
        self._generate(check_string(mode, "mode"))

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        checkpoints: Sequence[str] = (),
        lite: bool | None = None,
        inventory: DataFrame | None = None,
    ) -> DataFrame:
        """Deletes the files that no version within the retention needs, by default that of the table: 7 days.

        Returns an empty frame. With `dryRun` nothing is deleted, and the frame has the `path` of each file
        that a vacuum would delete, and in a classic session its `size`. `checkpoints` are checkpoint
        directories of streams: if a stream has yet to read a file that would be deleted, nothing is deleted,
        and the error names the stream. They have no form in SQL: a client of Spark Connect cannot name any.

        The files are found by a listing of the table's directory. With `lite` they are found in the log, as
        VACUUM LITE does; without it, spark.databricks.delta.vacuum.lite.enabled decides. An `inventory`, a
        frame with the columns path, length, isDir and modificationTime, takes the place of the listing.
        """
        check_vacuum(retentionHours, dryRun, checkpoints, lite)
        return self._vacuum(retentionHours, dryRun, checkpoints, lite, inventory)

    def repair(self, dryRun: bool = False, *, removeFilesWithoutVectors: bool = False) -> DataFrame:
        """Removes the files from the table that are not there any more, as FSCK REPAIR TABLE does; not in
        `delta.tables`. Their rows are lost.

        Returns a row for each file: its path, whether it is missing, the path of its deletion vector, whether
        that is missing, and how many rows of the table it has by the log. With `dryRun` nothing is committed.
        A file that is there without its deletion vector is an error, since nobody knows which of its rows are
        deleted; `removeFilesWithoutVectors` removes such files with all of their rows. It has no form in SQL:
        a client of Spark Connect cannot ask for it.
        """
        check_boolean(dryRun, "dryRun")
        check_boolean(removeFilesWithoutVectors, "removeFilesWithoutVectors")
        return self._repair(dryRun, removeFilesWithoutVectors)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> Self:
        """Makes a table, at a path or under a name, that has this table's rows.

        A shallow clone shares this table's files, and `replace` replaces a table without files. A deep clone
        has copies of the files; `replace` makes any table as this one is, and copies only what it lacks.
        `properties` override the table's own.
        """
        return self._checked_clone(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> Self:
        """As `clone`, of the table at a version."""
        check_integer(version, "version")
        return self._checked_clone(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> Self:
        """As `clone`, of the table at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        check_string(timestamp, "timestamp")
        return self._checked_clone(target, isShallow, replace, properties, timestamp=timestamp)

    def _checked_clone(
        self, target: str, shallow: bool, replace: bool, properties: dict[str, str] | None, **travel: Any
    ) -> Self:
        check_clone(target, shallow, replace, properties)
        return self._clone(target, shallow, replace, properties or {}, **travel)

    def delete(self, condition: str | Column | None = None) -> None:
        """Deletes the rows for which the condition (SQL or a Column) is true; without one, all rows."""
        check_condition(condition)
        self._delete(condition)

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 (its name in delta.tables)
    ) -> None:
        """Sets columns to values (SQL or Columns) in the rows for which the condition is true, or in all rows
        without a condition. A name with dots sets a field of a struct."""
        values = check_assignments(set, "'set'")
        check_condition(condition)
        self._update(condition, values)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Merges the rows of `source` into the table, by the clauses that are added to the builder."""
        check_merge(source, condition)
        return self._merge(source, condition)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Gives the protocol all features of these versions; a downgrade changes nothing."""
        check_protocol_versions(readerVersion, writerVersion)
        versions = {"delta.minReaderVersion": readerVersion, "delta.minWriterVersion": writerVersion}
        self._set_properties({name: str(version) for name, version in versions.items()})

    def addFeatureSupport(self, featureName: str) -> None:
        """Adds a table feature to the protocol; DELTA_UNSUPPORTED_FEATURES_IN_CONFIG for an unknown one."""
        self._set_properties({f"delta.feature.{check_string(featureName, 'featureName')}": "supported"})

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drops a table feature that nothing of the table needs, and gives the protocol its weakest form."""
        check_string(featureName, "featureName")
        truncates = truncateHistory is not None and check_boolean(truncateHistory, "truncateHistory")
        self._drop_feature(featureName, truncates)

    @classmethod
    @abstractmethod
    def _at_path(cls, session: Any, path: str, options: Mapping[str, str]) -> Self: ...

    @classmethod
    @abstractmethod
    def _of_name(cls, session: Any, name: str) -> Self: ...

    @classmethod
    @abstractmethod
    def _converted(
        cls, session: Any, identifier: str, partition_columns: str | StructType | None
    ) -> Self: ...

    @classmethod
    @abstractmethod
    def _is_table(cls, session: Any, path: str) -> bool: ...

    @classmethod
    @abstractmethod
    def _builder(cls, session: Any, operation: Operation) -> DeltaTableBuilder[Self]: ...

    @abstractmethod
    def _rows(self) -> DataFrame: ...

    @abstractmethod
    def _history(self, limit: int | None) -> DataFrame: ...

    @abstractmethod
    def _detail(self) -> DataFrame: ...

    @abstractmethod
    def _optimize(self) -> DeltaOptimizeBuilder: ...

    @abstractmethod
    def _restore(self, *, version: int | None = None, timestamp: str | None = None) -> DataFrame: ...

    @abstractmethod
    def _add_constraint(self, name: str, expression: str) -> None: ...

    @abstractmethod
    def _drop_constraint(self, name: str, *, if_exists: bool) -> None: ...

    @abstractmethod
    def _generate(self, mode: str) -> None: ...

    @abstractmethod
    def _vacuum(
        self,
        retention_hours: float | None,
        dry_run: bool,
        checkpoints: Sequence[str],
        lite: bool | None,
        inventory: DataFrame | None,
    ) -> DataFrame: ...

    @abstractmethod
    def _repair(self, dry_run: bool, removes_files_without_vectors: bool) -> DataFrame: ...

    @abstractmethod
    def _clone(
        self,
        target: str,
        shallow: bool,
        replace: bool,
        properties: dict[str, str],
        *,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> Self: ...

    @abstractmethod
    def _delete(self, condition: str | Column | None) -> None: ...

    @abstractmethod
    def _update(self, condition: str | Column | None, values: Mapping[str, str | Column]) -> None: ...

    @abstractmethod
    def _merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder: ...

    @abstractmethod
    def _set_properties(self, properties: Mapping[str, str]) -> None: ...

    @abstractmethod
    def _drop_feature(self, name: str, truncates_history: bool) -> None: ...
