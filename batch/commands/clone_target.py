"""The target of a clone: a path, or a name of the catalog with its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from deltaflow.batch.named_table import names_at
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import LOG_DIRECTORY, DeltaLog
from deltaflow.log.maintenance.data_listing import list_data
from deltaflow.spark.sql.catalog_tables import create_table, find_table, new_table
from deltaflow.store import is_absolute_path, qualified_path, store_for, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_COLUMNS = '{"type":"struct","fields":[]}'
_ANY_AGE_MS = 1 << 62
_PATH_AS_NAME = re.compile(r"`?delta`?\.`.*`", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class CloneTarget:
    """The name and path of a clone."""

    name: str
    path: str
    is_new: bool
    """The catalog has no table of this name."""
    location: str | None
    replaces: bool
    must_exist: bool

    @property
    def exists(self) -> bool:
        """Whether there is a table of the name, or a Delta table at the path."""
        return self._is_in_catalog or DeltaLog.for_table(self.path).exists()

    @property
    def _is_in_catalog(self) -> bool:
        return not self.is_new and not _PATH_AS_NAME.fullmatch(self.name)

    def check(self, left_behind: Callable[[], Collection[str]]) -> None:
        """Raises if the statement cannot make a clone here. `left_behind` tells which files in the directory
        an attempt that failed may have left there."""
        if self.must_exist and not self.exists:
            raise DeltaAnalysisException(
                error_class="DELTA_CANNOT_REPLACE_MISSING_TABLE", table_name=self.name, table=self.path
            )
        if self.replaces:
            return
        if self._is_in_catalog:
            raise DeltaAnalysisException(
                error_class="DELTA_TABLE_ALREADY_EXISTS", table_name=self.name, table=self.path
            )
        names = set(islice(names_at(self.path), 2))
        # A failed attempt may have left a log without a commit, and files.
        if not names or (
            not DeltaLog.for_table(self.path).exists()
            and (names <= {LOG_DIRECTORY} or _files_at(self.path) <= set(left_behind()))
        ):
            return
        raise DeltaAnalysisException(
            error_class="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", table_name=self.name, table=self.path
        )

    def update_catalog(self, spark: SparkSession) -> None:
        """Makes the entry of a new name. Of an existing table, Spark reads anew what it has cached."""
        if not self.is_new:
            spark.catalog.refreshByPath(self.path)
            return
        statement = {
            "name": self.name,
            "replaces": False,
            "isLenient": False,
            "schema": _NO_COLUMNS,
            "partitionedBy": [],
            "clusterBy": [],
            "properties": {},
            "location": self.location,
            "comment": None,
        }
        create_table(spark, statement)


def clone_target(
    spark: SparkSession, name: str, *, replaces: bool, must_exist: bool, location: str | None
) -> CloneTarget:
    """The target that a name, or delta.`path`, and a LOCATION name.

    DELTA_CLONE_AMBIGUOUS_TARGET or DELTA_TABLE_LOCATION_MISMATCH if they name two paths,
    DELTA_INVALID_CLONE_PATH for a path that is not absolute, DELTA_NOT_A_DELTA_TABLE for a table of another
    format.
    """
    if location is not None and not is_absolute_path(location):
        raise DeltaIllegalArgumentException(error_class="DELTA_INVALID_CLONE_PATH", path=location)
    location = None if location is None else qualified_path(location)
    found = find_table(spark, name)
    if found is not None and found.path is not None:
        is_path = _PATH_AS_NAME.fullmatch(found.name) is not None
        if location is not None and table_path(location) != table_path(found.path):
            if is_path:
                raise DeltaIllegalArgumentException(
                    error_class="DELTA_CLONE_AMBIGUOUS_TARGET", location=location, target=found.name
                )
            raise DeltaAnalysisException(
                error_class="DELTA_TABLE_LOCATION_MISMATCH",
                table_name=found.name,
                existing=found.path,
                specified=location,
            )
        return CloneTarget(found.name, found.path, False, location, replaces, must_exist)
    if _PATH_AS_NAME.fullmatch(name):
        raise DeltaIllegalArgumentException(error_class="DELTA_INVALID_CLONE_PATH", path=name)
    made = None if found is not None else new_table(spark, name)
    if made is None or made.path is None:
        raise DeltaAnalysisException(error_class="DELTA_NOT_A_DELTA_TABLE", table_name=name)
    return CloneTarget(made.name, location or made.path, True, location, replaces, must_exist)


def _files_at(path: str) -> set[str]:
    """The places of the files in a directory that are not hidden."""
    store, root = store_for(table_path(path))
    batches = list_data(store.data_directory(root), (), _ANY_AGE_MS).files
    return set(chain.from_iterable(batch.column("path").to_pylist() for batch in batches))
