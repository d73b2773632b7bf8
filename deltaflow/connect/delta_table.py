"""`DeltaTable` in a session of Spark Connect: each method is a statement of SQL, which the server runs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from pyspark.errors import PySparkException

from deltaflow.connect.merge_builder import MergeBuilder
from deltaflow.connect.optimize_builder import OptimizeBuilder
from deltaflow.connect.sql_text import column_name, expression, name_of_path
from deltaflow.connect.table_builder import TableBuilder
from deltaflow.definition_text import column_text, not_in_sql, quoted, type_text
from deltaflow.definition_text import properties as sql_properties
from deltaflow.definition_text import string as sql_string
from deltaflow.errors import DeltaTableNotFoundError, RegistrationError
from deltaflow.interface import delta_table as interface
from deltaflow.interface.table_builder import Operation
from deltaflow.store import is_absolute_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.types import StructType

_NO_SUCH_TABLE = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "TABLE_OR_VIEW_NOT_FOUND")
"""The conditions of DESCRIBE DETAIL for a name that is not one of a Delta table."""


class DeltaTable(interface.DeltaTable):
    """A Delta table in a session of Spark Connect. Make one with `forPath` or `forName`.

    Paths are the server's. Errors are those of `deltaflow.errors`; their attributes (`table`, …) are empty,
    since only the message crosses to a client.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        path: str | None = None,
        options: Mapping[str, str] = interface.NO_OPTIONS,
    ) -> None:
        self._spark = spark
        self._name = name
        self._path = path
        self._options = options

    @classmethod
    def _at_path(cls, session: SparkSession, path: str, options: Mapping[str, str]) -> Self:
        name = name_of_path(path)
        _check_exists(session, name, path)
        return cls(session, name, path, options)

    @classmethod
    def _of_name(cls, session: SparkSession, name: str) -> Self:
        _check_exists(session, name, name)
        return cls(session, name)

    @classmethod
    def _converted(
        cls, session: SparkSession, identifier: str, partition_columns: str | StructType | None
    ) -> Self:
        by = partition_columns
        if by is not None and not isinstance(by, str):
            by = ", ".join(
                column_text(column.name, type_text(column.dataType), column.nullable, column.metadata)
                for column in by
            )
        partitioned = "" if by is None else f" PARTITIONED BY ({by})"
        session.sql(f"CONVERT TO DELTA {identifier}{partitioned}")
        kind, _, path = identifier.partition(".")
        return cls(session, f"delta.{path}" if kind.strip().lower() == "parquet" else identifier)

    @classmethod
    def _is_table(cls, session: SparkSession, path: str) -> bool:
        return _exists(session, name_of_path(path))

    @classmethod
    def _builder(cls, session: SparkSession | None, operation: Operation) -> TableBuilder[Self]:
        from pyspark.sql.connect.session import SparkSession

        found = session or SparkSession.getActiveSession()
        if found is None:
            raise RegistrationError(
                "There is no active session of Spark Connect. "
                "Make one with SparkSession.builder.remote(…), and pass it."
            )
        return TableBuilder(found, operation, partial(cls, found))

    def _rows(self) -> DataFrame:
        reader = self._spark.read.options(**self._options)
        path = self._path
        return reader.table(self._name) if path is None else reader.format("delta").load(path)

    def _history(self, limit: int | None) -> DataFrame:
        return self._run(f"DESCRIBE HISTORY {self._name}{'' if limit is None else f' LIMIT {limit}'}")

    def _detail(self) -> DataFrame:
        return self._run(f"DESCRIBE DETAIL {self._name}")

    def _optimize(self) -> OptimizeBuilder:
        return OptimizeBuilder(self._spark, self._name)

    def _restore(self, *, version: int | None = None, timestamp: str | None = None) -> DataFrame:
        return self._run(f"RESTORE TABLE {self._name} TO{_as_of(version, timestamp)}")

    def _add_constraint(self, name: str, expression: str) -> None:
        self._alter(f"ADD CONSTRAINT {quoted(name)} CHECK ({expression}\n)")

    def _drop_constraint(self, name: str, *, if_exists: bool) -> None:
        self._alter(f"DROP CONSTRAINT {'IF EXISTS ' if if_exists else ''}{quoted(name)}")

    def _generate(self, mode: str) -> None:
        self._run(f"GENERATE {quoted(mode)} FOR TABLE {self._name}")

    def _vacuum(
        self,
        retention_hours: float | None,
        dry_run: bool,
        checkpoints: Sequence[str],
        lite: bool | None,
        inventory: DataFrame | None,
    ) -> DataFrame:
        if checkpoints:
            raise not_in_sql("The argument checkpoints of vacuum", "Run this vacuum in a classic session.")
        retained = "" if retention_hours is None else f" RETAIN {retention_hours} HOURS"
        kind = "" if lite is None else " LITE" if lite else " FULL"
        text = f"VACUUM {self._name}{kind}{retained}{' DRY RUN' if dry_run else ''}"
        if inventory is None:
            rows = self._run(text)
        else:
            view = f"deltaflow_inventory_{uuid.uuid4().hex}"
            inventory.createTempView(view)
            try:
                rows = self._run(f"{text} USING INVENTORY {view}")
            finally:
                self._spark.catalog.dropTempView(view)
        return rows if dry_run else rows.limit(0).select()

    def _repair(self, dry_run: bool, removes_files_without_vectors: bool) -> DataFrame:
        if removes_files_without_vectors:
            raise not_in_sql(
                "The argument removeFilesWithoutVectors of repair", "Run this repair in a classic session."
            )
        return self._run(f"FSCK REPAIR TABLE {self._name}{' DRY RUN' if dry_run else ''}")

    def _clone(
        self,
        target: str,
        shallow: bool,
        replace: bool,
        properties: dict[str, str],
        *,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> Self:
        path = target if is_absolute_path(target) else None
        name = target if path is None else name_of_path(path)
        verb = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        kind = "SHALLOW" if shallow else "DEEP"
        given = f" TBLPROPERTIES {sql_properties(properties)}" if properties else ""
        self._run(f"{verb} {name} {kind} CLONE {self._name}{_as_of(version, timestamp)}{given}")
        return type(self)(self._spark, name, path)

    def _delete(self, condition: str | Column | None) -> None:
        self._run(f"DELETE FROM {self._aliased}{self._where(condition)}")

    def _update(self, condition: str | Column | None, values: Mapping[str, str | Column]) -> None:
        if not values:
            raise not_in_sql("An update of no column", "Name a column.")
        assignments = ", ".join(
            f"{column_name(name)} = {expression(self._spark, value)}" for name, value in values.items()
        )
        self._run(f"UPDATE {self._aliased} SET {assignments}{self._where(condition)}")

    def _merge(self, source: DataFrame, condition: str | Column) -> MergeBuilder:
        return MergeBuilder(self._spark, self._aliased, source, expression(self._spark, condition))

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        self._alter(f"SET TBLPROPERTIES {sql_properties(properties)}")

    def _drop_feature(self, name: str, truncates_history: bool) -> None:
        self._alter(f"DROP FEATURE {quoted(name)}{' TRUNCATE HISTORY' if truncates_history else ''}")

    @property
    def _aliased(self) -> str:
        return self._name if self._alias is None else f"{self._name} AS {quoted(self._alias)}"

    def _where(self, condition: str | Column | None) -> str:
        return "" if condition is None else f" WHERE {expression(self._spark, condition)}"

    def _alter(self, change: str) -> None:
        self._run(f"ALTER TABLE {self._name} {change}")

    def _run(self, text: str) -> DataFrame:
        """The rows of a statement, which the server runs at once."""
        return self._spark.sql(text)


def _as_of(version: int | None, timestamp: str | None) -> str:
    if version is not None:
        return f" VERSION AS OF {version}"
    return "" if timestamp is None else f" TIMESTAMP AS OF {sql_string(timestamp)}"


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
