"""Finds the Delta table of a path or a name, and reads its rows."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from deltaflow.batch.options import required_path
from deltaflow.errors import DeltaTableNotFoundError, RegistrationError
from deltaflow.log import LOG_DIRECTORY, DeltaLog
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.catalog_tables import find_table
from deltaflow.spark.sql.statements import NamedTable
from deltaflow.store import directories_above, given_path, real_path, scheme_part, store_for, table_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_PATH = "delta.`"


def table_at_path(path: str) -> NamedTable:
    """The table at a path. DELTA_MISSING_DELTA_TABLE if there is none, or if the path lies inside of one."""
    if not is_table(path):
        raise DeltaTableNotFoundError(
            error_class="DELTA_MISSING_DELTA_TABLE", table_name=path, advice=_advice(path)
        )
    return named_by_path(path)


def named_by_path(path: str) -> NamedTable:
    """The table at a path where one is known to be."""
    absolute = given_path(table_path(path))
    return NamedTable(quoted_path(absolute), absolute)


def quoted_path(path: str) -> str:
    """The name delta.`path` of a path."""
    return f"{_OF_PATH}{path.replace('`', '``')}`"


def table_of_name(spark: SparkSession, name: str) -> NamedTable:
    """The table of a name, or of delta.`path`.

    DELTA_MISSING_DELTA_TABLE for any other name; DELTA_TABLE_NOT_FOUND if the directory has no Delta table.
    """
    found = find_table(spark, name)
    if found is None or found.path is None:
        advice = "Check the name." if found is None else "It is a view: name the table."
        raise DeltaTableNotFoundError(error_class="DELTA_MISSING_DELTA_TABLE", table_name=name, advice=advice)
    if is_named_by_path(found):
        return table_at_path(found.path)
    if not is_table(found.path):
        raise DeltaTableNotFoundError(
            error_class="DELTA_TABLE_NOT_FOUND", table_name=found.name, path=found.path
        )
    return found


def is_named_by_path(table: NamedTable) -> bool:
    """Whether the table's name is delta.`path`, so that it has no entry in the catalog."""
    return table.name.startswith(_OF_PATH)


def is_table(path: str) -> bool:
    """Whether a path is the directory of a Delta table."""
    return DeltaLog.for_table(required_path(path)).exists()


def session_or_active(session: SparkSession | None) -> SparkSession:
    """The session, or the active one for None."""
    from pyspark.sql import SparkSession

    found = session or SparkSession.getActiveSession()
    if found is None:
        raise RegistrationError(
            "There is no active Spark session. Make one with deltaflow.session(…), and pass it."
        )
    return found


def read_table(spark: SparkSession, table: NamedTable, options: Mapping[str, str]) -> DataFrame:
    """The rows of the table's newest version at each execution. A table by name qualifies its columns."""
    reader = spark.read.options(**options)
    if is_named_by_path(table):
        return reader.format("delta").load(table.path)
    return reader.table(table.name)


def qualified(rows: DataFrame, table: NamedTable) -> DataFrame:
    """Rows of the table, whose columns the name of a table by name qualifies."""
    return rows if is_named_by_path(table) else under_name(rows, table.name)


def enclosing_table(path: str) -> str | None:
    """The directory of the Delta table that a path lies in, if any: by its name, or through local links."""
    store, given = store_for(table_path(path))
    places = [given] if scheme_part(given) is not None else [given, real_path(given)]
    parents = [parent for place in places for parent in directories_above(place)]
    logs = {posixpath.join(parent, LOG_DIRECTORY): parent for parent in parents}
    missing = set(store.absent(list(logs)))
    return next((parent for log, parent in logs.items() if log not in missing), None)


def names_at(path: str) -> Iterator[str]:
    """The names of what is in a directory; none where there is none."""
    store, root = store_for(table_path(path))
    return (entry.name for entry in store.data_directory(root).entries(""))


def _advice(path: str) -> str:
    table = enclosing_table(path)
    return "Check the path." if table is None else f"It is a part of the table {table}: name that."
