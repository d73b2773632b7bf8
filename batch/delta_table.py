"""`DeltaTable`: the operations on a table for Python, with the names and signatures of `delta.tables`.

Each method calls the module of its operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from deltaflow.arguments import (
    check_boolean,
    check_file_system_options,
    check_integer,
    check_string,
    is_connect_session,
)
from deltaflow.batch import named_table
from deltaflow.batch.arguments import as_assignments, as_column
from deltaflow.batch.commands import convert
from deltaflow.batch.commands.clone import clone
from deltaflow.batch.commands.generate import generate
from deltaflow.batch.commands.vacuum import vacuum
from deltaflow.batch.ddl.protocol_changes import add_feature, drop_feature_of, upgrade_protocol
from deltaflow.batch.dml.delete import delete
from deltaflow.batch.dml.merge_builder import DeltaMergeBuilder, merge_builder
from deltaflow.batch.dml.update import update
from deltaflow.batch.optimize.optimize import DeltaOptimizeBuilder
from deltaflow.batch.sql_names import quoted
from deltaflow.batch.table_builder import DeltaTableBuilder
from deltaflow.builders import Operation
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.statements import NamedTable, run_statement

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def _for_connect() -> Any:
    # Spark's client, which is an extra, is there when there is a session of it.
    from deltaflow.connect import DeltaTable

    return DeltaTable


def _also_for_connect(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """For a client of Spark Connect, the method of deltaflow.connect.DeltaTable that has this name."""

    @wraps(method)
    def called(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        session = named.get("sparkSession") or arguments[1]
        if is_connect_session(session):
            found: _Result = getattr(_for_connect(), method.__name__)(*arguments[1:], **named)
            return found
        return method(*arguments, **named)

    return called


class DeltaTable:
    """A Delta table in a Spark session. Make one with `forPath` or `forName`.

    For a client of Spark Connect these methods return a deltaflow.connect.DeltaTable.
    """

    def __init__(
        self, spark: SparkSession, table: NamedTable, options: Mapping[str, str] = _NO_OPTIONS
    ) -> None:
        self._spark = spark
        self._table = table
        self._options = options
        self._alias: str | None = None

    @classmethod
    @_also_for_connect
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] = _NO_OPTIONS
    ) -> DeltaTable:
        """The table whose directory is `path`; DELTA_MISSING_DELTA_TABLE if there is none.

        `hadoopConf` has settings of Hadoop's file systems, whose keys begin with "fs." or "dfs.". Spark reads
        the files of `toDF` with them. The log is read with the settings of the session.
        """
        check_file_system_options(hadoopConf)
        return cls(sparkSession, named_table.table_at_path(path), dict(hadoopConf))

    @classmethod
    @_also_for_connect
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of this name in Spark's session catalog, or delta.`path` with an absolute path.

        DELTA_MISSING_DELTA_TABLE if there is no such table, or the name is that of a view or a table of
        another format. DELTA_TABLE_NOT_FOUND if the catalog has the name, and its directory has no Delta
        table.
        """
        return cls(sparkSession, named_table.table_of_name(sparkSession, tableOrViewName))

    @classmethod
    @_also_for_connect
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | StructType | None = None
    ) -> DeltaTable:
        """Makes a Delta table of parquet.`path`, or of a Parquet table of the catalog, without moving a file.

        `partitionSchema`: the partition columns, as DDL or a StructType; without it they are inferred.
        """
        return cls(sparkSession, convert.convert_table(sparkSession, identifier, partitionSchema))

    @classmethod
    @_also_for_connect
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a path is the directory of a Delta table."""
        return named_table.is_table(identifier)

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Builds a table as CREATE TABLE does: an error if there is one."""
        return cls._builder("create", sparkSession)

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Builds a table as CREATE TABLE IF NOT EXISTS does: nothing if there is one."""
        return cls._builder("createIfNotExists", sparkSession)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Builds a table as REPLACE TABLE does: an error if there is none."""
        return cls._builder("replace", sparkSession)

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Builds a table as CREATE OR REPLACE TABLE does."""
        return cls._builder("createOrReplace", sparkSession)

    @classmethod
    def _builder(cls, operation: Operation, session: SparkSession | None) -> DeltaTableBuilder:
        session = named_table.session_or_active(session)
        if is_connect_session(session):
            return getattr(_for_connect(), operation)(session)
        return DeltaTableBuilder(session, operation, partial(cls, session))

    def toDF(self) -> DataFrame:
        """The rows of the table's newest version at each execution, under the alias if there is one."""
        frame = named_table.read_table(self._spark, self._table, self._options)
        return frame if self._alias is None else frame.alias(self._alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """The operations on the table, the newest first, as DESCRIBE HISTORY shows them.

        `limit` is the number of versions. Versions that log cleanup has removed are not shown.
        """
        fields = {"limit": None if limit is None else check_integer(limit, "limit")}
        return run_statement(self._spark, "DescribeHistory", self._table, fields)

    def detail(self) -> DataFrame:
        """One row with the table's location, size, properties and protocol, as DESCRIBE DETAIL shows it."""
        return run_statement(self._spark, "DescribeDetail", self._table, {})

    def optimize(self) -> DeltaOptimizeBuilder:
        """Builds a rewrite of the table's files into larger or ordered ones; the rows stay the same."""
        return DeltaOptimizeBuilder(self._spark, self._table)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Commits a new version with the contents of this one. Returns one row with numbers and sizes of
        files.

        If the version is the newest, nothing is done and no row is returned.
        """
        fields = {"version": check_integer(version, "version"), "timestamp": None}
        return run_statement(self._spark, "Restore", self._table, fields)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """As `restoreToVersion`, for the version at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        fields = {"version": None, "timestamp": check_string(timestamp, "timestamp")}
        return run_statement(self._spark, "Restore", self._table, fields)

    def addConstraint(self, name: str, expr: str) -> None:
        """Adds a CHECK constraint, as ALTER TABLE … ADD CONSTRAINT does; existing rows have to satisfy it.
        `delta.tables` has no such method.
        """
        constraint = {"userProvidedName": check_string(name, "name"), "condition": check_string(expr, "expr")}
        run_statement(self._spark, "AddCheckConstraint", self._table, {"checkConstraint": constraint})

    def dropConstraint(self, name: str, ifExists: bool = False) -> None:
        """Drops a CHECK constraint, as ALTER TABLE … DROP CONSTRAINT does; not in `delta.tables` either."""
        fields = {"name": check_string(name, "name"), "ifExists": check_boolean(ifExists, "ifExists")}
        run_statement(self._spark, "DropConstraint", self._table, fields)

    def generate(self, mode: str) -> None:
        """Writes manifests for Presto, Athena and Redshift Spectrum: mode "symlink_format_manifest"."""
        generate(self._table, mode)

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

        Returns an empty frame. With `dryRun` nothing is deleted, and the frame has the `path` and `size` of
        each file that a vacuum would delete. `checkpoints` are checkpoint directories of streams: if a stream
        has yet to read a file that would be deleted, nothing is deleted, and the error names the stream.

        The files are found by a listing of the table's directory. With `lite` they are found in the log, as
        VACUUM LITE does; without it, spark.databricks.delta.vacuum.lite.enabled decides. An `inventory`, a
        frame with the columns path, length, isDir and modificationTime, takes the place of the listing.
        """
        return vacuum(
            self._spark,
            self._table,
            retentionHours,
            checkpoints,
            dry_run=dryRun,
            lite=lite,
            inventory=inventory,
        )

    def repair(self, dryRun: bool = False, *, removeFilesWithoutVectors: bool = False) -> DataFrame:
        """Removes the files from the table that are not there any more, as FSCK REPAIR TABLE does; not in
        `delta.tables`. Their rows are lost.

        Returns a row for each file: its path, whether it is missing, the path of its deletion vector, whether
        that is missing, and how many rows of the table it has by the log. With `dryRun` nothing is committed.
        A file that is there without its deletion vector is an error, since nobody knows which of its rows are
        deleted; `removeFilesWithoutVectors` removes such files with all of their rows.
        """
        fields = {
            "dryRun": check_boolean(dryRun, "dryRun"),
            "removesFilesWithoutVectors": check_boolean(
                removeFilesWithoutVectors, "removeFilesWithoutVectors"
            ),
        }
        return run_statement(self._spark, "Fsck", self._table, fields)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Makes a table, at a path or under a name, that has this table's rows.

        A shallow clone shares this table's files, and `replace` replaces a table without files. A deep clone
        has copies of the files; `replace` makes any table as this one is, and copies only what it lacks.
        `properties` override the table's own.
        """
        return self._clone(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """As `clone`, of the table at a version."""
        check_integer(version, "version")
        return self._clone(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """As `clone`, of the table at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        check_string(timestamp, "timestamp")
        return self._clone(target, isShallow, replace, properties, timestamp=timestamp)

    def _clone(self, *arguments: Any, **travel: Any) -> DeltaTable:
        return DeltaTable(self._spark, clone(self._spark, self._table, *arguments, **travel))

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under another name, for the conditions of a merge."""
        renamed = copy(self)
        renamed._alias = aliasName
        return renamed

    def delete(self, condition: str | Column | None = None) -> None:
        """Deletes the rows for which the condition (SQL or a Column) is true; without one, all rows."""
        delete(self._spark, self._path, as_column(condition), named=self._named)

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 (its name in delta.tables)
    ) -> None:
        """Sets columns to values (SQL or Columns) in the rows for which the condition is true, or in all rows
        without a condition. A name with dots sets a field of a struct."""
        values = as_assignments(set, "'set'")
        update(self._spark, self._path, values, as_column(condition), named=self._named)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Gives the protocol all features of these versions; a downgrade changes nothing."""
        upgrade_protocol(self._spark, self._table, readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Adds a table feature to the protocol; DELTA_UNSUPPORTED_FEATURES_IN_CONFIG for an unknown one."""
        add_feature(self._spark, self._table, featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drops a table feature that nothing of the table needs, and gives the protocol its weakest form."""
        drop_feature_of(self._spark, self._table, featureName, truncateHistory)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Merges the rows of `source` into the table, by the clauses that are added to the builder."""
        assert self._table.path is not None
        return merge_builder(self._spark, self._table.path, self._alias, source, condition)

    @property
    def _path(self) -> str:
        assert self._table.path is not None
        return self._table.path

    def _named(self, rows: DataFrame) -> DataFrame:
        """Rows of the table under the alias or name by which expressions call it."""
        if self._alias is None:
            return named_table.qualified(rows, self._table)
        return under_name(rows, quoted(self._alias))
