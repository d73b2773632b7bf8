"""`DeltaTable` for clients of Spark Connect, with the names and signatures of `deltaflow.DeltaTable`.

Each method is a statement of SQL, which the server runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltaflow.arguments import (
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
from deltaflow.builders import Operation, check_merge
from deltaflow.connect.merge_builder import DeltaMergeBuilder
from deltaflow.connect.optimize_builder import DeltaOptimizeBuilder
from deltaflow.connect.sql_text import column_name, expression, name_of_path
from deltaflow.connect.table_builder import DeltaTableBuilder
from deltaflow.definition_text import column_text, not_in_sql, properties, quoted, type_text
from deltaflow.definition_text import string as sql_string
from deltaflow.errors import DeltaTableNotFoundError, RegistrationError
from deltaflow.store import is_absolute_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.types import StructType

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
_NO_SUCH_TABLE = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "TABLE_OR_VIEW_NOT_FOUND")
"""The conditions of DESCRIBE DETAIL for a name that is not one of a Delta table."""


class DeltaTable:
    """A Delta table in a session of Spark Connect. Make one with `forPath` or `forName`.

    Paths are the server's. Errors are those of `deltaflow.errors`; their attributes (`table`, …) are empty,
    since only the message crosses to a client.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        path: str | None = None,
        options: Mapping[str, str] = _NO_OPTIONS,
    ) -> None:
        self._spark = spark
        self._name = name
        self._path = path
        self._options = options
        self._alias: str | None = None

    @classmethod
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] = _NO_OPTIONS
    ) -> DeltaTable:
        """The table whose directory is `path`; DELTA_MISSING_DELTA_TABLE if there is none.

        `hadoopConf` has settings of Hadoop's file systems, whose keys begin with "fs." or "dfs.". Spark reads
        the files of `toDF` with them.
        """
        check_file_system_options(hadoopConf)
        name = _name_of_path(path)
        _check_exists(sparkSession, name, path)
        return cls(sparkSession, name, path, dict(hadoopConf))

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of this name in Spark's session catalog, or delta.`path` with an absolute path.

        DELTA_MISSING_DELTA_TABLE if there is no such table, or the name is that of a view or a table of
        another format.
        """
        name = check_string(tableOrViewName, "tableOrViewName")
        _check_exists(sparkSession, name, name)
        return cls(sparkSession, name)

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | StructType | None = None
    ) -> DeltaTable:
        """Makes a Delta table of parquet.`path`, or of a Parquet table of the catalog, without moving a file.

        `partitionSchema`: the partition columns, as DDL or a StructType; without it they are inferred.
        """
        check_string(identifier, "identifier")
        by = partitionSchema
        if by is not None and not isinstance(by, str):
            by = ", ".join(
                column_text(column.name, type_text(column.dataType), column.nullable, column.metadata)
                for column in by
            )
        partitioned = "" if by is None else f" PARTITIONED BY ({by})"
        sparkSession.sql(f"CONVERT TO DELTA {identifier}{partitioned}")
        kind, _, path = identifier.partition(".")
        return cls(sparkSession, f"delta.{path}" if kind.strip().lower() == "parquet" else identifier)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a path is the directory of a Delta table."""
        return _exists(sparkSession, _name_of_path(identifier))

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
        from pyspark.sql.connect.session import SparkSession

        found = session or SparkSession.getActiveSession()
        if found is None:
            raise RegistrationError(
                "There is no active session of Spark Connect. "
                "Make one with SparkSession.builder.remote(…), and pass it."
            )
        return DeltaTableBuilder(found, operation, partial(cls, found))

    def toDF(self) -> DataFrame:
        """The rows of the table's newest version at each execution, under the alias if there is one."""
        reader = self._spark.read.options(**self._options)
        path = self._path
        frame = reader.table(self._name) if path is None else reader.format("delta").load(path)
        return frame if self._alias is None else frame.alias(self._alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """The operations on the table, the newest first, as DESCRIBE HISTORY shows them.

        `limit` is the number of versions. Versions that log cleanup has removed are not shown.
        """
        most = "" if limit is None else f" LIMIT {check_integer(limit, 'limit')}"
        return self._run(f"DESCRIBE HISTORY {self._name}{most}")

    def detail(self) -> DataFrame:
        """One row with the table's location, size, properties and protocol, as DESCRIBE DETAIL shows it."""
        return self._run(f"DESCRIBE DETAIL {self._name}")

    def optimize(self) -> DeltaOptimizeBuilder:
        """Builds a rewrite of the table's files into larger or ordered ones; the rows stay the same."""
        return DeltaOptimizeBuilder(self._spark, self._name)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Commits a new version with the contents of this one. Returns one row with numbers and sizes of
        files.

        If the version is the newest, nothing is done and no row is returned.
        """
        return self._run(f"RESTORE TABLE {self._name} TO VERSION AS OF {check_integer(version, 'version')}")

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """As `restoreToVersion`, for the version at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        time = sql_string(check_string(timestamp, "timestamp"))
        return self._run(f"RESTORE TABLE {self._name} TO TIMESTAMP AS OF {time}")

    def addConstraint(self, name: str, expr: str) -> None:
        """Adds a CHECK constraint, as ALTER TABLE … ADD CONSTRAINT does; existing rows have to satisfy it."""
        check_string(name, "name")
        check = f"CHECK ({check_string(expr, 'expr')}\n)"
        self._run(f"ALTER TABLE {self._name} ADD CONSTRAINT {quoted(name)} {check}")

    def dropConstraint(self, name: str, ifExists: bool = False) -> None:
        """Drops a CHECK constraint, as ALTER TABLE … DROP CONSTRAINT does."""
        constraint = quoted(check_string(name, "name"))
        lenient = "IF EXISTS " if check_boolean(ifExists, "ifExists") else ""
        self._run(f"ALTER TABLE {self._name} DROP CONSTRAINT {lenient}{constraint}")

    def generate(self, mode: str) -> None:
        """Writes manifests for Presto, Athena and Redshift Spectrum: mode "symlink_format_manifest"."""
        self._run(f"GENERATE {quoted(check_string(mode, 'mode'))} FOR TABLE {self._name}")

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
        that a vacuum would delete. `checkpoints` has no form in SQL, and is refused. `lite` and `inventory`
        say where the files are looked for, as in a classic session.
        """
        check_vacuum(retentionHours, dryRun, checkpoints, lite)
        if checkpoints:
            raise not_in_sql("The argument checkpoints of vacuum", "Run this vacuum in a classic session.")
        retained = "" if retentionHours is None else f" RETAIN {retentionHours} HOURS"
        kind = "" if lite is None else " LITE" if lite else " FULL"
        text = f"VACUUM {self._name}{kind}{retained}{' DRY RUN' if dryRun else ''}"
        if inventory is None:
            rows = self._run(text)
        else:
            view = f"deltaflow_inventory_{uuid.uuid4().hex}"
            inventory.createTempView(view)
            try:
                rows = self._run(f"{text} USING INVENTORY {view}")
            finally:
                self._spark.catalog.dropTempView(view)
        return rows if dryRun else rows.limit(0).select()

    def repair(self, dryRun: bool = False, *, removeFilesWithoutVectors: bool = False) -> DataFrame:
        """Removes the files from the table that are not there any more, as FSCK REPAIR TABLE does; not in
        `delta.tables`. Their rows are lost.

        Returns a row for each file, as in a classic session. With `dryRun` nothing is committed.
        `removeFilesWithoutVectors` has no form in SQL, and is refused.
        """
        if check_boolean(removeFilesWithoutVectors, "removeFilesWithoutVectors"):
            raise not_in_sql(
                "The argument removeFilesWithoutVectors of repair", "Run this repair in a classic session."
            )
        dry_run = " DRY RUN" if check_boolean(dryRun, "dryRun") else ""
        return self._run(f"FSCK REPAIR TABLE {self._name}{dry_run}")

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
        at = f" VERSION AS OF {check_integer(version, 'version')}"
        return self._clone(target, isShallow, replace, properties, at)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """As `clone`, of the table at a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss."""
        at = f" TIMESTAMP AS OF {sql_string(check_string(timestamp, 'timestamp'))}"
        return self._clone(target, isShallow, replace, properties, at)

    def _clone(
        self, target: str, shallow: bool, replace: bool, own: dict[str, str] | None, at: str = ""
    ) -> DeltaTable:
        check_clone(target, shallow, replace, own)
        path = target if is_absolute_path(target) else None
        name = target if path is None else _name_of_path(path)
        verb = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        kind = "SHALLOW" if shallow else "DEEP"
        given = f" TBLPROPERTIES {properties(own)}" if own else ""
        self._run(f"{verb} {name} {kind} CLONE {self._name}{at}{given}")
        return DeltaTable(self._spark, name, path)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under another name, for the conditions of a merge."""
        renamed = copy(self)
        renamed._alias = aliasName
        return renamed

    def delete(self, condition: str | Column | None = None) -> None:
        """Deletes the rows for which the condition (SQL or a Column) is true; without one, all rows."""
        self._run(f"DELETE FROM {self._aliased}{self._where(condition)}")

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 (its name in delta.tables)
    ) -> None:
        """Sets columns to values (SQL or Columns) in the rows for which the condition is true, or in all rows
        without a condition. A name with dots sets a field of a struct."""
        assignments = check_assignments(set, "'set'")
        if not assignments:
            raise not_in_sql("An update of no column", "Name a column.")
        values = ", ".join(
            f"{column_name(name)} = {expression(self._spark, value)}" for name, value in assignments.items()
        )
        self._run(f"UPDATE {self._aliased} SET {values}{self._where(condition)}")

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Gives the protocol all features of these versions; a downgrade changes nothing."""
        check_protocol_versions(readerVersion, writerVersion)
        self._set(
            {"delta.minReaderVersion": str(readerVersion), "delta.minWriterVersion": str(writerVersion)}
        )

    def addFeatureSupport(self, featureName: str) -> None:
        """Adds a table feature to the protocol; DELTA_UNSUPPORTED_FEATURES_IN_CONFIG for an unknown one."""
        self._set({f"delta.feature.{check_string(featureName, 'featureName')}": "supported"})

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drops a table feature that nothing of the table needs, and gives the protocol its weakest form."""
        feature = quoted(check_string(featureName, "featureName"))
        truncates = truncateHistory is not None and check_boolean(truncateHistory, "truncateHistory")
        history = " TRUNCATE HISTORY" if truncates else ""
        self._run(f"ALTER TABLE {self._name} DROP FEATURE {feature}{history}")

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Merges the rows of `source` into the table, by the clauses that are added to the builder."""
        check_merge(source, condition)
        return DeltaMergeBuilder(self._spark, self._aliased, source, expression(self._spark, condition))

    @property
    def _aliased(self) -> str:
        return self._name if self._alias is None else f"{self._name} AS {quoted(self._alias)}"

    def _where(self, condition: str | Column | None) -> str:
        check_condition(condition)
        return "" if condition is None else f" WHERE {expression(self._spark, condition)}"

    def _set(self, values: Mapping[str, str]) -> None:
        self._run(f"ALTER TABLE {self._name} SET TBLPROPERTIES {properties(values)}")

    def _run(self, text: str) -> DataFrame:
        """The rows of a statement, which the server runs at once."""
        return self._spark.sql(text)


def _name_of_path(path: str) -> str:
    return name_of_path(check_string(path, "path"))


def _exists(spark: SparkSession, name: str) -> bool:
    try:
        spark.sql(f"DESCRIBE DETAIL {name}").schema  # noqa: B018 (the server analyses the statement)
    except PySparkException as error:
        if error.getCondition() in _NO_SUCH_TABLE:
            return False
        raise
    return True


def _check_exists(spark: SparkSession, name: str, given: str) -> None:
    if not _exists(spark, name):
        raise DeltaTableNotFoundError(
            error_class="DELTA_MISSING_DELTA_TABLE", table_name=given, advice="Check the name or the path."
        )
