"""`DeltaTable` in a classic session: each method runs the module of its operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from deltaflow.batch import named_table
from deltaflow.batch.arguments import as_column, as_columns
from deltaflow.batch.commands import convert
from deltaflow.batch.commands.clone import clone
from deltaflow.batch.commands.generate import generate
from deltaflow.batch.commands.vacuum import vacuum
from deltaflow.batch.dml.delete import delete
from deltaflow.batch.dml.merge_builder import MergeBuilder
from deltaflow.batch.dml.update import update
from deltaflow.batch.optimize.optimize import OptimizeBuilder
from deltaflow.batch.sql_names import quoted
from deltaflow.batch.table_builder import TableBuilder
from deltaflow.interface import delta_table as interface
from deltaflow.interface.arguments import is_connect_session
from deltaflow.interface.table_builder import DeltaTableBuilder, Operation
from deltaflow.spark.bridge.java_classes import check_registered
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.statements import NamedTable, run_statement

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _of_connect() -> Any:
    # Spark's client, which is an extra, is there when there is a session of it.
    from deltaflow.connect import DeltaTable

    return DeltaTable


def _also_for_connect(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """For a client of Spark Connect, the method of deltaflow.connect.DeltaTable that has this name."""

    @wraps(method)
    def called(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if is_connect_session(arguments[1]):
            found: _Result = getattr(_of_connect(), method.__name__)(*arguments[1:], **named)
            return found
        return method(*arguments, **named)

    return called


class DeltaTable(interface.DeltaTable):
    """A Delta table in a Spark session. Make one with `forPath` or `forName`.

    For a client of Spark Connect these methods return a deltaflow.connect.DeltaTable.
    """

    def __init__(
        self, spark: SparkSession, table: NamedTable, options: Mapping[str, str] = interface.NO_OPTIONS
    ) -> None:
        self._spark = spark
        self._table = table
        self._options = options

    @classmethod
    @_also_for_connect
    def _at_path(cls, session: SparkSession, path: str, options: Mapping[str, str]) -> Self:
        check_registered(session)
        return cls(session, named_table.table_at_path(path), options)

    @classmethod
    @_also_for_connect
    def _of_name(cls, session: SparkSession, name: str) -> Self:
        return cls(session, named_table.table_of_name(session, name))

    @classmethod
    @_also_for_connect
    def _converted(
        cls, session: SparkSession, identifier: str, partition_columns: str | StructType | None
    ) -> Self:
        return cls(session, convert.convert_table(session, identifier, partition_columns))

    @classmethod
    @_also_for_connect
    def _is_table(cls, session: SparkSession, path: str) -> bool:
        return named_table.is_table(path)

    @classmethod
    def _builder(cls, session: SparkSession | None, operation: Operation) -> DeltaTableBuilder[Self]:
        session = named_table.session_or_active(session)
        if is_connect_session(session):
            return _of_connect()._builder(session, operation)
        return TableBuilder(session, operation, partial(cls, session))

    def _rows(self) -> DataFrame:
        return named_table.read_table(self._spark, self._table, self._options)

    def _history(self, limit: int | None) -> DataFrame:
        return self._run("DescribeHistory", limit=limit)

    def _detail(self) -> DataFrame:
        return self._run("DescribeDetail")

    def _optimize(self) -> OptimizeBuilder:
        return OptimizeBuilder(self._spark, self._table)

    def _restore(self, *, version: int | None = None, timestamp: str | None = None) -> DataFrame:
        return self._run("Restore", version=version, timestamp=timestamp)

    def _add_constraint(self, name: str, expression: str) -> None:
        self._run("AddCheckConstraint", checkConstraint={"userProvidedName": name, "condition": expression})

    def _drop_constraint(self, name: str, *, if_exists: bool) -> None:
        self._run("DropConstraint", name=name, ifExists=if_exists)

    def _generate(self, mode: str) -> None:
        generate(self._table, mode)

    def _vacuum(
        self,
        retention_hours: float | None,
        dry_run: bool,
        checkpoints: Sequence[str],
        lite: bool | None,
        inventory: DataFrame | None,
    ) -> DataFrame:
        return vacuum(
            self._spark,
            self._table,
            retention_hours,
            checkpoints,
            dry_run=dry_run,
            lite=lite,
            inventory=inventory,
        )

    def _repair(self, dry_run: bool, removes_files_without_vectors: bool) -> DataFrame:
        return self._run("Fsck", dryRun=dry_run, removesFilesWithoutVectors=removes_files_without_vectors)

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
        cloned = clone(
            self._spark,
            self._table,
            target,
            shallow,
            replace,
            properties,
            version=version,
            timestamp=timestamp,
        )
        return type(self)(self._spark, cloned)

    def _delete(self, condition: str | Column | None) -> None:
        delete(self._spark, self._path, as_column(condition), named=self._named)

    def _update(self, condition: str | Column | None, values: Mapping[str, str | Column]) -> None:
        update(self._spark, self._path, as_columns(values), as_column(condition), named=self._named)

    def _merge(self, source: DataFrame, condition: str | Column) -> MergeBuilder:
        return MergeBuilder(self._spark, self._path, self._alias, source, as_column(condition))

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        self._run("SetTableProperties", properties=properties)

    def _drop_feature(self, name: str, truncates_history: bool) -> None:
        self._run("DropFeature", featureName=name, truncateHistory=truncates_history)

    @property
    def _path(self) -> str:
        assert self._table.path is not None
        return self._table.path

    def _named(self, rows: DataFrame) -> DataFrame:
        """Rows of the table under the alias or name by which expressions call it."""
        if self._alias is None:
            return named_table.qualified(rows, self._table)
        return under_name(rows, quoted(self._alias))

    def _run(self, statement: str, **fields: Any) -> DataFrame:
        """The rows of a statement of SQL, which runs at once."""
        return run_statement(self._spark, statement, self._table, fields)
